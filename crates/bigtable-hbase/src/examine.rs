//! Examines a cluster: its version, the settings of its servers, and the store's tables.
//!
//! Garbage collection relies on settings that HBase's protocol does not show. A server's web server
//! shows them, if it has one.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{Finding, REQUEST_LIFE_MAX, Result, Store, Verdict};
use futures::{StreamExt, stream};

use crate::address::HbaseAddress;
use crate::admin::HbaseServer;
use crate::failure::Failure;
use crate::proto::TableSchema;
use crate::store::{HbaseStore, lost_cells};
use crate::version::{numbers, too_old};

/// The number of servers that are examined at a time.
const AT_ONCE: usize = 16;

/// A setting that must not be longer than an option of the address says.
struct Bound {
    name: &'static str,
    /// HBase's default, in milliseconds.
    default_ms: u64,
    option: &'static str,
    of: fn(&mut HbaseAddress) -> &mut Duration,
}

const BOUNDS: [Bound; 2] = [
    Bound {
        name: "zookeeper.session.timeout",
        default_ms: 90_000,
        option: "session",
        of: |address| &mut address.session,
    },
    Bound {
        name: "hbase.busy.wait.duration",
        default_ms: 60_000,
        option: "busy",
        of: |address| &mut address.busy,
    },
];

/// How long a request waits for its server's log before the server gives the wait up.
const WAL_SYNC: &str = "hbase.regionserver.wal.sync.timeout";
/// Its name in older versions, which HBase still reads.
const WAL_SYNC_OLD: &str = "hbase.regionserver.hlog.sync.timeout";
const WAL_SYNC_DEFAULT_MS: u64 = 300_000;
/// The shortest wait that counts as endless. HDFS gives a file up long before.
const WAL_SYNC_MIN_MS: u64 = 24 * 3_600 * 1_000;
/// The kind of log, and the only one whose failed syncs are repeated.
const WAL_PROVIDER: &str = "hbase.wal.provider";
const ASYNC_LOG: &str = "asyncfs";

impl HbaseStore {
    /// Examines the cluster, the settings of its servers, and the tables of this store.
    ///
    /// # Errors
    /// `Unavailable` if no master answers in time.
    pub async fn examine(&self, address: &HbaseAddress) -> Result<Vec<Finding>> {
        let cluster = self.cluster().await?;
        let mut findings = vec![of_version("HBase's master".to_owned(), &cluster.version)];
        let count = cluster.servers.len();
        let servers = Finding::sound("region servers", format!("{count} live"));
        findings.push(if count > 1 {
            servers
        } else {
            let help = "start another one: the end of a server stops all work until it is back";
            Finding { verdict: Verdict::Advice, help: Some(help.to_owned()), ..servers }
        });
        findings.push(of_life(address));
        // A server that does not answer takes the whole deadline, so they are read at once.
        let examined = cluster.servers.iter().map(|server| self.examine_server(server, address));
        let examined: Vec<_> = examined.collect();
        let examined: Vec<_> = stream::iter(examined).buffered(AT_ONCE).collect().await;
        findings.extend(examined.into_iter().flatten());
        for name in self.table_names().await? {
            let described = self.describe(&name).await.map_err(Failure::of_read)?;
            findings.extend(described.map(|table| of_table(&self.id(&name), &table)));
        }
        Ok(findings)
    }

    /// Examines the version and the settings of a region server.
    async fn examine_server(&self, server: &HbaseServer, address: &HbaseAddress) -> Vec<Finding> {
        let (version, settings) =
            tokio::join!(self.server_version(server), self.server_settings(server));
        let about = format!("HBase of {}", server.address);
        let mut findings = vec![match version {
            Ok(version) => of_version(about, &version),
            Err(error) => without_version(about, error.to_string()),
        }];
        match settings {
            Ok(settings) => findings.extend(of_server(server, &settings, address)),
            Err(error) => findings.push(unread(server, &error)),
        }
        findings
    }
}

/// Judges the version of a server.
fn of_version(about: String, version: &str) -> Finding {
    let found = format!("version {version}");
    match too_old(version) {
        Some(why) => Finding::wrong(about, found, why),
        None if numbers(version).is_none() => without_version(about, found),
        None => Finding::sound(about, found),
    }
}

fn without_version(about: String, found: String) -> Finding {
    let help = "run hbase version on its machine: 2.6 or later is needed".to_owned();
    Finding { about, verdict: Verdict::Unknown, found, help: Some(help) }
}

/// Judges the longest life of a request.
fn of_life(address: &HbaseAddress) -> Finding {
    let (about, life) = ("life of a request", address.request_life_max());
    let found = format!("{} s at most, by the address", life.as_secs());
    if life <= REQUEST_LIFE_MAX {
        return Finding::sound(about, found);
    }
    let help = format!(
        "no client opens such a store: twice the deadline, the session and twice busy may be \
         {} s together; lower them in the address, and the servers' settings with them",
        REQUEST_LIFE_MAX.as_secs()
    );
    Finding::wrong(about, found, help)
}

fn unread(server: &HbaseServer, error: &bigtable::Error) -> Finding {
    let bounds = BOUNDS.iter().map(|bound| bound.name);
    let names: Vec<&str> = bounds.chain([WAL_SYNC, WAL_PROVIDER]).collect();
    let help = format!("look into its hbase-site.xml for {}", names.join(", "));
    Finding {
        about: format!("settings of {}", server.address),
        verdict: Verdict::Unknown,
        found: error.to_string(),
        help: Some(help),
    }
}

/// Judges the settings of one region server.
fn of_server(
    server: &HbaseServer,
    settings: &BTreeMap<String, String>,
    address: &HbaseAddress,
) -> Vec<Finding> {
    let about = |name: &str| format!("{name} of {}", server.address);
    let value = |name: &str| settings.get(name).map(String::as_str);
    let mut findings = Vec::new();
    // The address with all options that are advised so far.
    let mut advised = address.clone();
    for Bound { name, default_ms, option, of } in &BOUNDS {
        let named_ms = of(&mut advised).as_millis() as u64;
        let Some(set_ms) = value(name).map_or(Some(*default_ms), |set| set.parse().ok()) else {
            let found = format!("{:?} is no number of milliseconds", value(name).unwrap_or(""));
            findings.push(Finding::wrong(about(name), found, "give it in milliseconds"));
            continue;
        };
        let found = format!("{set_ms} ms, and the address says {named_ms} ms");
        findings.push(if set_ms <= named_ms {
            Finding::sound(about(name), found)
        } else {
            let seconds = set_ms.div_ceil(1_000);
            let mut longer = advised.clone();
            *of(&mut longer) = Duration::from_secs(seconds);
            let mut help = format!(
                "garbage collection may overtake a request: set it to {named_ms} in \
                 hbase-site.xml and restart the server"
            );
            // With a longer life, no client would open the store.
            if longer.request_life_max() <= REQUEST_LIFE_MAX {
                help += &format!(", or give {option}={seconds}s in the address");
                advised = longer;
            }
            Finding::wrong(about(name), found, help)
        });
    }
    findings.extend(of_log(about, value));
    let root = value("hbase.rootdir").unwrap_or_default();
    findings.push(if root.starts_with("hdfs://") {
        Finding::sound(about("hbase.rootdir"), root)
    } else {
        let help = "keep HBase on HDFS: other file systems do not fence a server that stands still";
        Finding::wrong(about("hbase.rootdir"), root, help)
    });
    if value("hbase.unsafe.stream.capability.enforce") == Some("false") {
        let name = "hbase.unsafe.stream.capability.enforce";
        let help = "remove it from hbase-site.xml: the end of a server loses acknowledged writes";
        findings.push(Finding::wrong(about(name), "false", help));
    }
    let advice = |name, found, help| advice(about(name), found, help);
    findings.push(if value("hbase.wal.hsync") == Some("true") {
        Finding::sound(about("hbase.wal.hsync"), "true")
    } else {
        let help = "set it to true in hbase-site.xml: a power cut of all data nodes loses \
                    acknowledged commits";
        advice("hbase.wal.hsync", "false", help)
    });
    if value("hbase.hregion.majorcompaction") == Some("0") {
        let help = "have the tables compacted every week: without it, deleted cells stay for ever";
        findings.push(advice("hbase.hregion.majorcompaction", "0", help));
    }
    findings
}

fn advice(about: String, found: &str, help: &str) -> Finding {
    let sound = Finding::sound(about, found);
    Finding { verdict: Verdict::Advice, help: Some(help.to_owned()), ..sound }
}

/// Judges the settings of a server's log. A request holds its row until its change is in the log.
/// If the server gives this wait up, the next request sees the row as it was before. Both changes
/// may then be in the log.
fn of_log<'a>(
    about: impl Fn(&str) -> String,
    value: impl Fn(&str) -> Option<&'a str>,
) -> [Finding; 2] {
    let set = value(WAL_SYNC).or(value(WAL_SYNC_OLD));
    let sync = match set.map_or(Ok(WAL_SYNC_DEFAULT_MS), str::parse) {
        Ok(ms) if ms >= WAL_SYNC_MIN_MS => Finding::sound(about(WAL_SYNC), format!("{ms} ms")),
        Ok(ms) => {
            let help = "an update may be lost if HDFS stalls for longer: set it to 2147483647 in \
                        hbase-site.xml and restart the server";
            Finding::wrong(about(WAL_SYNC), format!("{ms} ms"), help)
        }
        Err(_) => {
            let found = format!("{:?} is no number of milliseconds", set.unwrap_or_default());
            Finding::wrong(about(WAL_SYNC), found, "give it in milliseconds")
        }
    };
    let asyncfs = "set it to asyncfs in hbase-site.xml and restart the server";
    let kind = match value(WAL_PROVIDER).unwrap_or("defaultProvider") {
        ASYNC_LOG => Finding::sound(about(WAL_PROVIDER), ASYNC_LOG),
        "multiwal" if value("hbase.wal.regiongrouping.delegate.provider") == Some(ASYNC_LOG) => {
            Finding::sound(about(WAL_PROVIDER), "multiwal over asyncfs")
        }
        unsure @ ("defaultProvider" | "multiwal") => {
            let help = format!(
                "HBase falls back to a log that can lose an update, if it cannot load asyncfs: {asyncfs}"
            );
            advice(about(WAL_PROVIDER), unsure, &help)
        }
        other => {
            let help = format!("an update may be lost if a sync of the log fails: {asyncfs}");
            Finding::wrong(about(WAL_PROVIDER), other, help)
        }
    };
    [sync, kind]
}

/// Judges the description of a table, by its name in HBase's shell.
fn of_table(id: &str, table: &TableSchema) -> Finding {
    let about = format!("table {id}");
    if let Some((what, help)) = lost_cells(id, table) {
        return Finding::wrong(about, what, help);
    }
    let copies = table.attributes.iter().find(|pair| pair.first == b"REGION_REPLICATION"[..]);
    if copies.is_some_and(|pair| pair.second != b"1"[..]) {
        let help = format!("run in HBase's shell alter '{id}', {{REGION_REPLICATION => 1}}");
        return Finding::wrong(about, "it has replicas of regions, which lag behind", help);
    }
    let replicated = table.column_families.iter().find(|of| {
        let scope = of.attributes.iter().find(|pair| pair.first == b"REPLICATION_SCOPE"[..]);
        scope.is_some_and(|pair| pair.second != b"0"[..])
    });
    if let Some(of) = replicated {
        let family = String::from_utf8_lossy(&of.name);
        let found = format!("family {family} is replicated to another cluster");
        let help = format!(
            "the copy does not keep what versions need: run in HBase's shell alter '{id}', \
             {{NAME => '{family}', REPLICATION_SCOPE => '0'}}"
        );
        return Finding {
            verdict: Verdict::Advice,
            help: Some(help),
            ..Finding::sound(about, found)
        };
    }
    Finding::sound(about, format!("{} families keep all cells", table.column_families.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(settings: &[(&str, &str)]) -> BTreeMap<String, (Verdict, String)> {
        let server = HbaseServer {
            address: "h:1".to_owned(),
            start_code: 1,
            info_address: None,
            regions: 0,
            has_meta: false,
        };
        let address = "hbase://h:1/n?session=40s".parse().expect("an address");
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let findings = of_server(&server, &settings.iter().map(own).collect(), &address);
        let judged = findings.into_iter().map(|finding| {
            let name = finding.about.replace(" of h:1", "");
            (name, (finding.verdict, finding.help.unwrap_or_default()))
        });
        judged.collect()
    }

    #[test]
    fn a_region_server_of_an_old_version_is_wrong() {
        let old = of_version("HBase of h:1".to_owned(), "2.5.11-hadoop3");
        assert_eq!(old.verdict, Verdict::Wrong);
        assert!(old.help.is_some_and(|help| help.contains("upgrade to 2.6 or later")));
        let sound = of_version("HBase of h:1".to_owned(), "2.6.1-hadoop3");
        assert_eq!((sound.verdict, &sound.found[..]), (Verdict::Sound, "version 2.6.1-hadoop3"));
        let unreadable = of_version("HBase of h:1".to_owned(), "Unknown");
        assert_eq!(unreadable.verdict, Verdict::Unknown);
    }

    #[test]
    fn settings_that_are_longer_than_the_address_says_are_wrong() {
        let defaults = judged(&[]);
        for bound in BOUNDS {
            let (verdict, help) = &defaults[bound.name];
            assert_eq!(*verdict, Verdict::Wrong, "{}", bound.name);
            assert!(help.contains(" in hbase-site.xml"), "{help}");
        }
        assert_eq!(defaults["hbase.rootdir"].0, Verdict::Wrong);
        assert_eq!(defaults["hbase.wal.hsync"].0, Verdict::Advice);
        let sound = judged(&[
            ("zookeeper.session.timeout", "40000"),
            ("hbase.busy.wait.duration", "10000"),
            (WAL_SYNC, "2147483647"),
            (WAL_PROVIDER, "asyncfs"),
            ("hbase.rootdir", "hdfs://h/hbase"),
            ("hbase.wal.hsync", "true"),
        ]);
        assert!(sound.values().all(|(verdict, _)| *verdict == Verdict::Sound), "{sound:?}");
        let unsafe_streams = judged(&[("hbase.unsafe.stream.capability.enforce", "false")]);
        let verdict = unsafe_streams["hbase.unsafe.stream.capability.enforce"].0;
        assert_eq!(verdict, Verdict::Wrong);
    }

    #[test]
    fn h76_a_log_that_may_give_a_sync_up_is_wrong() {
        let defaults = judged(&[]);
        let (verdict, help) = &defaults[WAL_SYNC];
        assert_eq!(*verdict, Verdict::Wrong);
        assert!(help.contains("an update may be lost") && help.contains("to 2147483647"), "{help}");
        assert_eq!(defaults[WAL_PROVIDER].0, Verdict::Advice);
        for (name, value, verdict) in [
            (WAL_SYNC, "5000", Verdict::Wrong),
            (WAL_SYNC, "86399999", Verdict::Wrong),
            (WAL_SYNC, "86400000", Verdict::Sound),
            (WAL_SYNC, "for ever", Verdict::Wrong),
            (WAL_PROVIDER, "filesystem", Verdict::Wrong),
            (WAL_PROVIDER, "multiwal", Verdict::Advice),
        ] {
            assert_eq!(judged(&[(name, value)])[name].0, verdict, "{name}={value}");
        }
        assert_eq!(judged(&[(WAL_SYNC_OLD, "2147483647")])[WAL_SYNC].0, Verdict::Sound);
        let delegate = ("hbase.wal.regiongrouping.delegate.provider", "asyncfs");
        let several = judged(&[(WAL_PROVIDER, "multiwal"), delegate]);
        assert_eq!(several[WAL_PROVIDER].0, Verdict::Sound);
    }

    #[test]
    fn an_option_is_advised_only_if_the_life_of_a_request_stays_short_enough() {
        let longer = judged(&[
            ("zookeeper.session.timeout", "60000"),
            // With the session, it would be 160 s.
            ("hbase.busy.wait.duration", "40000"),
        ]);
        for (name, advice) in
            [("zookeeper.session.timeout", Some("session=60s")), ("hbase.busy.wait.duration", None)]
        {
            let (verdict, help) = &longer[name];
            assert_eq!(*verdict, Verdict::Wrong, "{name}");
            assert_eq!(help.contains("in the address"), advice.is_some(), "{help}");
            assert!(help.contains(advice.unwrap_or_default()), "{help}");
        }
        let of = |text: &str| of_life(&text.parse().expect("an address"));
        assert_eq!(of("hbase://h:1/n?session=60s&busy=15s").verdict, Verdict::Sound);
        let too_long = of("hbase://h:1/n?session=90s&busy=60s");
        assert_eq!(too_long.verdict, Verdict::Wrong);
        assert!(too_long.help.is_some_and(|help| help.contains("150 s together")));
    }
}

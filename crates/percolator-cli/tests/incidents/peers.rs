//! Tests what servers log of peers that they refuse, and the errors that those peers get.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_net::Role;

use crate::authority::Authority;
use crate::cast::{Process, Ran, run};

/// How soon a command hears of a refusal. A client that repeats its request takes ten seconds.
const SOON: Duration = Duration::from_secs(8);

/// The certificates of a cluster, in files.
struct Certificates {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Self {
        let certificates =
            Certificates { dir: tempfile::tempdir().unwrap(), authority: Authority::new() };
        std::fs::write(certificates.path("authority"), certificates.authority.pem()).unwrap();
        certificates
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the files of one holder, over those that are there.
    fn put(&self, holder: &str, role: Role, last_year: i32) {
        self.put_of(&self.authority, holder, role, last_year);
    }

    fn put_of(&self, authority: &Authority, holder: &str, role: Role, last_year: i32) {
        let (certificate, key) = authority.issue(&[role.name()], last_year);
        std::fs::write(self.path(&format!("{holder}.pem")), certificate).unwrap();
        std::fs::write(self.path(&format!("{holder}.key")), key).unwrap();
    }

    fn options(&self, holder: &str) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        [
            ["--tls-authority", &path("authority")],
            ["--tls-certificate", &path(&format!("{holder}.pem"))],
            ["--tls-key", &path(&format!("{holder}.key"))],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    fn table(&self, dir: &Path, more: &[&str]) -> Process {
        let options = self.options("table");
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Process::table(dir, &[&options[..], more].concat())
    }

    fn oracle(&self, table: &Process) -> Process {
        let options = self.options("oracle");
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Process::oracle(&format!("bigtable://{}/p/i", table.address), &options)
    }

    /// Runs a command against a table server and an oracle, with the certificate of a holder.
    fn command(&self, table: &str, oracle: &str, holder: &str) -> Ran {
        let path = |name: &str| self.path(name).display().to_string();
        let settings = format!(
            "store = \"bigtable://{table}/p/i\"\noracles = [\"{oracle}\"]\n[tls]\n\
             authority = {:?}\ncertificate = {:?}\nkey = {:?}\n",
            path("authority"),
            path(&format!("{holder}.pem")),
            path(&format!("{holder}.key")),
        );
        let file = self.path("percolator.toml");
        std::fs::write(&file, settings).unwrap();
        run(&["set", "Bob", "bal", "10", "--config", file.to_str().unwrap()])
    }
}

/// Asserts that a command heard of the refusal soon, with its reason and a fitting next step.
#[track_caller]
fn assert_refused(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.status, 4, "{ran:?}");
    assert!(ran.took < SOON, "{ran:?}");
    assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{}", ran.stderr);
    assert!(ran.stderr.contains("until that certificate or permission is changed"), "{ran:?}");
    assert!(!ran.stderr.contains("run the command again"), "{ran:?}");
}

#[test]
fn refused_certificates_are_named_to_the_client_and_in_the_servers_log() {
    let (dir, certificates) = (tempfile::tempdir().unwrap(), Certificates::new());
    certificates.put("table", Role::Table, 2090);
    certificates.put("oracle", Role::Oracle, 2090);
    certificates.put("client", Role::Client, 2090);
    certificates.put("expired", Role::Client, 2020);
    certificates.put_of(&Authority::new(), "foreign", Role::Client, 2090);
    let table = certificates.table(dir.path(), &[]);
    let oracle = certificates.oracle(&table);
    oracle.wait_for("oracle_leads");
    let command = |holder: &str| certificates.command(&table.address, &oracle.address, holder);
    let served = command("client");
    assert_eq!(served.status, 0, "{served:?}");

    let expired = "this client's certificate (CN=client.percolator.internal) expired on 2020-12-31";
    assert_refused(&command("expired"), &[expired, "put a renewed certificate in its place"]);
    assert_refused(&command("foreign"), &["is not signed by an authority that the table server"]);
    assert_refused(&command("table"), &["does not name client.percolator.internal"]);
    // A table server takes an oracle for a client, and an oracle does not.
    let names = "this client's certificate (CN=oracle.percolator.internal) names oracle";
    assert_refused(&command("oracle"), &[names, "does not name client.percolator.internal"]);
    assert!(oracle.log().contains("reason=\"wrong_role\""), "{}", oracle.log());

    oracle.end("-TERM", 0);
    let log = table.end("-TERM", 0);
    for (reason, what) in [
        ("certificate_expired", "(CN=client.percolator.internal) expired on 2020-12-31"),
        ("foreign_authority", "another authority has signed its certificate (CN=client"),
        ("wrong_role", "names table.percolator.internal, and does not name client"),
    ] {
        let reason = format!("reason=\"{reason}\"");
        let line =
            log.lines().find(|line| line.contains(&reason)).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(what) && line.contains("WARN"), "{line}");
        assert!(line.contains("refused 127.0.0.1:"), "{line}");
    }
}

#[test]
fn a_server_reads_renewed_certificates_and_keeps_the_earlier_ones_if_they_are_bad() {
    let (dir, certificates) = (tempfile::tempdir().unwrap(), Certificates::new());
    certificates.put("table", Role::Table, 2020);
    certificates.put("oracle", Role::Oracle, 2090);
    certificates.put("client", Role::Client, 2090);
    let table = certificates.table(dir.path(), &[]);
    assert_eq!(table.count("certificate_expired"), 1, "{}", table.log());
    let command = || certificates.command(&table.address, "127.0.0.1:1", "client");
    let shown = "the certificate (CN=table.percolator.internal) of the table server at 127.0.0.1:";
    assert_refused(&command(), &[shown, "expired on 2020-12-31"]);
    table.wait_for("refused");
    assert!(table.log().contains("reason=\"server_not_trusted\""), "{}", table.log());

    // On the signal, and without it before the next connection.
    certificates.put("table", Role::Table, 2091);
    table.signal("-HUP");
    table.wait_for("certificates_renewed");
    let oracle = certificates.oracle(&table);
    oracle.wait_for("oracle_leads");
    std::fs::write(certificates.path("table.key"), "rubbish").unwrap();
    table.signal("-HUP");
    table.wait_for("certificates_not_renewed");
    let served = certificates.command(&table.address, &oracle.address, "client");
    assert_eq!(served.status, 0, "{served:?}");
    certificates.put("table", Role::Table, 2092);
    crate::cast::wait_until("the server uses the renewed files", || {
        let served = certificates.command(&table.address, &oracle.address, "client");
        assert_eq!(served.status, 0, "{served:?}");
        table.count("certificates_renewed") == 2
    });
    oracle.end("-TERM", 0);
    let log = table.end("-TERM", 0);
    assert!(
        log.lines().any(|line| line.contains("ERROR") && line.contains("the key is not in PEM"))
    );
}

/// Opens a connection, sends a few bytes, and waits for the end of the connection.
fn knock(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_flood_of_refusals_costs_few_lines_and_is_counted() {
    let (dir, certificates) = (tempfile::tempdir().unwrap(), Certificates::new());
    certificates.put("table", Role::Table, 2090);
    let table = certificates.table(dir.path(), &["--log-format", "json"]);
    for _ in 0..300 {
        knock(&table.address, b"GET / HTTP/1.1\r\n\r\n");
    }
    let counted = || -> u64 {
        let refused = table.events().into_iter().filter(|event| event["event"] == "refused");
        refused
            .map(|event| {
                assert_eq!(event["reason"], "plain_text", "{event}");
                let is_itself = event["message"].as_str().unwrap().starts_with("refused ");
                event["unlogged"].as_u64().unwrap() + u64::from(is_itself)
            })
            .sum()
    };
    crate::cast::wait_until("every refusal is counted", || counted() == 300);
    assert!(table.count("refused") <= 6, "{}", table.log());
    table.end("-TERM", 0);

    let plain = Process::table(dir.path(), &["--connections-max", "3"]);
    let held: Vec<_> = (0..3).map(|_| TcpStream::connect(&plain.address).unwrap()).collect();
    knock(&plain.address, b"");
    plain.wait_for("refused");
    let log = plain.log();
    assert!(log.contains("all 3 connections of the server are in use"), "{log}");
    drop(held);
    plain.end("-TERM", 0);
}

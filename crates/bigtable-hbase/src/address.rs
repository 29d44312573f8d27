//! Parses addresses of HBase clusters:
//! `hbase://h1:16000,h2:16000/namespace?user=..&deadline=10s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bigtable::Error;

/// The servers of an HBase cluster, and the settings of these servers.
///
/// The options after `?`. The durations are in whole seconds:
///
/// | option | means | default |
/// |---|---|---|
/// | `user` | the name by which HBase knows this client | `percolator` |
/// | `tls` | whether connections have mutual TLS, `true` or `false` | `false` |
/// | `deadline` | longest time for which a request is tried | `10s` |
/// | `session` | the servers' `zookeeper.session.timeout` | `40s` |
/// | `busy` | their `hbase.busy.wait.duration` | `10s` |
///
/// The last two must be at least the servers' settings. A client cannot query these, and
/// garbage collection waits until the servers decide on no earlier request any more.
///
/// ```
/// use std::time::Duration;
/// use bigtable_hbase::HbaseAddress;
/// let address: HbaseAddress = "hbase://h1:16000,h2:16000/shop?session=6s".parse()?;
/// assert_eq!(address.namespace, "shop");
/// assert_eq!(address.request_life_max(), Duration::from_secs(2 * 10 + 6 + 2 * 10));
/// assert_eq!(address.to_string(), "hbase://h1:16000,h2:16000/shop?session=6s");
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaseAddress {
    /// The addresses of masters or region servers, as `host:port`.
    pub servers: Vec<String>,
    /// The namespace of all tables.
    pub namespace: String,
    /// The name by which HBase knows this client.
    pub user: String,
    /// Whether connections have mutual TLS.
    pub tls: bool,
    /// Longest time for which a request is tried.
    pub deadline: Duration,
    /// The servers' `zookeeper.session.timeout`.
    pub session: Duration,
    /// The servers' `hbase.busy.wait.duration`.
    pub busy: Duration,
}

/// The prefix of every address.
const SCHEME: &str = "hbase://";
/// The options' defaults.
const USER: &str = "percolator";
const DEADLINE: Duration = Duration::from_secs(10);
const SESSION: Duration = Duration::from_secs(40);
const BUSY: Duration = Duration::from_secs(10);
/// The fault of an address with the option of earlier versions.
const WAL_SYNC_IS_GONE: &str = "there is no option wal_sync any more (remove it, and set \
     hbase.regionserver.wal.sync.timeout to 2147483647 in the hbase-site.xml of all region servers)";
/// Time beyond its session until a dead server's log is split and others have its regions.
const TAKE_OVER: Duration = Duration::from_secs(60);

impl HbaseAddress {
    /// The longest life of a request: from its creation until a server evaluates its condition,
    /// or until no server ever will. The bound holds for three reasons. A server does not begin
    /// a request whose time is over, and none waits for a row beyond it. A server that stands
    /// still for longer than its session is fenced off. The region's lock, taken twice, has a
    /// bound of its own.
    ///
    /// The wait for the sync of the log has no bound, and is no part of the life. The request
    /// holds its row's exclusive lock from before its condition is evaluated, so nothing in the
    /// row changes meanwhile.
    pub fn request_life_max(&self) -> Duration {
        2 * self.deadline + self.session + 2 * self.busy
    }

    /// The time after which other region servers usually serve the regions of one that ended: its
    /// session, and a minute to split its log. HBase gives no bound for the latter.
    pub fn outage_max(&self) -> Duration {
        self.session + TAKE_OVER
    }
}

impl fmt::Display for HbaseAddress {
    /// Writes the address, with the options that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.servers.join(","), self.namespace)?;
        let mut mark = '?';
        if self.user != USER {
            write!(f, "{mark}user={}", self.user)?;
            mark = '&';
        }
        if self.tls {
            write!(f, "{mark}tls=true")?;
            mark = '&';
        }
        for (name, value, default) in [
            ("deadline", self.deadline, DEADLINE),
            ("session", self.session, SESSION),
            ("busy", self.busy, BUSY),
        ] {
            if value != default {
                write!(f, "{mark}{name}={}s", value.as_secs())?;
                mark = '&';
            }
        }
        Ok(())
    }
}

impl FromStr for HbaseAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            Error::invalid(format!(
                "{text:?} is not the address of an HBase cluster, {what}: give \
                 hbase://HOST:PORT,HOST:PORT/NAMESPACE"
            ))
        };
        let rest =
            text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with hbase://"))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, namespace) =
            place.split_once('/').ok_or_else(|| wrong("it has no namespace"))?;
        let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        let sound = |server: &String| {
            let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        };
        if !servers.iter().all(sound) {
            return Err(wrong("a server is not of the form HOST:PORT"));
        }
        let named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if namespace.is_empty() || !namespace.bytes().all(named) {
            return Err(wrong(
                "the namespace is empty, or has a character other than letters, digits and _",
            ));
        }
        let in_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let seconds = Duration::from_secs;
        let mut address = HbaseAddress {
            servers,
            namespace: namespace.to_owned(),
            user: USER.to_owned(),
            tls: false,
            deadline: DEADLINE,
            session: SESSION,
            busy: BUSY,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let duration = || {
                let number = value.strip_suffix('s').and_then(|number| number.parse().ok());
                let number = number.filter(|number| (1..=3_600).contains(number));
                number.map(seconds).ok_or_else(|| {
                    wrong(&format!("{name} is {value:?} and not a duration such as 10s"))
                })
            };
            match name {
                "user" if value.bytes().all(in_user) && !value.is_empty() => {
                    address.user = value.to_owned();
                }
                "user" => {
                    return Err(wrong(
                        "the user is empty, or has a character other than letters, digits and -._",
                    ));
                }
                "tls" => {
                    address.tls = value.parse().map_err(|_| {
                        wrong(&format!("tls is {value:?} and neither true nor false"))
                    })?;
                }
                "deadline" => address.deadline = duration()?,
                "session" => address.session = duration()?,
                "busy" => address.busy = duration()?,
                "wal_sync" => return Err(wrong(WAL_SYNC_IS_GONE)),
                _ => return Err(wrong(&format!("there is no option {name}"))),
            }
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        let why = |text: &str| text.parse::<HbaseAddress>().unwrap_err().to_string();
        assert!(why("bigtable://h:1/n").contains("does not begin with hbase://"));
        assert!(why("hbase://h:1").contains("no namespace"));
        assert!(why("hbase://h/n").contains("HOST:PORT"));
        assert!(why("hbase://h:1/n n").contains("letters"));
        assert!(why("hbase://h:1/n?deadline=10").contains("such as 10s"));
        assert!(why("hbase://h:1/n?colour=red").contains("no option colour"));
        let gone = why("hbase://h:1/n?wal_sync=5s");
        assert!(gone.contains("remove it") && gone.contains("to 2147483647"), "{gone}");
        assert!(why("hbase://h:1/n?user=a/b").contains("the user"));
        assert!(why("hbase://h:1/n?tls=yes").contains("neither true nor false"));
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in [
            "hbase://h1:16000,h2:16000/shop",
            "hbase://h:1/n?user=me&session=6s",
            "hbase://h:1/n?user=me&tls=true&session=6s",
            "hbase://h:1/n?tls=true",
            "hbase://h:1/n?deadline=2s&busy=2s",
        ] {
            assert_eq!(text.parse::<HbaseAddress>().unwrap().to_string(), text);
        }
    }
}

//! Parses the address of a store: `bigtable://HOST:PORT/PROJECT/INSTANCE`, or
//! `bigtable://PROJECT/INSTANCE` for Cloud Bigtable.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use bigtable::Error;

const FORM: &str = "bigtable://PROJECT/INSTANCE (Cloud Bigtable) or \
                    bigtable://HOST:PORT/PROJECT/INSTANCE, with ?app_profile=NAME if need be";
/// Environment variable with the host and port of a server without encryption and access
/// control.
const EMULATOR: &str = "BIGTABLE_EMULATOR_HOST";
/// Longest part of an address, in bytes.
const PART_BYTES_MAX: usize = 256;

/// The address of an instance on a server of google.bigtable.v2.
///
/// ```
/// use bigtable_grpc::Address;
/// let address: Address = "bigtable://127.0.0.1:8086/project/instance".parse()?;
/// assert_eq!(address.to_string(), "bigtable://127.0.0.1:8086/project/instance");
/// // Cloud Bigtable, with an application profile.
/// let address: Address = "bigtable://project/instance?app_profile=batch".parse()?;
/// assert_eq!(address.to_string(), "bigtable://project/instance?app_profile=batch");
/// assert!("bigtable://127.0.0.1:8086/project".parse::<Address>().is_err());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    place: Place,
    project: String,
    instance: String,
    app_profile: Option<String>,
}

/// The server that an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Cloud Bigtable.
    Cloud,
    /// The server that the address names.
    Server(String),
    /// The server that the environment names.
    Emulator(String),
}

impl Address {
    /// Parses an address, and lets the environment redirect it.
    ///
    /// An address without host and port, `bigtable://PROJECT/INSTANCE`, means the server that
    /// `BIGTABLE_EMULATOR_HOST` names, if that variable is set. The client then uses plain
    /// text, even to another machine, as Google's clients do: to set the variable is to allow
    /// it.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] says what is wrong with the text.
    pub fn from_env(text: &str) -> Result<Self, Error> {
        Address::parse(text, std::env::var(EMULATOR).ok().as_deref())
    }

    fn parse(text: &str, emulator: Option<&str>) -> Result<Self, Error> {
        let shown: String = text.chars().take(PART_BYTES_MAX).collect();
        let wrong = |why: &str| Error::invalid(format!("{shown:?} {why}: give {FORM}"));
        let no_form = || wrong("is not the address of a Bigtable instance");
        let rest = text.strip_prefix("bigtable://").ok_or_else(no_form)?;
        let (path, query) = rest.split_once('?').map_or((rest, None), |(p, q)| (p, Some(q)));
        let app_profile = match query.map(|query| query.strip_prefix("app_profile=")) {
            None => None,
            Some(Some(name)) if is_profile(name) => Some(name.to_owned()),
            Some(_) => return Err(wrong("has a query that is not ?app_profile=NAME")),
        };
        let parts: Vec<_> = path.split('/').collect();
        let (place, project, instance) = match (&parts[..], emulator) {
            ([host, project, instance], _) => {
                (Place::Server(authority(host).ok_or_else(no_form)?), *project, *instance)
            }
            ([project, instance], Some(host)) => {
                let bad = || Error::invalid(format!("{EMULATOR} is {host:?}: give HOST:PORT"));
                (Place::Emulator(authority(host).ok_or_else(bad)?), *project, *instance)
            }
            ([project, instance], None) => (Place::Cloud, *project, *instance),
            _ => return Err(no_form()),
        };
        if authority(project).is_some() {
            return Err(wrong("names host, port and project, but no instance"));
        }
        if !is_name(project) || !is_name(instance) {
            return Err(no_form());
        }
        let [project, instance] = [project, instance].map(str::to_owned);
        Ok(Address { place, project, instance, app_profile })
    }

    /// The server that this address means.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// True if the address is a loopback address, so that the connection stays on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let (Place::Server(authority) | Place::Emulator(authority)) = &self.place else {
            return false;
        };
        let host = authority.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The instance's name in the API.
    pub(crate) fn instance(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }

    /// The application profile that the address names.
    pub(crate) fn app_profile(&self) -> Option<&str> {
        self.app_profile.as_deref()
    }
}

/// Returns the text if it is a host and a port.
fn authority(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let right = match bracketed {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host) && !host.contains(':'),
    };
    (right && port > 0).then(|| text.to_owned())
}

fn is_name(part: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    (1..=PART_BYTES_MAX).contains(&part.len()) && part.bytes().all(plain)
}

fn is_profile(name: &str) -> bool {
    is_name(name) && !name.contains(':')
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Address::parse(text, None)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bigtable://")?;
        if let Place::Server(authority) | Place::Emulator(authority) = &self.place {
            write!(f, "{authority}/")?;
        }
        write!(f, "{}/{}", self.project, self.instance)?;
        match &self.app_profile {
            Some(name) => write!(f, "?app_profile={name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_host_port_project_and_instance() {
        let address = Address::parse("bigtable://p/i", Some("localhost:1")).unwrap();
        assert_eq!(*address.place(), Place::Emulator("localhost:1".to_owned()));
        assert_eq!(address.to_string(), "bigtable://localhost:1/p/i");
        assert_eq!(address.instance(), "projects/p/instances/i");
        for (text, loopback) in [
            ("bigtable://[::1]:8086/p/i", true),
            ("bigtable://127.0.0.9:8086/p/i", true),
            ("bigtable://localhost:8086/p/i?app_profile=a-b_c.d", true),
            ("bigtable://10.0.0.1:8086/p/i", false),
            ("bigtable://localhost.example.com:8086/p/i", false),
            ("bigtable://example.com:p/i", false),
            ("bigtable://p/i?app_profile=one", false),
        ] {
            let address = Address::parse(text, None).unwrap();
            assert_eq!((address.to_string().as_str(), address.is_loopback()), (text, loopback));
        }
        let cloud = Address::parse("bigtable://example.com:p/i?app_profile=one", None).unwrap();
        assert_eq!((cloud.place(), cloud.app_profile()), (&Place::Cloud, Some("one")));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("bigtable://p/{}", "i".repeat(300));
        for bad in [
            "",
            "p/i",
            "bigtable://",
            "bigtable://p",
            "bigtable://h:1/p",
            "bigtable://[::1]:1/p",
            "bigtable://h/p/i",
            "bigtable://h:x/p/i",
            "bigtable://h:0/p/i",
            "bigtable://h:1/p/i/t",
            "bigtable://h:1//i",
            "bigtable://user@h:1/p/i",
            "bigtable://h:1/p/i?x",
            "bigtable://h:1/p/i?app_profile=",
            "bigtable://h:1/p/i?app_profile=a&b=c",
            "bigtable://p/i\n",
            &long,
        ] {
            let error = Address::parse(bad, None).unwrap_err().to_string();
            assert!(error.contains("bigtable://PROJECT/INSTANCE"), "{error}");
        }
        let error = Address::parse("bigtable://p/i", Some("nowhere")).unwrap_err().to_string();
        assert!(error.contains("BIGTABLE_EMULATOR_HOST"), "{error}");
    }
}

//! Where a store is: `bigtable://HOST:PORT/PROJECT/INSTANCE`.

use std::fmt;
use std::str::FromStr;

use bigtable::Error;

const FORM: &str = "bigtable://HOST:PORT/PROJECT/INSTANCE";
/// Names the host and port of a server without encryption and access control.
const EMULATOR: &str = "BIGTABLE_EMULATOR_HOST";

/// The address of an instance on a server of google.bigtable.v2.
///
/// ```
/// use bigtable_grpc::Address;
/// let address: Address = "bigtable://127.0.0.1:8086/project/instance".parse()?;
/// assert_eq!(address.to_string(), "bigtable://127.0.0.1:8086/project/instance");
/// assert!("bigtable://127.0.0.1:8086/project".parse::<Address>().is_err());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    authority: String,
    project: String,
    instance: String,
}

impl Address {
    /// As parsing does, and an address without host and port, `bigtable://PROJECT/INSTANCE`, is at
    /// the one that `BIGTABLE_EMULATOR_HOST` names.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] says what is wrong with the text.
    pub fn from_env(text: &str) -> Result<Self, Error> {
        Address::parse(text, std::env::var(EMULATOR).ok().as_deref())
    }

    fn parse(text: &str, emulator: Option<&str>) -> Result<Self, Error> {
        let wrong = || Error::invalid(format!("{text:?} is not of the form {FORM}"));
        let rest = text.strip_prefix("bigtable://").ok_or_else(wrong)?;
        let parts: Vec<_> = rest.split('/').collect();
        let (authority, project, instance) = match (&parts[..], emulator) {
            ([authority, project, instance], _) => (*authority, *project, *instance),
            ([project, instance], Some(authority)) => (authority, *project, *instance),
            ([_, _], None) => {
                return Err(Error::invalid(format!(
                    "{text:?} names no host and port, and {EMULATOR} is not set: Cloud Bigtable \
                     itself cannot be used yet; give {FORM}"
                )));
            }
            _ => return Err(wrong()),
        };
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let named = |part: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
            !part.is_empty() && part.bytes().all(plain)
        };
        if port.is_none() || !named(project) || !named(instance) {
            return Err(wrong());
        }
        let [authority, project, instance] = [authority, project, instance].map(str::to_owned);
        Ok(Address { authority, project, instance })
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The instance's name in the API.
    pub(crate) fn instance(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Address::parse(text, None)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bigtable://{}/{}/{}", self.authority, self.project, self.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_host_port_project_and_instance() {
        let address = Address::parse("bigtable://p/i", Some("localhost:1")).unwrap();
        assert_eq!(address.to_string(), "bigtable://localhost:1/p/i");
        assert_eq!(address.instance(), "projects/p/instances/i");
        assert!(Address::parse("bigtable://[::1]:8086/p/i", None).is_ok());
        for bad in [
            "",
            "p/i",
            "bigtable://",
            "bigtable://h:1/p",
            "bigtable://h/p/i",
            "bigtable://h:x/p/i",
            "bigtable://h:1/p/i/t",
            "bigtable://h:1//i",
            "bigtable://h:1/p/i?x",
        ] {
            assert!(Address::parse(bad, None).is_err(), "{bad}");
        }
    }
}

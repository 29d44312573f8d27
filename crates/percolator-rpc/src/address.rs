//! Parses the address of a service: host and port.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Longest name of a host, in bytes (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

/// A host and a port: `localhost:7070`, `10.0.0.1:7070`, `[::1]:7070`.
///
/// ```
/// use percolator_rpc::Address;
/// let address: Address = "[::1]:7070".parse()?;
/// assert_eq!((address.host(), address.port()), ("::1", 7070));
/// assert_eq!(address.to_string(), "[::1]:7070");
/// assert!("localhost".parse::<Address>().is_err());
/// # Ok::<(), percolator_rpc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The host: a name or an IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            let what = format!("{:?} is not an address", truncated(text));
            Error::settings(what, "give host:port, such as 10.0.0.1:7070 or [::1]:7070")
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().map_err(|_| bad())?.to_string(),
            None => host.to_owned(),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
        let named = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(plain);
        if bracketed.is_none() && !named {
            return Err(bad());
        }
        Ok(Address { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Self {
        Address { host: address.ip().to_string(), port: address.port() }
    }
}

/// The first 80 characters of a text.
fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("{}:1", "a".repeat(254));
        let bad = ["", ":", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "[::1]", "[x]:1", "::1:1"];
        for bad in bad.into_iter().chain(["a/b:1", "a b:1", "user@a:1", "http://a:1", &long]) {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_round_trip() {
        for text in ["localhost:1", "10.0.0.1:65535", "[::1]:7070", "a-b.c_d:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }
}

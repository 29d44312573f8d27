//! The id of a store, by which its clients notice that it was replaced.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Identifies a store for as long as its history goes on. A store that was restored from a backup
/// has another id than the one that was backed up, because its history went back.
///
/// ```
/// use bigtable::StoreId;
/// let id = StoreId::new(0xfeed);
/// assert_eq!(id.to_string(), "0000000000000000000000000000feed");
/// assert_eq!(id.to_string().parse::<StoreId>()?, id);
/// assert!("feed".parse::<StoreId>().is_err());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreId(u128);

impl StoreId {
    /// An id of these bits, which are to be random.
    pub fn new(bits: u128) -> Self {
        StoreId(bits)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for StoreId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        let wrong = || Error::invalid(format!("{text:?} is not a store id: write 32 hex digits"));
        bits.map(StoreId).ok_or_else(wrong)
    }
}

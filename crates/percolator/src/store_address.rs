//! Parses the address of a cluster's store, and opens the store.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Error, Finding, Store};
use bigtable_grpc::{ClientOptions, GrpcStore};
#[cfg(feature = "hbase")]
use bigtable_hbase::{HbaseAddress, HbaseOptions, HbaseStore};

/// The scheme of HBase's addresses.
const HBASE: &str = "hbase://";
/// The scheme of the addresses of google.bigtable.v2.
const BIGTABLE: &str = "bigtable://";

/// The address of a cluster's store. Needs the feature `cluster`.
///
/// | address | store |
/// |---|---|
/// | `bigtable://HOST:PORT/PROJECT/INSTANCE` | `percolator serve table`, or another server |
/// | `bigtable://PROJECT/INSTANCE` | Cloud Bigtable |
/// | `hbase://HOST:PORT,HOST:PORT/NAMESPACE` | Apache HBase, with the feature `hbase` |
///
/// ```
/// use percolator::cluster::StoreAddress;
/// let address: StoreAddress = "bigtable://127.0.0.1:8086/project/instance".parse()?;
/// assert_eq!(address.to_string(), "bigtable://127.0.0.1:8086/project/instance");
/// assert!("redis://127.0.0.1:6379".parse::<StoreAddress>().is_err());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreAddress(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Bigtable(bigtable_grpc::Address),
    #[cfg(feature = "hbase")]
    Hbase(HbaseAddress),
}

impl StoreAddress {
    /// Parses an address, and lets the variable `BIGTABLE_EMULATOR_HOST` name the server of
    /// `bigtable://PROJECT/INSTANCE`, as [`bigtable_grpc::Address::from_env`] does.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] says what is wrong with the text.
    pub fn from_env(text: &str) -> Result<Self, Error> {
        StoreAddress::parse(text, bigtable_grpc::Address::from_env)
    }

    fn parse(
        text: &str,
        bigtable: impl Fn(&str) -> Result<bigtable_grpc::Address, Error>,
    ) -> Result<Self, Error> {
        if text.starts_with(HBASE) {
            return StoreAddress::of_hbase(text);
        }
        if text.contains("://") && !text.starts_with(BIGTABLE) {
            return Err(Error::invalid(format!(
                "{text:?} is not the address of a store: give \
                 bigtable://HOST:PORT/PROJECT/INSTANCE or hbase://HOST:PORT/NAMESPACE"
            )));
        }
        Ok(StoreAddress(Kind::Bigtable(bigtable(text)?)))
    }

    #[cfg(feature = "hbase")]
    fn of_hbase(text: &str) -> Result<Self, Error> {
        Ok(StoreAddress(Kind::Hbase(text.parse()?)))
    }

    #[cfg(not(feature = "hbase"))]
    fn of_hbase(text: &str) -> Result<Self, Error> {
        Err(Error::invalid(format!(
            "{text:?}: this program was built without HBase: build it with the feature `hbase` of \
             the crate `percolator`"
        )))
    }

    /// Opens the store. Over HBase only `tls` and `plaintext_beyond_loopback` of the options count.
    ///
    /// # Errors
    /// The errors of [`GrpcStore::open`] or of `HbaseStore::connect`.
    pub async fn open(&self, options: ClientOptions) -> Result<Arc<dyn Store>, Error> {
        match &self.0 {
            Kind::Bigtable(address) => Ok(Arc::new(GrpcStore::open(address, options).await?)),
            #[cfg(feature = "hbase")]
            Kind::Hbase(address) => {
                Ok(Arc::new(HbaseStore::connect(address, hbase_options(options)).await?))
            }
        }
    }

    /// How long requests may fail while one of the store's servers is replaced. `None` if the store
    /// has one server, of which nothing is known.
    pub fn outage_max(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Bigtable(_) => None,
            #[cfg(feature = "hbase")]
            Kind::Hbase(address) => Some(address.outage_max()),
        }
    }

    /// Examines the store: its servers' settings as far as they can be read, and its tables. Over
    /// HBase only `tls` and `plaintext_beyond_loopback` of the options count.
    ///
    /// # Errors
    /// As [`open`](StoreAddress::open), and the errors of reads.
    pub async fn examine(&self, options: ClientOptions) -> Result<Vec<Finding>, Error> {
        match &self.0 {
            Kind::Bigtable(address) => GrpcStore::open(address, options).await?.examine().await,
            #[cfg(feature = "hbase")]
            Kind::Hbase(address) => {
                let store = HbaseStore::connect(address, hbase_options(options)).await?;
                store.examine(address).await
            }
        }
    }

    /// The address of a server of google.bigtable.v2, if it is one.
    pub(crate) fn of_bigtable(&self) -> Option<&bigtable_grpc::Address> {
        match &self.0 {
            Kind::Bigtable(address) => Some(address),
            #[cfg(feature = "hbase")]
            Kind::Hbase(_) => None,
        }
    }
}

#[cfg(feature = "hbase")]
fn hbase_options(options: ClientOptions) -> HbaseOptions {
    let ClientOptions { tls, plaintext_beyond_loopback, .. } = options;
    HbaseOptions { tls, plaintext_beyond_loopback }
}

impl FromStr for StoreAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        StoreAddress::parse(text, str::parse)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bigtable(address) => address.fmt(f),
            #[cfg(feature = "hbase")]
            Kind::Hbase(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_the_store_behind_it() {
        let why = |text: &str| text.parse::<StoreAddress>().unwrap_err().to_string();
        assert!(why("redis://h:1").contains("hbase://HOST:PORT/NAMESPACE"), "{}", why("redis://h"));
        assert!(why("h:1/p/i").contains("bigtable://"));
        let hbase = "hbase://h1:16000,h2:16000/shop?session=6s";
        if cfg!(feature = "hbase") {
            let address: StoreAddress = hbase.parse().unwrap();
            assert_eq!(address.to_string(), hbase);
            assert!(address.of_bigtable().is_none());
            assert_eq!(address.outage_max(), Some(Duration::from_secs(66)));
            assert!(why("hbase://h1/shop").contains("HOST:PORT"));
        } else {
            assert!(why(hbase).contains("the feature `hbase`"));
        }
    }
}

//! Detects that a store was replaced while a client worked on it. The store may have been
//! restored from a backup, or another store may have taken its place.
//!
//! A header names the store. The server sends it when the client asks for the server's limits,
//! and the client then sends it with each request. The server refuses a request that names
//! another store, before it does anything. Google's clients and servers do not know the
//! header.

use bigtable::{Error, StoreId};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};

const HEADER: &str = "percolator-store";
/// Begins the message of a refusal.
const REFUSED: &str = "this store was restored or replaced";

/// The id of a store, as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Named(MetadataValue<Ascii>);

impl Named {
    pub(crate) fn new(id: StoreId) -> Option<Named> {
        id.to_string().parse().ok().map(Named)
    }

    /// The id that the other side names, if it names one.
    pub(crate) fn of(headers: &MetadataMap) -> Option<Named> {
        headers.get(HEADER).cloned().map(Named)
    }

    pub(crate) fn id(&self) -> Option<StoreId> {
        self.0.to_str().ok()?.parse().ok()
    }

    pub(crate) fn put(&self, headers: &mut MetadataMap) {
        headers.insert(HEADER, self.0.clone());
    }

    /// Refuses a request that names another store.
    pub(crate) fn check(&self, headers: &MetadataMap) -> Result<(), Status> {
        match headers.get(HEADER) {
            Some(named) if named != self.0 => Err(Status::failed_precondition(format!(
                "{REFUSED} after this client has connected: start the client's process again"
            ))),
            _ => Ok(()),
        }
    }
}

/// The error for a client whose store was replaced, if the server refused the request for that
/// reason.
pub(crate) fn replaced(status: &Status) -> Option<Error> {
    let refused = status.code() == Code::FailedPrecondition;
    (refused && status.message().starts_with(REFUSED)).then_some(Error::Replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_another_store_is_refused_and_known_for_it() {
        let [old, new] = [1, 2].map(|bits| Named::new(StoreId::new(bits)).unwrap());
        let mut headers = MetadataMap::new();
        assert!(new.check(&headers).is_ok(), "Google's clients name no store");
        old.put(&mut headers);
        assert_eq!(Named::of(&headers).unwrap().id(), Some(StoreId::new(1)));
        assert!(old.check(&headers).is_ok());
        let refused = new.check(&headers).unwrap_err();
        assert!(matches!(replaced(&refused), Some(Error::Replaced)));
        assert!(replaced(&Status::failed_precondition("the table is protected")).is_none());
    }
}

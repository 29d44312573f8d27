//! Sends and reads the header that marks a change which may be lost when the server's machine
//! loses power.
//!
//! Google's API has no such mark. Other servers ignore the header and sync the change, which is
//! correct but slower. The client sends the header only for [`Syncing::MayBeLost`], and only with
//! a change of one row: changes that travel together are synced like their store.

use bigtable::Syncing;
use tonic::Request;
use tonic::metadata::MetadataValue;

const HEADER: &str = "percolator-sync";
const MAY_BE_LOST: &str = "may-be-lost";

/// Adds the header to a request if the change may be lost.
pub(crate) fn put<T>(request: &mut Request<T>, sync: Syncing) {
    if sync == Syncing::MayBeLost {
        request.metadata_mut().insert(HEADER, MetadataValue::from_static(MAY_BE_LOST));
    }
}

/// Reads the header of a request.
pub(crate) fn of<T>(request: &Request<T>) -> Syncing {
    match request.metadata().get(HEADER) {
        Some(value) if value == MAY_BE_LOST => Syncing::MayBeLost,
        _ => Syncing::AsStore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_what_may_be_lost_is_said() {
        for sync in [Syncing::AsStore, Syncing::Always, Syncing::MayBeLost] {
            let mut request = Request::new(());
            put(&mut request, sync);
            assert_eq!(request.metadata().is_empty(), sync != Syncing::MayBeLost);
            assert_eq!(of(&request) == Syncing::MayBeLost, sync == Syncing::MayBeLost);
        }
    }
}

//! The header by which this project's client says that a change may be lost with the power of the
//! server's machine.
//!
//! Google's API has no such thing, and every other server ignores the header: it then syncs the
//! change, which is as right, and slower. The client sends it for nothing but
//! [`Syncing::MayBeLost`].

use bigtable::Syncing;
use tonic::Request;
use tonic::metadata::MetadataValue;

const HEADER: &str = "percolator-sync";
const MAY_BE_LOST: &str = "may-be-lost";

/// Says so in a request, if it is so.
pub(crate) fn put<T>(request: &mut Request<T>, sync: Syncing) {
    if sync == Syncing::MayBeLost {
        request.metadata_mut().insert(HEADER, MetadataValue::from_static(MAY_BE_LOST));
    }
}

/// What a request says.
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

//! Maps status codes of the API to errors of a store.

use std::error::Error as _;

use bigtable::Error;
use cluster_net::Fault;
use tonic::{Code, Status};

use super::credentials::NoCredentials;
use crate::identity::replaced;

/// The error for a failed read.
pub(crate) fn of_read(status: &Status) -> Error {
    if let Some(replaced) = replaced(status) {
        return replaced;
    }
    if let Some(refused) = refused(status) {
        return refused;
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Error::InvalidRequest(describe(status)),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Error::Unavailable { why: describe(status) },
    }
}

/// The error for a failed mutation: `Unknown`, unless the status proves that nothing was
/// applied.
pub(crate) fn of_mutation(status: &Status) -> Error {
    if let Some(full) = full(status) {
        return full;
    }
    if let Some(refused) = refused(status) {
        return refused;
    }
    match status.code() {
        // The server refused the request before it looked at it. A status made on this side has
        // a source.
        Code::ResourceExhausted if status.source().is_none() => {
            Error::Unavailable { why: describe(status) }
        }
        Code::Unavailable | Code::Unknown if was_not_sent(status) => {
            Error::Unavailable { why: describe(status) }
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        // Also made on this side, for an answer that exceeds the decoder's bound.
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Error::Unknown { why: describe(status) },
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => of_read(status),
    }
}

/// Recognizes a full disk of the server, where nothing was applied. The API has no code for it,
/// so this parses the text of [`Error::Full`], which a server of this project sends.
fn full(status: &Status) -> Option<Error> {
    let (dir, rest) = status.message().split_once(": the disk is full: ")?;
    let (free, rest) = rest.split_once(" bytes are free, and a write needs ")?;
    let (wanted, _) = rest.split_once("; nothing was applied")?;
    let ours = status.code() == Code::Unavailable && status.source().is_none();
    let full =
        Error::Full { dir: dir.into(), free: free.parse().ok()?, wanted: wanted.parse().ok()? };
    ours.then_some(full)
}

/// Recognizes a refusal that stays until a person acts: of a connection for a certificate, or of a
/// request for a role or a permission. Nothing was applied.
fn refused(status: &Status) -> Option<Error> {
    if let Some(fault) = fault(status) {
        return Some(Error::Refused(fault.to_string()));
    }
    let by_server = matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated);
    by_server.then(|| Error::Refused(status.message().to_owned()))
}

/// The fault for which there is no connection.
fn fault(status: &Status) -> Option<&Fault> {
    Fault::find(status.source()?)
}

/// True if the request was not sent, because there was no connection or no token.
pub(crate) fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() || error.is::<NoCredentials>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// True if the server broke the rules of a stream.
pub(crate) fn is_broken(status: &Status) -> bool {
    status.code() == Code::DataLoss
}

/// True if the same request may succeed a moment later.
pub(crate) fn is_transient(status: &Status) -> bool {
    if full(status).is_some() || fault(status).is_some() {
        return false;
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::ResourceExhausted => {
            true
        }
        // A status with a source was made on this side: the connection broke in mid-stream.
        Code::Internal | Code::Unknown => status.source().is_some(),
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}

fn describe(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_of_the_server_is_known_for_what_it_is() {
        let full = Error::Full { dir: "/data: a: b".into(), free: 17, wanted: 99 };
        let status = Status::unavailable(full.to_string());
        assert_eq!(of_mutation(&status).to_string(), full.to_string());
        assert!(matches!(of_mutation(&status), Error::Full { free: 17, wanted: 99, .. }));
        assert!(!is_transient(&status), "repeating at once is of no use");
        // No other status is taken for a full disk.
        for other in [Status::unavailable("gone"), Status::internal(full.to_string())] {
            assert!(matches!(of_mutation(&other), Error::Unknown { .. }), "{other:?}");
        }
    }
}

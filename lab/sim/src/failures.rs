//! Errors for requests that fail in the simulation.

use bigtable::Error;

pub(crate) const READY: &str = "the store in memory answers at once";

pub(crate) fn unavailable(why: &str) -> Error {
    Error::Unavailable { why: why.to_owned() }
}

pub(crate) fn unknown() -> Error {
    Error::Unknown { why: "no answer".to_owned() }
}

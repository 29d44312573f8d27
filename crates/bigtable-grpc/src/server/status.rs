//! Maps errors of the engine to status codes of the API.

use bigtable::Error;
use tonic::Status;

/// The status that a client gets for an error of the engine.
pub(crate) fn of_engine(error: Error) -> Status {
    let text = error.to_string();
    match error {
        Error::InvalidRequest(_) => Status::invalid_argument(text),
        Error::Overloaded { .. } => Status::resource_exhausted(text),
        Error::Unavailable { .. } => Status::unavailable(text),
        // `client/status.rs` parses this text.
        Error::Full { .. } => Status::unavailable(text),
        // The outcome is unknown, and the store answers nothing until the server is restarted.
        Error::Unknown { .. } => Status::unknown(text),
        Error::TooOld { .. } => Status::failed_precondition(text),
        Error::Files { .. } => Status::internal(text),
        _ => Status::internal(text),
    }
}

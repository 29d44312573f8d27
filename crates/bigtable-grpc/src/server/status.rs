//! Errors of the engine as codes of the API.

use bigtable::Error;
use tonic::Status;

/// What an error of the engine is to a client.
pub(crate) fn of_engine(error: Error) -> Status {
    let text = error.to_string();
    match error {
        Error::InvalidRequest(_) => Status::invalid_argument(text),
        Error::Overloaded { .. } => Status::resource_exhausted(text),
        Error::Unavailable { .. } => Status::unavailable(text),
        // `client/status.rs` reads the text.
        Error::Full { .. } => Status::unavailable(text),
        // The outcome is unknown, and nothing will be answered until the server was restarted.
        Error::Unknown { .. } => Status::unknown(text),
        Error::TooOld { .. } => Status::failed_precondition(text),
        Error::Files { .. } => Status::internal(text),
        _ => Status::internal(text),
    }
}

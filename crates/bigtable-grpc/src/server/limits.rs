//! Checks the limits of Google's service, and the bounds of this server.

use tonic::Status;

pub(crate) use bigtable::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX};

/// Largest value of one cell.
pub(crate) const VALUE_BYTES_MAX: usize = 100 << 20;
/// Most mutations of one request, over all of its rows.
pub(crate) const MUTATIONS_MAX: usize = 100_000;
/// Longest family name.
pub(crate) const FAMILY_BYTES_MAX: usize = 64;
/// Longest garbage collection rule, in encoded bytes.
pub(crate) const GC_RULE_BYTES_MAX: usize = 500;
/// Most families of one table. (Google recommends at most 100.)
pub(crate) const FAMILIES_MAX: usize = 1000;
/// Most tables of this server; an instance of Google's has the same bound.
pub(crate) const TABLES_MAX: usize = 1000;
/// Most split points of a new table.
pub(crate) const SPLITS_MAX: usize = 100;
/// Largest request that the server decodes. A cell of the largest size fits.
pub(crate) const REQUEST_BYTES_MAX: usize = VALUE_BYTES_MAX + (8 << 20);
/// Most bytes of all requests that have not arrived completely.
pub(crate) const ARRIVING_BYTES_MAX: usize = 1 << 30;
/// Most keys and ranges of one read.
pub(crate) const ROW_SET_MAX: usize = 100_000;

/// Checks a row's key.
pub(crate) fn check_row_key(key: &[u8]) -> Result<(), Status> {
    match key.len() {
        0 => Err(Status::invalid_argument("the row key is empty")),
        1..=ROW_KEY_BYTES_MAX => Ok(()),
        n => Err(Status::invalid_argument(format!(
            "the row key has {n} bytes, at most {ROW_KEY_BYTES_MAX}"
        ))),
    }
}

/// Checks a column's qualifier.
pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), Status> {
    match qualifier.len() {
        0..=QUALIFIER_BYTES_MAX => Ok(()),
        n => Err(Status::invalid_argument(format!(
            "the qualifier has {n} bytes, at most {QUALIFIER_BYTES_MAX}"
        ))),
    }
}

/// Checks a cell's value.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Status> {
    match value.len() {
        0..=VALUE_BYTES_MAX => Ok(()),
        n => Err(Status::invalid_argument(format!(
            "the value has {n} bytes, at most {VALUE_BYTES_MAX}"
        ))),
    }
}

/// Checks the number of mutations of one request.
pub(crate) fn check_mutations(count: usize) -> Result<(), Status> {
    match count {
        0 => Err(Status::invalid_argument("No mutations provided")),
        1..=MUTATIONS_MAX => Ok(()),
        n => Err(Status::invalid_argument(format!(
            "the request has {n} mutations, at most {MUTATIONS_MAX}: send several requests"
        ))),
    }
}

/// Checks a new family's name.
pub(crate) fn check_family_name(name: &str) -> Result<(), Status> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=FAMILY_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "family name {name:?} is not of the form [-_.a-zA-Z0-9]{{1,{FAMILY_BYTES_MAX}}}"
    )))
}

//! Defines [`Value`], the bytes that a transaction writes.

use bigtable::RowKey;
use bytes::Bytes;

/// The bytes of a value for [`Transaction::set`](crate::Transaction::set). Everything that
/// converts to a row key converts to a value, and so do arrays of bytes.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::{Bytes, Value};
/// let id = 7_u64;
/// assert_eq!(Value::from("$10"), Value::from(b"$10"));
/// assert_eq!(Value::from(id.to_be_bytes()), Value::from(vec![0, 0, 0, 0, 0, 0, 0, 7]));
/// assert_eq!(Bytes::from(Value::from(String::from("Bob"))), "Bob");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(Bytes);

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        value.0
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Value(bytes)
    }
}

impl From<&Bytes> for Value {
    fn from(bytes: &Bytes) -> Self {
        Value(bytes.clone())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Value(Bytes::copy_from_slice(&bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Value(Bytes::copy_from_slice(bytes))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Value::from(text.as_str())
    }
}

impl From<&RowKey> for Value {
    fn from(row: &RowKey) -> Self {
        Value(row.to_bytes())
    }
}

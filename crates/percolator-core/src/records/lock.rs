//! Encodes and decodes the lock record (paper section 2.2, column `c:lock`).
//!
//! A lock says which transaction holds the cell, where that transaction's primary is, and what
//! the commit will write. Invariants:
//! * The encoding delimits itself, and begins with a head of fixed length. The head holds the
//!   owner and the wall time. So a probe for the head finds this very lock, and no other that
//!   its owner writes into the cell.
//! * The first byte distinguishes a primary lock from a secondary lock.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::{Reader, put_bytes32};
use crate::records::column::{CellName, put_cell};
use crate::{Error, Result};

const PRIMARY: u8 = b'P';
const SECONDARY: u8 = b'S';
const VERSION: u8 = 1;
const FLAG_DELETE: u8 = 1;
const FLAG_NOTIFY: u8 = 2;
const FLAG_SHORT_VALUE: u8 = 4;

/// Tag, version, flags, owner, wall time and lifetime.
pub(crate) const HEAD_BYTES: usize = 31;

/// The value prefix that every primary lock has, and no secondary lock.
pub(crate) const PRIMARY_PREFIX: &[u8] = &[PRIMARY];

/// The change that a transaction makes to a cell when it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
}

/// The change that a transaction makes to one cell, with its value if that is short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) kind: Kind,
    /// Whether commit and roll-forward must leave a notification in the row. It is recorded
    /// in the lock because the client that rolls forward may know another schema (H49, H59).
    pub(crate) notify: bool,
    /// The value, if it is short enough to travel with lock and write record.
    pub(crate) short_value: Option<Bytes>,
}

/// The name of one life of one client. It is drawn at random at every start and never reused.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::admin::Incarnation;
/// assert_eq!(Incarnation(255).to_string(), "ff");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A lock record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    /// The cell that decides the transaction's outcome; `None` if it is this very cell.
    /// All secondary locks of a transaction share one name.
    pub(crate) primary: Option<Arc<CellName>>,
    pub(crate) owner: Incarnation,
    /// The owner's wall clock when it last wrote the lock.
    pub(crate) wall_ms: u64,
    /// How long the lock may stay unchanged before its owner is suspect.
    pub(crate) lifetime_ms: u32,
    pub(crate) intent: Intent,
}

impl Intent {
    /// The length in bytes of the encoded lock with this intent. A secondary lock names its
    /// primary.
    pub(crate) fn lock_len(&self, primary: Option<&CellName>) -> usize {
        let primary = primary.map_or(0, |primary| {
            6 + primary.table.len() + primary.row.as_bytes().len() + primary.column.as_bytes().len()
        });
        HEAD_BYTES + primary + self.short_value.as_ref().map_or(0, |value| 4 + value.len())
    }
}

impl Lock {
    pub(crate) fn encode(&self) -> Bytes {
        let Intent { kind, notify, short_value } = &self.intent;
        let value = short_value.as_deref().unwrap_or_default();
        let mut out = BytesMut::with_capacity(64 + value.len());
        out.put_u8(if self.primary.is_none() { PRIMARY } else { SECONDARY });
        out.put_u8(VERSION);
        let mut flags = 0;
        flags |= if *kind == Kind::Delete { FLAG_DELETE } else { 0 };
        flags |= if *notify { FLAG_NOTIFY } else { 0 };
        flags |= if short_value.is_some() { FLAG_SHORT_VALUE } else { 0 };
        out.put_u8(flags);
        out.put_u128(self.owner.0);
        out.put_u64(self.wall_ms);
        out.put_u32(self.lifetime_ms);
        if let Some(primary) = &self.primary {
            put_cell(&mut out, &primary.table, &primary.row, &primary.column);
        }
        if let Some(value) = short_value {
            put_bytes32(&mut out, value);
        }
        out.freeze()
    }

    /// The value prefix that identifies this lock among the locks that its owner writes over
    /// it. Those have the same start timestamp and cell, and differ in the wall time alone.
    /// The prefix is short, whatever the lock holds.
    pub(crate) fn head(&self) -> Bytes {
        let mut encoded = self.encode();
        encoded.truncate(HEAD_BYTES);
        encoded
    }

    pub(crate) fn decode(value: &Bytes) -> Result<Self> {
        Lock::parse(value).ok_or_else(|| Error::Corrupt { record: "lock", bytes: value.clone() })
    }

    fn parse(value: &Bytes) -> Option<Self> {
        let mut reader = Reader::new(value);
        let tag = reader.u8()?;
        if reader.u8()? != VERSION {
            return None;
        }
        let flags = reader.u8()?;
        let owner = Incarnation(reader.u128()?);
        let wall_ms = reader.u64()?;
        let lifetime_ms = reader.u32()?;
        let primary = match tag {
            PRIMARY => None,
            SECONDARY => Some(CellName::read(&mut reader)?.into()),
            _ => return None,
        };
        let short_value = match flags & FLAG_SHORT_VALUE {
            0 => None,
            _ => Some(reader.bytes32()?),
        };
        let kind = if flags & FLAG_DELETE != 0 { Kind::Delete } else { Kind::Put };
        let notify = flags & FLAG_NOTIFY != 0;
        let known = flags & !(FLAG_DELETE | FLAG_NOTIFY | FLAG_SHORT_VALUE) == 0;
        let intent = Intent { kind, notify, short_value };
        let lock = Lock { primary, owner, wall_ms, lifetime_ms, intent };
        (known && reader.is_empty()).then_some(lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;
    use proptest::prelude::*;

    fn locks() -> impl Strategy<Value = Lock> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let primary = ("[a-z]{1,9}", bytes(), bytes()).prop_map(|(table, row, column)| {
            Arc::new(CellName { table, row: row.into(), column: Column::from_stored(column) })
        });
        (
            (proptest::option::of(primary), any::<bool>(), any::<bool>(), any::<u128>()),
            (any::<u64>(), any::<u32>(), proptest::option::of(bytes())),
        )
            .prop_map(|((primary, put, notify, owner), (wall_ms, lifetime_ms, value))| {
                let kind = if put { Kind::Put } else { Kind::Delete };
                let intent = Intent { kind, notify, short_value: value };
                Lock { primary, owner: Incarnation(owner), wall_ms, lifetime_ms, intent }
            })
    }

    proptest! {
        #[test]
        fn encoding_round_trips(lock in locks()) {
            let len = lock.intent.lock_len(lock.primary.as_deref());
            prop_assert_eq!(lock.encode().len(), len);
            prop_assert_eq!(Lock::decode(&lock.encode()).unwrap(), lock);
        }

        /// A renewed lock must differ from the old one in its head, or a rollback could remove
        /// the new one. The head also shows whether the lock is primary (H15, H16).
        #[test]
        fn a_lock_renewed_has_another_head(lock in locks(), later in 1..u64::MAX) {
            let wall_ms = lock.wall_ms.wrapping_add(later);
            let renewed = Lock { wall_ms, ..lock.clone() };
            prop_assert_ne!(renewed.head(), lock.head());
            prop_assert!(lock.encode().starts_with(&lock.head()));
            prop_assert_eq!(lock.head().len(), HEAD_BYTES);
            prop_assert_eq!(lock.head().starts_with(PRIMARY_PREFIX), lock.primary.is_none());
        }

        /// "Begins with" must mean "is", even if the primary's qualifier is empty (H65).
        #[test]
        fn no_encoding_is_a_prefix_of_another(a in locks(), b in locks()) {
            prop_assume!(a != b);
            prop_assert!(!b.encode().starts_with(&a.encode()));
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let _ = Lock::decode(&Bytes::from(bytes));
        }
    }
}

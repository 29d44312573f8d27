//! Decides where notify cells lie: in the row that they are about, or apart, in a second
//! table. The choice is made when a database is created.
//!
//! **In the row**, on stores with locality groups: a scan of the family `notify` reads only
//! dirty rows. One notification is written with the lock, at `s`, and another with the commit,
//! at `c`, in the same row mutations.
//!
//! **Apart**, on stores where such a scan would read every clean row. Each table then has a
//! second one, `percolator.notify.<table>`, with the key `shard ++ row`. The shard is one byte
//! of a hash of the row, so that writes spread and a scanner can begin at a random place.
//!
//! Each table has its own second table. So a scan finds no cells of other tables, and the key
//! needs no table name. Such names are reserved for Percolator, so no user can choose one.
//! Set-aside notifications lie there too, because one row mutation moves them.
//!
//! # Why nothing is lost when notifications lie apart
//!
//! A lock or a commit cannot leave a notification in another table's row. So there is none at
//! `s`. The committing client writes the notification at `c` between the two phases: `c` is
//! known, all locks exist, and the primary is not committed yet. It commits the primary only
//! after the store has acknowledged the notification. So a committed transaction has its
//! notifications, whichever client rolls its rows forward. A transaction that cannot write
//! them aborts (H48, H49).
//!
//! A worker that finds a notification at `c` takes its own timestamp `s'` after that, so
//! `s < c < s'`. The lock was written before the notification. A read at `s'` therefore finds the
//! lock, and waits or resolves it, or it sees the outcome of the transaction. If the cell is
//! not dirty at `s'`, no later commit can add a version at or below `s'`. The worker may then
//! remove every notification at or below `s'`. A notification that is late, or whose
//! transaction aborted, is found to be stale.
//!
//! For the same reason one notification may replace all lower ones. The worker that finds it
//! reads at a timestamp `s'` above all of them. So a cell that is written a thousand times
//! before a worker looks has one notification.
//!
//! ADR-3 says what this design costs, and what would change it.

use bigtable::{ROW_KEY_BYTES_MAX, RowKey, Store};
use bytes::{BufMut, BytesMut};

use crate::records::column::Table;
use crate::{Error, InvalidKind, Result};

/// The first part of the name of a table of notifications. No user's table may begin like
/// that.
const TABLE_PREFIX: &str = "percolator.notify.";

/// Where the notify cells of a database lie. It is fixed when the database is created; see
/// [`format`](crate::records::format).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    InRow,
    Apart,
}

impl Placement {
    /// The placement that suits a store.
    pub(crate) fn of(store: &dyn Store) -> Self {
        if store.locality_groups() { Placement::InRow } else { Placement::Apart }
    }
}

/// The name of the table that holds a table's notifications.
pub(crate) fn notify_table_name(table: &str) -> String {
    format!("{TABLE_PREFIX}{table}")
}

impl Table {
    /// Whether notifications lie in a table of their own.
    pub(crate) fn notifies_apart(&self) -> bool {
        self.apart().is_some()
    }

    /// The store's table that holds this table's notifications.
    pub(crate) fn notify_store(&self) -> &dyn bigtable::Table {
        self.apart().unwrap_or(self.store())
    }

    /// The key under which a row's notifications lie.
    pub(crate) fn notify_key(&self, row: &RowKey) -> RowKey {
        if self.notifies_apart() { sharded(row.as_bytes()) } else { row.clone() }
    }

    /// The row whose notifications lie under a key.
    pub(crate) fn notified_row(&self, key: &RowKey) -> Result<RowKey> {
        if !self.notifies_apart() {
            return Ok(key.clone());
        }
        if let [first, row @ ..] = key.as_bytes()
            && !row.is_empty()
            && *first == shard(row)
        {
            return Ok(RowKey::from(key.to_bytes().slice(1..)));
        }
        Err(Error::Corrupt { record: "notify key", bytes: key.to_bytes() })
    }

    /// A random place to begin a scan, if notifications lie apart. In rows, no key is known
    /// without a look at the table.
    pub(crate) fn random_place(&self, random: impl FnOnce() -> u64) -> Option<RowKey> {
        self.notifies_apart().then(|| RowKey::from(vec![random().to_be_bytes()[0]]))
    }

    /// Checks that a row of this table can be notified, now or once its columns are observed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its key has no room left for the shard.
    pub(crate) fn check_notify_key(&self, row: &RowKey) -> Result<()> {
        if self.notifies_apart() && row.as_bytes().len() >= ROW_KEY_BYTES_MAX {
            return Err(Error::invalid(
                InvalidKind::RowKey,
                format!(
                    "a row key of {ROW_KEY_BYTES_MAX} bytes: at most {} are allowed on a store without \
                 locality groups; use a hash of it as the key",
                    ROW_KEY_BYTES_MAX - 1
                ),
            ));
        }
        Ok(())
    }
}

/// The key of a row in the table of notifications: its shard, then the row.
fn sharded(row: &[u8]) -> RowKey {
    let mut key = BytesMut::with_capacity(1 + row.len());
    key.put_u8(shard(row));
    key.put_slice(row);
    RowKey::from(key.freeze())
}

/// The shard: the eight bytes of the row's FNV-1a hash, combined by XOR. It is part of the
/// stored format.
fn shard(row: &[u8]) -> u8 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = row.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    hash.to_be_bytes().into_iter().fold(0, |folded, byte| folded ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigtable::{MemoryStore, RowRange, Store};
    use futures::executor::block_on;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::ops::Bound;
    use std::sync::Arc;

    fn apart() -> Table {
        block_on(async {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let opened =
                store.open_table("t", &crate::records::layout::notify_schema()).await.unwrap();
            Table::new("t", &store, opened.clone(), Some(opened))
        })
    }

    proptest! {
        /// A key names exactly one row, and keeps the order of rows within a shard (H65).
        #[test]
        fn h65_a_notify_key_names_one_row(
            a in proptest::collection::vec(any::<u8>(), 1..20),
            b in proptest::collection::vec(any::<u8>(), 1..20),
        ) {
            let (table, a, b) = (apart(), RowKey::from(a), RowKey::from(b));
            let (x, y) = (table.notify_key(&a), table.notify_key(&b));
            prop_assert_eq!(table.notified_row(&x).unwrap(), a.clone());
            if x.as_bytes()[0] == y.as_bytes()[0] {
                prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            }
        }

        #[test]
        fn a_random_place_has_a_shard_behind_it(random in any::<u64>()) {
            let place = apart().random_place(|| random).unwrap();
            let behind = RowRange { start: Bound::Included(place), end: Bound::Unbounded };
            let mut rows = (0..10_000u32).map(|n| sharded(&n.to_be_bytes()));
            prop_assert!(rows.any(|row| behind.contains(&row)));
        }
    }

    #[test]
    fn a_key_that_nobody_wrote_is_refused() {
        let table = apart();
        let key = table.notify_key(&RowKey::from("row"));
        let mut wrong = key.as_bytes().to_vec();
        wrong[0] ^= 1;
        for key in [vec![], vec![7], wrong] {
            assert!(table.notified_row(&RowKey::from(key)).is_err());
        }
    }

    /// The hash is part of the format.
    #[test]
    fn shards_are_spread_and_stay_what_they_are() {
        assert_eq!([shard(b"a"), shard(b"Bob"), shard(&[0, 0xff])], [0xbb, 0x2d, 0xe2]);
        let used: BTreeSet<u8> = (0..4096u32).map(|n| shard(&n.to_be_bytes())).collect();
        assert!(used.len() > 200, "{}", used.len());
    }

    #[test]
    fn a_row_key_without_room_for_its_shard_is_refused() {
        let row = |length: usize| RowKey::from(vec![b'r'; length]);
        let table = apart();
        table.check_notify_key(&row(ROW_KEY_BYTES_MAX - 1)).unwrap();
        table.notify_key(&row(ROW_KEY_BYTES_MAX - 1)).check().unwrap();
        assert!(table.check_notify_key(&row(ROW_KEY_BYTES_MAX)).is_err());
    }
}

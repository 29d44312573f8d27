//! Defines how a Percolator column lies in the store (paper Figure 5).
//!
//! For a column `f:q` of an application, the store's table holds the column `f:q` in each of
//! these families. The time of a cell is a logical timestamp:
//!
//! ```text
//! family    at       value
//! data      s        the value, when it is too long to travel inside lock and write records
//! lock      s        a Lock record; the owner's transaction is undecided or not yet cleaned up
//! write     c        a Write record: "the data of s is visible from c on"
//! rollback  s        empty: the transaction that began at s will never commit here ("tomb")
//! notify    s and c  empty: hints that the cell may be dirty
//! failed    newest   a notification that was set aside because its observer kept failing
//! ```
//!
//! On stores without locality groups, `notify` and `failed` lie in a second table beside each
//! table of the application (see [`placement`](crate::records::placement)). A prewrite then
//! leaves no notification at `s`.
//!
//! Invariant: transactions and resolvers change `lock`, `write` and `rollback` only by
//! operations that [`rows`](crate::txn::rows) builds. Garbage collection deletes old `write`
//! and `rollback` records by itself. So an owner and a client that cleans up after it write
//! the same records.

use std::sync::Arc;

use bigtable::{Family, Layout, LocalityGroup, OnFull, Store, Table, TableSchema};

pub(crate) const DATA: Family = Family::from_static("data");
pub(crate) const LOCK: Family = Family::from_static("lock");
pub(crate) const WRITE: Family = Family::from_static("write");
pub(crate) const ROLLBACK: Family = Family::from_static("rollback");
pub(crate) const NOTIFY: Family = Family::from_static("notify");
pub(crate) const FAILED: Family = Family::from_static("failed");
pub(crate) const SYSTEM: Family = Family::from_static("system");

/// The store's table that holds the oracle's window, the observer schema and the format version.
pub const SYSTEM_TABLE: &str = "percolator.system";

/// The table of liveness tokens.
pub(crate) const LOCKS_TABLE: &str = "percolator.locks";

/// The tables that a store goes on writing when its disk is almost full. One holds the
/// oracle's record, because without new timestamps clients soon cannot read. The other holds
/// the liveness tokens of lock owners.
///
/// ```
/// # use percolator_core::face as percolator;
/// assert!(percolator::store::upkeep_tables().contains(&"percolator.locks".to_owned()));
/// ```
pub fn upkeep_tables() -> Vec<String> {
    vec![SYSTEM_TABLE.to_owned(), LOCKS_TABLE.to_owned()]
}

/// Largest number of locks in memory. The store refuses a prewrite beyond it, and the client
/// repeats the prewrite.
pub const LOCKS_MAX: usize = 1_000_000;
/// Largest number of notify cells in memory. Further ones are kept on disk alone.
pub const NOTIFICATIONS_MAX: usize = 1_000_000;

/// Largest number of rollback records in memory. Further ones are kept on disk alone. They are
/// in memory because every prewrite looks for one, and almost never finds any.
const TOMBS_MAX: usize = 200_000;

fn notify_group() -> LocalityGroup {
    LocalityGroup::in_memory("notify", OnFull::Spill { cells_max: NOTIFICATIONS_MAX })
}

fn failed_group() -> LocalityGroup {
    LocalityGroup::on_disk("failed", Layout::Versions)
}

/// The store's schema of a table of notifications, for stores without locality groups.
///
/// ```
/// # use percolator_core::face as percolator;
/// assert!(percolator::store::notify_schema().check().is_ok());
/// ```
pub fn notify_schema() -> TableSchema {
    TableSchema { groups: vec![notify_group(), failed_group()] }
}

/// The store's schema of a table for transactions.
///
/// ```
/// # use percolator_core::face as percolator;
/// assert!(percolator::store::table_schema().check().is_ok());
/// ```
pub fn table_schema() -> TableSchema {
    TableSchema {
        groups: vec![
            LocalityGroup::on_disk("data", Layout::Versions),
            LocalityGroup::in_memory("lock", OnFull::Refuse { cells_max: LOCKS_MAX }),
            LocalityGroup::on_disk("write", Layout::NewestFirst),
            LocalityGroup::in_memory("rollback", OnFull::Spill { cells_max: TOMBS_MAX }),
            notify_group(),
            failed_group(),
        ],
    }
}

/// The store's schema of the table that Percolator keeps for itself.
fn system_schema() -> TableSchema {
    TableSchema { groups: vec![LocalityGroup::on_disk("system", Layout::Versions)] }
}

/// Opens a table of Percolator's own, creating it if it is not there.
pub(crate) async fn open_system(store: &dyn Store, name: &str) -> bigtable::Result<Arc<dyn Table>> {
    store.open_table(name, &system_schema()).await
}

/// Opens a table of Percolator's own if it exists, because reading must not create it.
pub(crate) async fn find_system(
    store: &dyn Store,
    name: &str,
) -> bigtable::Result<Option<Arc<dyn Table>>> {
    let is_there = store.table_names().await?.iter().any(|known| known == name);
    Ok(if is_there { Some(open_system(store, name).await?) } else { None })
}

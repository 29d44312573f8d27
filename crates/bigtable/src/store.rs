//! The traits that a store implements.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;

use crate::{
    CommitRows, ConditionalMutation, Error, Glance, Glanced, Limits, Page, PageLimit, Result, Row,
    RowKey,
};
use crate::{RowMutation, RowRange, RowsOutcome, Selection, StoreId, TableSchema, Timestamp};

/// A place that keeps tables.
///
/// ```
/// use bigtable::{Layout, LocalityGroup, MemoryStore, Store, TableSchema};
/// # futures::executor::block_on(async {
/// let store = MemoryStore::new();
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// let accounts = store.open_table("accounts", &schema).await?;
/// assert_eq!(accounts.name(), "accounts");
/// assert_eq!(store.table_names().await?, ["accounts"]);
/// # Ok::<(), bigtable::Error>(()) }).unwrap();
/// ```
#[async_trait]
pub trait Store: Send + Sync + Debug {
    /// Opens a table, creating it if it is not there. Names are of the form `[a-zA-Z0-9_.-]{1,50}`.
    ///
    /// # Errors
    /// `InvalidRequest` if the name or schema is malformed, or the table exists with another
    /// schema.
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>>;

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// Those of any read.
    async fn table_names(&self) -> Result<Vec<String>>;

    /// The floor: requests whose `above` lies below it are refused. It begins at zero.
    fn floor(&self) -> Timestamp;

    /// Raises the floor, durably, and returns once no request below it can be accepted any more. It
    /// never goes back: a lower value leaves it where it is.
    ///
    /// # Errors
    /// Those of any mutation; `InvalidRequest` where there is [no floor](Store::request_life_max).
    async fn raise_floor(&self, floor: Timestamp) -> Result<()>;

    /// Returns once no power cut can take back what was acknowledged before this call. A store that
    /// acknowledges nothing before that has nothing to do.
    ///
    /// # Errors
    /// Those of any mutation; nothing that was acknowledged is lost by it.
    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Gives back the space of deleted cells, as far as that is worth the work now; returns when it
    /// is done. A store that gives it back as it goes has nothing to do.
    ///
    /// # Errors
    /// Those of any mutation; no cell is lost by it.
    async fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the store has [`commit_rows`](Store::commit_rows).
    fn commits_rows(&self) -> bool {
        false
    }

    /// Changes several rows in one step, at a timestamp that is taken after all their predicates
    /// were evaluated and before anything is written.
    ///
    /// A read whose `above` is not below the returned timestamp sees the change, if it began after
    /// the timestamp was taken: it waits for it. A read that names no `above` waits for nothing,
    /// and sees the change once it is there. A request that was answered with anything but
    /// `Unknown` is not applied later. One that was not leaves nothing behind that a reader could
    /// find before it is applied: the caller settles it, or nobody.
    ///
    /// # Errors
    /// As [`check_and_mutate_row`](Table::check_and_mutate_row); always, unless the store
    /// [has it](Store::commits_rows).
    async fn commit_rows(&self, _request: CommitRows) -> Result<RowsOutcome> {
        Err(Error::invalid("this store changes single rows only"))
    }

    /// As [`commit_rows`](Store::commit_rows), if the store can answer at once. Otherwise the
    /// request comes back, and nothing was done.
    ///
    /// # Errors
    /// Those of [`commit_rows`](Store::commit_rows), as the answer.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        Err(request)
    }

    /// Whether a scan of one locality group reads that group alone. Where it reads whole rows, as
    /// in Cloud Bigtable, families that are scanned for few cells among many rows belong in tables
    /// of their own.
    fn locality_groups(&self) -> bool {
        true
    }

    /// `None` of a store that compares its [floor](Store::floor) within each row operation. Of one
    /// that cannot, as Cloud Bigtable, the longest life of a request: once so long has passed since
    /// it was made, a mutation is not applied any more, whatever has become of it.
    /// [`raise_floor`](Store::raise_floor) is refused there, and who removes what a late request
    /// could still build on waits for that.
    fn request_life_max(&self) -> Option<Duration> {
        None
    }

    /// The store's id, if it has one. What is kept outside of the store and made from it, such as a
    /// search index, is of no use for a store with another id.
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// The largest requests that the store takes, always. A larger one may be refused, as
    /// [`InvalidRequest`](crate::Error::InvalidRequest). [`commit_rows`](Store::commit_rows) has no
    /// limits but those of names and values.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// How full the fullest bounded in-memory locality group is: 0 empty, 1 at its bound. Those who
    /// bring in new work slow down from 0.8 on.
    fn pressure(&self) -> f64 {
        0.0
    }
}

/// A table: atomic operations on single rows, and range scans.
///
/// A read or write of one row is atomic: a read sees each mutation of the row wholly or not at all,
/// with one exception that [`conformance`](crate::conformance) spells out: cells of in-memory
/// locality groups may be those of an earlier moment than the rest of the row, never a later one.
///
/// ```
/// use bigtable::*;
/// const DATA: Family = Family::from_static("data");
/// # futures::executor::block_on(async {
/// # let store = MemoryStore::new();
/// # let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// # let table = store.open_table("accounts", &schema).await?;
/// let at = Timestamp::new(5).unwrap();
/// let balance = Mutation::set(DATA, "bal", at, "$10");
/// table.mutate_row(RowMutation::new("Bob").mutation(balance)).await?;
/// let newest = Selection::default().column(DATA, "bal", TimeRange::ALL, 1);
/// let row = table.read_row(&RowKey::from("Bob"), &newest).await?;
/// assert_eq!(&row.newest(&DATA, b"bal").unwrap().value[..], b"$10");
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[async_trait]
pub trait Table: Send + Sync + Debug {
    /// The table's name.
    fn name(&self) -> &str;

    /// Reads the selected cells of one row, atomically. A row without any is an empty [`Row`].
    ///
    /// # Errors
    /// `TooOld` when `select.above` is below the floor; `Unavailable`; `InvalidRequest`.
    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row>;

    /// Looks at one column as a [`read_row`](Table::read_row) by [`Glance::selection`] would, where
    /// that can be done without waiting for anybody. What shows nothing is to be read; so is
    /// everything in a store that others must be asked for.
    ///
    /// ```
    /// use bigtable::*;
    /// const DATA: Family = Family::from_static("data");
    /// const LOCK: Family = Family::from_static("lock");
    /// # futures::executor::block_on(async {
    /// # let store = MemoryStore::new();
    /// let lock = LocalityGroup::in_memory("lock", OnFull::Refuse { cells_max: 10 });
    /// let data = LocalityGroup::on_disk("data", Layout::NewestFirst);
    /// let table = store.open_table("accounts", &TableSchema { groups: vec![lock, data] }).await?;
    /// let (bob, at) = (RowKey::from("Bob"), Timestamp::new(5).unwrap());
    /// let glance = Glance { row: &bob, qualifier: b"bal", family: &DATA, guard: &LOCK, s: at };
    /// assert_eq!(table.glance(glance)?, Glanced::Absent);
    /// let balance = Mutation::set(DATA, "bal", at, "$10");
    /// table.mutate_row(RowMutation::new("Bob").mutation(balance)).await?;
    /// assert_eq!(table.glance(glance)?, Glanced::Newest(at, "$10".into()));
    /// let lock = Mutation::set(LOCK, "bal", at, "Joe");
    /// table.mutate_row(RowMutation::new("Bob").mutation(lock)).await?;
    /// assert_eq!(table.glance(glance)?, Glanced::Nothing);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`read_row`](Table::read_row).
    fn glance(&self, _at: Glance<'_>) -> Result<Glanced> {
        Ok(Glanced::Nothing)
    }

    /// Reads the selected cells of several rows: one [`Row`] for each key, in the order of the
    /// keys, of which some may be equal. Each row is read atomically; two rows may be read at
    /// different moments.
    ///
    /// # Errors
    /// As [`read_row`](Table::read_row).
    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| self.read_row(row, select))).await
    }

    /// Reads one page of the range. Each row is read atomically; two rows may be read at different
    /// moments, and so may two pages.
    ///
    /// # Errors
    /// As [`read_row`](Table::read_row).
    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page>;

    /// Changes one row, atomically and unconditionally.
    ///
    /// # Errors
    /// `Unknown` when the change may have been applied; `Overloaded`, `Unavailable` and
    /// `InvalidRequest` when it was not.
    async fn mutate_row(&self, request: RowMutation) -> Result<()>;

    /// Changes one row depending on what it holds, atomically. Returns whether the predicate held.
    ///
    /// # Errors
    /// As [`mutate_row`](Table::mutate_row), and `TooOld` when `request.above` is below the floor.
    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool>;

    /// Several conditional mutations, of several rows or of one; each is atomic by itself and has
    /// its own result, in the order of the requests. They may be applied in any order.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            results.push(self.check_and_mutate_row(request).await);
        }
        results
    }

    /// The table's tablets: disjoint ranges, in order, that together cover every row. Boundaries
    /// are hints and may move at any time.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn tablets(&self) -> Result<Vec<RowRange>> {
        Ok(vec![RowRange::all()])
    }
}

/// Longest name of a table, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 50;

/// Checks that a table's name is of the form `[a-zA-Z0-9_.-]{1,50}`; for those who implement
/// [`Store`].
///
/// # Errors
/// [`Error::InvalidRequest`] names what is wrong.
pub fn check_table_name(name: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if (1..=TABLE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::invalid(format!("table name {name:?} is not of the form [a-zA-Z0-9_.-]{{1,50}}")))
}

//! Defines the traits that a store implements: [`Store`] and [`Table`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;

use crate::{
    CommitRows, ConditionalMutation, Error, Family, Glance, Glanced, Limits, Page, PageLimit,
    Result, Row, RowKey,
};
use crate::{RowMutation, RowRange, RowsOutcome, Selection, StoreId, TableSchema, Timestamp};

/// The longest life of a request that Percolator supports
/// ([`Store::request_life_max`]). It refuses a store whose requests may live longer.
pub const REQUEST_LIFE_MAX: Duration = Duration::from_secs(150);

/// A store of tables.
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
    /// Opens a table, and creates it if it does not exist. Names are of the form
    /// `[a-zA-Z0-9_.-]{1,50}`.
    ///
    /// # Errors
    /// `InvalidRequest` if the name or schema is malformed, or the table exists with another
    /// schema.
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>>;

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// The errors of any read.
    async fn table_names(&self) -> Result<Vec<String>>;

    /// The floor: garbage collection may have removed versions that a reader below this
    /// timestamp needs. So the store refuses every request whose `above` is below the floor,
    /// with [`TooOld`](crate::Error::TooOld). The floor starts at zero.
    fn floor(&self) -> Timestamp;

    /// Raises the floor durably. Returns once no request below the new floor can be accepted
    /// any more. The floor never goes back: a lower value changes nothing.
    ///
    /// # Errors
    /// The errors of any mutation. `InvalidRequest` in a store [without a
    /// floor](Store::request_life_max).
    async fn raise_floor(&self, floor: Timestamp) -> Result<()>;

    /// Makes everything acknowledged before this call durable: when it returns, no power cut
    /// can undo it. A store that acknowledges only durable changes has nothing to do.
    ///
    /// # Errors
    /// The errors of any mutation. An error loses nothing that was acknowledged.
    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Gives back the space of deleted cells, where this is worth the work now. Returns when
    /// the work is done. A store that gives space back continuously has nothing to do.
    ///
    /// # Errors
    /// The errors of any mutation. An error loses no cell.
    async fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the store offers [`commit_rows`](Store::commit_rows).
    fn commits_rows(&self) -> bool {
        false
    }

    /// Changes several rows in one step. The store evaluates all predicates, then takes the
    /// timestamp, then writes.
    ///
    /// A read that begins after the timestamp was taken, with an `above` at or above it, sees
    /// the change: the read waits for it. A read without `above` does not wait, and sees the
    /// change once it is published.
    ///
    /// A request with any answer but `Unknown` is not applied later. A request without a
    /// definite answer leaves no trace until it is applied. No reader can clean it up; only
    /// the caller can find out what became of it.
    ///
    /// # Errors
    /// The errors of [`check_and_mutate_row`](Table::check_and_mutate_row). Always
    /// `InvalidRequest` if the store [does not offer this](Store::commits_rows).
    async fn commit_rows(&self, _request: CommitRows) -> Result<RowsOutcome> {
        Err(Error::invalid("this store cannot change several rows in one request"))
    }

    /// Like [`commit_rows`](Store::commit_rows), if the store can answer without waiting.
    /// Otherwise returns the request, and nothing was done.
    ///
    /// # Errors
    /// The answer contains the errors of [`commit_rows`](Store::commit_rows).
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        Err(request)
    }

    /// Whether a change waits for a disk, and one wait serves all changes that are requested
    /// meanwhile. Then a caller should have many requests at a time.
    fn shares_syncs(&self) -> bool {
        false
    }

    /// Whether a scan of one locality group reads only that group. Cloud Bigtable, for
    /// example, reads whole rows. In such a store, put a family with few cells among many rows
    /// into a table of its own if you scan it.
    fn locality_groups(&self) -> bool {
        true
    }

    /// The longest life of a request, in a store that cannot compare a [floor](Store::floor)
    /// within each row operation, such as Cloud Bigtable. `None` in all other stores.
    ///
    /// Once a mutation is older than this, the store no longer evaluates its predicate, even if
    /// its reply was lost. A mutation whose predicate was evaluated in time may be applied at
    /// any later moment, if nothing else changes the row in between. Until then readers see
    /// the row without it.
    ///
    /// Such a store refuses [`raise_floor`](Store::raise_floor). Garbage collection instead
    /// waits for this time before it removes cells that a late request could still use. It is
    /// at most [`REQUEST_LIFE_MAX`].
    fn request_life_max(&self) -> Option<Duration> {
        None
    }

    /// The store's id, if it has one. Data outside of the store that was made from it, such as a
    /// search index, is of no use for a store with another id.
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// The largest requests that the store always accepts. It may refuse a larger request as
    /// [`InvalidRequest`](crate::Error::InvalidRequest). The limits do not apply to
    /// [`commit_rows`](Store::commit_rows), except those of names and values.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The fill level of the fullest bounded in-memory locality group: 0 is empty, 1 is at its
    /// bound. Clients slow down new work from 0.8 on.
    fn pressure(&self) -> f64 {
        0.0
    }
}

/// A table: atomic operations on single rows, and scans of ranges.
///
/// Reads and writes of one row are atomic: a read sees each mutation of the row wholly or not
/// at all. There is one exception, which [`conformance`](crate::conformance) describes: the
/// cells of in-memory locality groups may be older than the rest of the row, never newer.
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

    /// Reads the selected cells of one row, atomically. Returns an empty [`Row`] if it has
    /// none.
    ///
    /// # Errors
    /// `TooOld` if `select.above` is below the floor. Otherwise `Unavailable` or
    /// `InvalidRequest`.
    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row>;

    /// Looks at one column without waiting, with the same result as a
    /// [`read_row`](Table::read_row) of [`Glance::selection`]. On [`Glanced::Nothing`], call
    /// `read_row`. Remote stores always return `Nothing`.
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
    /// The errors of [`read_row`](Table::read_row).
    fn glance(&self, _at: Glance<'_>) -> Result<Glanced> {
        Ok(Glanced::Nothing)
    }

    /// Reads the selected cells of several rows. Returns one [`Row`] for each key, in the
    /// order of the keys; keys may repeat. Each row is read atomically, but two rows may be
    /// read at different moments.
    ///
    /// # Errors
    /// The errors of [`read_row`](Table::read_row).
    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| self.read_row(row, select))).await
    }

    /// Reads one page of the range. Each row is read atomically, but two rows, or two pages,
    /// may be read at different moments.
    ///
    /// # Errors
    /// The errors of [`read_row`](Table::read_row).
    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page>;

    /// Changes one row, atomically and unconditionally.
    ///
    /// # Errors
    /// `Unknown` if the change may have been applied. `Overloaded`, `Unavailable` or
    /// `InvalidRequest` if it was not applied.
    async fn mutate_row(&self, request: RowMutation) -> Result<()>;

    /// Changes one row atomically, depending on the cells in it. Returns whether the predicate
    /// held.
    ///
    /// # Errors
    /// The errors of [`mutate_row`](Table::mutate_row). `TooOld` if `request.above` is below
    /// the floor.
    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool>;

    /// Applies several conditional mutations, of different rows or of the same row. Each is
    /// atomic by itself and has its own result, in the order of the requests. The store may
    /// apply them in any order.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            results.push(self.check_and_mutate_row(request).await);
        }
        results
    }

    /// Lets the store drop superseded versions by itself, at any moment from now on. Each version
    /// in `family` may go that a newer version of its column superseded at or before `up_to`. It
    /// may go even if that newer version was deleted since. A version stays if `keep` returns true
    /// for its value. The newest version of a column always stays. A timestamp above the
    /// [floor](Store::floor) counts as the floor.
    ///
    /// Returns whether the store drops most of these versions before long, except those with
    /// values of more than [`SUPERSEDED_BYTES_MAX`] bytes. The caller still deletes what is left,
    /// but it can look less often. A store that was opened again has forgotten this call.
    ///
    /// Call this only when everything that depends on older versions is durable: see
    /// [`sync`](Store::sync).
    ///
    /// ```
    /// use bigtable::*;
    /// const DATA: Family = Family::from_static("data");
    /// # futures::executor::block_on(async {
    /// let store = MemoryStore::new().dropping_superseded();
    /// # let groups = vec![LocalityGroup::on_disk("data", Layout::Versions)];
    /// # let table = store.open_table("accounts", &TableSchema { groups }).await?;
    /// for (time, balance) in [(5, "$10"), (6, "$3"), (9, "$7")] {
    ///     let at = Timestamp::new(time).unwrap();
    ///     let balance = Mutation::set(DATA, "bal", at, balance);
    ///     table.mutate_row(RowMutation::new("Bob").mutation(balance)).await?;
    /// }
    /// let floor = Timestamp::new(7).unwrap();
    /// store.raise_floor(floor).await?;
    /// assert!(table.drop_superseded(&DATA, floor, |_| false));
    /// let all = Selection::default().family(DATA, TimeRange::ALL, u32::MAX);
    /// // What a reader at 7 sees has stayed.
    /// assert_eq!(table.read_row(&RowKey::from("Bob"), &all).await?.cells.len(), 2);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    fn drop_superseded(
        &self,
        _family: &Family,
        _up_to: Timestamp,
        _keep: fn(&[u8]) -> bool,
    ) -> bool {
        false
    }

    /// The table's tablets: disjoint ranges, in order, that together cover every row. The
    /// boundaries are hints and may move at any time.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn tablets(&self) -> Result<Vec<RowRange>> {
        Ok(vec![RowRange::all()])
    }
}

/// The most bytes of a value that [`Table::drop_superseded`] can be expected to drop.
pub const SUPERSEDED_BYTES_MAX: usize = 1_000;

/// The longest name of a table, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 50;

/// Checks that a table's name is of the form `[a-zA-Z0-9_.-]{1,50}`. For implementations of
/// [`Store`].
///
/// # Errors
/// [`Error::InvalidRequest`] with the name.
pub fn check_table_name(name: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if (1..=TABLE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::invalid(format!("table name {name:?} is not of the form [a-zA-Z0-9_.-]{{1,50}}")))
}

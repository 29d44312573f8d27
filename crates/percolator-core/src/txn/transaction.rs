//! Defines a transaction: a start timestamp, and writes that are buffered until commit (paper
//! Figure 6).

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use bigtable::{Mutation, RowKey, Timestamp, VALUE_BYTES_MAX};
use bytes::Bytes;

use crate::mutants::{self, off};
use crate::observe::crew::Crew;
use crate::options::{ROW_KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX};
use crate::oracle::Stamp;
use crate::records::column::Cell;
use crate::records::schema::Strength;
use crate::records::value::Value;
use crate::shared::Shared;
use crate::txn::buffer::Buffer;
use crate::txn::get::{Patience, Seen, long_values, read_cell, read_rows, selection};
use crate::txn::open_readers::Open;
use crate::txn::predictor::Cache;
use crate::txn::read_ahead::read_ahead;
use crate::txn::watched::Watched;
use crate::{Column, Error, InvalidKind, Result, Scan, Table};

/// A transaction with snapshot isolation. It reads the data as of its start timestamp. Its
/// writes become visible all at once, at its commit timestamp, unless another transaction
/// wrote one of the same cells meanwhile.
///
/// Reads see the transaction's own buffered writes. The paper's pseudo code does not do so;
/// [`read_own_writes(false)`](Transaction::read_own_writes) gives its behaviour. Dropping a
/// transaction that was not committed leaves no trace.
///
/// Write skew is possible, as under any snapshot isolation: two transactions that read the
/// same cells and write different ones may both commit.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// tx.set(&accounts, "Bob", &bal, "$10")?;
/// tx.delete(&accounts, "Joe", &bal)?;
/// let commit_ts = tx.commit().await?;
/// let tx = client.begin().await?;
/// assert!(tx.start_ts() > commit_ts);
/// assert_eq!(tx.get(&accounts, "Joe", &bal).await?, None);
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Transaction {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stamp: Stamp,
    pub(crate) buffer: Buffer,
    /// Weak notifications to leave at the commit timestamp.
    pub(crate) notifications: BTreeSet<Cell>,
    /// The run of an observer, if the transaction belongs to one. It is in a box, because each
    /// move of a transaction copies its fields.
    pub(crate) observing: Option<Box<Observing>>,
    /// Keeps the safe point at or below `start_ts`. Commit moves it to the plan.
    pub(crate) open: Option<Open>,
    /// The data for the watcher, if there is one.
    pub(crate) watched: Option<Box<Watched>>,
    /// The span of the whole transaction. Commit moves it to the plan.
    pub(crate) span: tracing::Span,
    reads_own_writes: bool,
    /// Whether observers must not run for what the transaction writes.
    pub(crate) skips_observers: bool,
    cache: Cache,
}

/// The run of an observer in a transaction.
#[derive(Debug, Default)]
pub(crate) struct Observing {
    /// The acknowledgement. It is the primary. Other transactions have the first written cell as
    /// their primary, in the order of tables, rows and columns.
    pub(crate) ack: Option<Cell>,
    /// If no earlier acknowledgement was read: the commit fails if one was committed at or above
    /// this timestamp (see `observe/hinted.rs`).
    pub(crate) acknowledged_below: Option<Timestamp>,
    /// Further changes that the commit of the primary's row makes (see
    /// [`RowPlan`](crate::txn::row_plan::RowPlan)).
    pub(crate) handled: Vec<Mutation>,
    /// The changed cell and its value.
    pub(crate) looked_at: Option<(Cell, Seen)>,
    /// The workers that run the observer.
    pub(crate) crew: Option<Arc<Crew>>,
}

impl Transaction {
    pub(crate) fn new(shared: Arc<Shared>, stamp: Stamp, open: Open) -> Self {
        Transaction {
            cache: shared.cache(),
            shared,
            stamp,
            buffer: Buffer::default(),
            notifications: BTreeSet::new(),
            observing: None,
            open: Some(open),
            watched: None,
            span: tracing::Span::none(),
            reads_own_writes: true,
            skips_observers: false,
        }
    }

    /// The timestamp at which the transaction reads.
    pub fn start_ts(&self) -> Timestamp {
        self.stamp.timestamp
    }

    /// Sets whether reads see the transaction's own buffered writes. The default is `true`.
    pub fn read_own_writes(&mut self, yes: bool) {
        self.reads_own_writes = yes;
    }

    /// Makes the observers of this transaction's cells skip its changes, whether they were
    /// written before this call or are written after it. This is for copies of data whose
    /// observers have run elsewhere, such as an import. Derived data must be copied too: no
    /// observer makes it anew.
    ///
    /// The transaction also writes the acknowledgement of each strong observer that the schema
    /// names for its cells. These count as cells of the transaction. Observers run for later
    /// changes of the same cells, and so do observers that are registered later. An earlier
    /// change of such a cell that its observers have not handled yet is skipped too, because it
    /// is overwritten. Weak notifications are left as always.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::observe::{Observed, Strength};
    /// use percolator::Column;
    /// const TEXT: Column = Column::literal("doc:text");
    /// let (table, observer) = ("docs".to_owned(), "count-words".to_owned());
    /// let strength = Strength::Strong;
    /// client.declare(&[Observed { table, column: TEXT, observer, strength }]).await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| {
    ///     tx.skip_observers();
    ///     tx.set(&docs, "a", &TEXT, "to be or not")
    /// }).await?;
    /// assert!(client.backlog().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn skip_observers(&mut self) {
        self.skips_observers = true;
    }

    /// Whether the workers that run an observer in this transaction are stopping; `false`
    /// outside of observers. A long run can check this and end early, with
    /// [`Error::Unavailable`]. Then nothing of it takes effect, and the next worker handles
    /// the change. The check reads one flag.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # use percolator::*;
    /// # async fn page(_: usize) -> Result<()> { Ok(()) }
    /// async fn fetch(tx: &mut Transaction) -> Result<()> {
    ///     for n in 0..1000 {
    ///         if tx.is_stopping() {
    ///             return Err(Error::Unavailable("the program ends".to_owned()));
    ///         }
    ///         page(n).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn is_stopping(&self) -> bool {
        self.crew().is_some_and(|crew| crew.is_stopping())
    }

    /// Completes when the workers that run an observer in this transaction are stopping.
    /// Outside of observers it never completes. Await it beside work that takes long.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let crew = self.crew().cloned();
        async move {
            match crew {
                Some(crew) => crew.stopping().await,
                None => pending().await,
            }
        }
    }

    fn crew(&self) -> Option<&Arc<Crew>> {
        self.observing.as_ref()?.crew.as_ref()
    }

    /// Reads a cell.
    ///
    /// # Errors
    /// * [`Error::Locked`] if another transaction whose owner lives locks the cell for too
    ///   long.
    /// * [`Error::TooOld`] below the safe point.
    /// * [`Error::Invalid`] for a malformed row key or a table of another store.
    /// * Errors of the store.
    pub async fn get(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<Option<Bytes>> {
        let row = row.into();
        check_row(&row)?;
        self.shared.check_open()?;
        table.check_of(&self.shared.services().store)?;
        if let Some(own) = self.own(table, &row, column) {
            return Ok(own);
        }
        let looked_at = self.observing.as_ref().and_then(|observing| observing.looked_at.as_ref());
        let looked_at = looked_at
            .filter(|(cell, _)| (&cell.table, &cell.row, &cell.column) == (table, &row, column));
        if let Some((_, Seen::Here(value))) = looked_at {
            self.shared.counters().reads_saved.bump();
            return Ok(Some(value.clone()));
        }
        if self.cache.is_on() {
            let at = (table.clone(), row);
            let read = read_ahead(&self.shared, &self.cache, at, column, self.start_ts());
            return Box::pin(read).await;
        }
        if let Some((_, Seen::Apart(start_ts))) = looked_at {
            self.shared.counters().reads_saved.bump();
            let (shared, at) = (&self.shared, [(column, *start_ts)]);
            let values = long_values(shared, table, &row, &at, self.start_ts());
            return Ok(Box::pin(values).await?.pop());
        }
        read_cell(&self.shared, table, &row, column, self.start_ts()).await
    }

    /// Reads several columns of one row at once. Returns one value for each column, in the
    /// given order.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (title, text) = (Column::literal("doc:title"), Column::literal("doc:text"));
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &title, "A cod")).await?;
    /// let [found, missing] = client.begin().await?.get_row(&docs, "a", [&title, &text]).await?;
    /// assert_eq!(found.as_deref(), Some(&b"A cod"[..]));
    /// assert_eq!(missing, None);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub async fn get_row<const N: usize>(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        columns: [&Column; N],
    ) -> Result<[Option<Bytes>; N]> {
        let rows = [row.into()];
        let mut found = self.get_many(table, &rows, columns).await?.into_iter().flatten();
        Ok(std::array::from_fn(|_| found.next().flatten()))
    }

    /// Reads several columns of several rows at once. Returns one inner vector for each row,
    /// with one entry for each column, in the given order.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub async fn get_many<'c>(
        &self,
        table: &Table,
        rows: &[RowKey],
        columns: impl IntoIterator<Item = &'c Column>,
    ) -> Result<Vec<Vec<Option<Bytes>>>> {
        let columns: Vec<&Column> = columns.into_iter().collect();
        self.shared.check_open()?;
        table.check_of(&self.shared.services().store)?;
        let mut sorted: Vec<Column> = columns.iter().map(|column| (*column).clone()).collect();
        sorted.sort();
        sorted.dedup();
        rows.iter().try_for_each(check_row)?;
        if columns.is_empty() {
            return Ok(vec![Vec::new(); rows.len()]);
        }
        let (shared, s) = (&self.shared, self.start_ts());
        let select = selection(&sorted, s);
        let mut results = Vec::with_capacity(rows.len());
        for some in rows.chunks(ROWS_AT_ONCE) {
            let found = read_rows(shared, table, some, &select, s, Patience::Wait).await?;
            for (row, versions) in some.iter().zip(found) {
                let value = |column: &&Column| match self.own(table, row, column) {
                    Some(own) => own,
                    None => versions.iter().find(|v| v.column == **column)?.value.clone(),
                };
                results.push(columns.iter().map(value).collect());
            }
        }
        Ok(results)
    }

    /// Scans a table's rows.
    pub fn scan(&self, table: &Table) -> Scan<'_> {
        let own = self.reads_own_writes.then_some(&self.buffer);
        Scan::new(&self.shared, table, self.start_ts(), own)
    }

    /// Writes a cell. Others see nothing of it before the commit.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed row key, a table of another store, a value or a
    /// transaction beyond its limits, or a notify-only column.
    pub fn set(
        &mut self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
        value: impl Into<Value>,
    ) -> Result<()> {
        self.write(table, row.into(), column, Some(value.into().into()))
    }

    /// Deletes a cell. Observers of its column run, as for any other write.
    ///
    /// # Errors
    /// As [`set`](Transaction::set).
    pub fn delete(&mut self, table: &Table, row: impl Into<RowKey>, column: &Column) -> Result<()> {
        self.write(table, row.into(), column, None)
    }

    /// Leaves a weak notification on a notify-only column. Its observer runs at least once
    /// after this transaction commits, and nothing ever conflicts over the notification (paper
    /// section 2.4).
    ///
    /// # Errors
    /// [`Error::Invalid`] unless a weak observer is registered for the column.
    pub fn notify(&mut self, table: &Table, row: impl Into<RowKey>, column: &Column) -> Result<()> {
        let row = row.into();
        check_row(&row)?;
        check_new_row(&row)?;
        table.check_of(&self.shared.services().store)?;
        table.check_notify_key(&row)?;
        match self.shared.known_schema().strength(table.name(), column) {
            Some(Strength::Weak) => {}
            Some(Strength::Strong) => {
                return Err(Error::invalid(
                    InvalidKind::Observer,
                    format!(
                        "{}/{column} carries data and strong notifications: write it with `set`, or \
                     notify on a column of its own",
                        table.name()
                    ),
                ));
            }
            None => {
                return Err(Error::invalid(
                    InvalidKind::Observer,
                    format!(
                        "no observer is registered for notifications on {}/{column}: register one with \
                     `Registration::weak` first",
                        table.name()
                    ),
                ));
            }
        }
        let cell = Cell { table: table.clone(), row, column: column.clone() };
        if self.notifications.len() >= TRANSACTION_CELLS_MAX && !self.notifications.contains(&cell)
        {
            return Err(too_large("notifications", TRANSACTION_CELLS_MAX));
        }
        self.notifications.insert(cell);
        Ok(())
    }

    /// How many cells the transaction has written so far.
    pub fn cells_written(&self) -> usize {
        self.buffer.writes.len()
    }

    fn write(
        &mut self,
        table: &Table,
        row: RowKey,
        column: &Column,
        value: Option<Bytes>,
    ) -> Result<()> {
        check_row(&row)?;
        if value.is_some() {
            check_new_row(&row)?;
        }
        table.check_of(&self.shared.services().store)?;
        table.check_notify_key(&row)?;
        if column.is_ack() {
            return Err(Error::invalid(
                InvalidKind::Column,
                format!("column {column} is Percolator's own"),
            ));
        }
        if self.shared.known_schema().strength(table.name(), column) == Some(Strength::Weak) {
            return Err(Error::invalid(
                InvalidKind::Observer,
                format!(
                    "{}/{column} only carries notifications: use `notify`, or write another column",
                    table.name()
                ),
            ));
        }
        self.put(Cell { table: table.clone(), row, column: column.clone() }, value)
    }

    /// Buffers a write; acknowledgements are allowed.
    pub(crate) fn put(&mut self, cell: Cell, value: Option<Bytes>) -> Result<()> {
        let length = value.as_ref().map_or(0, Bytes::len);
        if length > VALUE_BYTES_MAX {
            return Err(Error::invalid(
                InvalidKind::Value,
                format!(
                    "a value of {length} bytes for {}: a cell holds at most {VALUE_BYTES_MAX}",
                    cell.location()
                ),
            ));
        }
        let names = cell.row.as_bytes().len() + cell.column.as_bytes().len();
        let bytes_of = |value: &Option<Bytes>| names + value.as_ref().map_or(0, Bytes::len);
        let Buffer { writes, bytes } = &mut self.buffer;
        let too_many = writes.len() >= TRANSACTION_CELLS_MAX;
        if too_many || *bytes + names + length > TRANSACTION_BYTES_MAX {
            // The write may fit all the same if it replaces an earlier one.
            let earlier = writes.get(&cell.table, &cell.row, &cell.column);
            if too_many && earlier.is_none() {
                return Err(too_large("cells", TRANSACTION_CELLS_MAX));
            }
            if *bytes + names + length - earlier.map_or(0, bytes_of) > TRANSACTION_BYTES_MAX {
                return Err(too_large("bytes", TRANSACTION_BYTES_MAX));
            }
        }
        *bytes += names + length;
        *bytes -= writes.insert(cell, value).as_ref().map_or(0, bytes_of);
        Ok(())
    }

    /// The transaction's own write to a cell, if it reads its own writes.
    fn own(&self, table: &Table, row: &RowKey, column: &Column) -> Option<Option<Bytes>> {
        let unseen = off(mutants::OWN_WRITES_UNSEEN);
        if self.buffer.writes.is_empty() || !self.reads_own_writes || unseen {
            return None;
        }
        self.buffer.writes.get(table, row, column).cloned()
    }
}

/// How many rows `get_many` reads at once.
const ROWS_AT_ONCE: usize = 256;

pub(crate) fn too_large(what: &str, max: usize) -> Error {
    Error::invalid(
        InvalidKind::Transaction,
        format!("the transaction has more than {max} {what}: split it into several transactions"),
    )
}

/// Checks that every store takes the key of a written row. So a program meets the limit on the
/// first store that it runs on. Rows with longer keys that older programs wrote can still be
/// read and deleted.
fn check_new_row(row: &RowKey) -> Result<()> {
    match row.as_bytes().len() {
        0..=ROW_KEY_BYTES_MAX => Ok(()),
        n => Err(Error::invalid(
            InvalidKind::RowKey,
            format!(
                "a row key of {n} bytes: at most {ROW_KEY_BYTES_MAX} are allowed, one less than the store's \
             {}, because notifications need a byte of it on stores without locality groups; use a hash of \
             it as the key",
                bigtable::ROW_KEY_BYTES_MAX
            ),
        )),
    }
}

pub(crate) fn check_row(row: &RowKey) -> Result<()> {
    match row.as_bytes().len() {
        0 => Err(Error::invalid(
            InvalidKind::RowKey,
            "an empty row key: a key has at least one byte",
        )),
        1..=bigtable::ROW_KEY_BYTES_MAX => Ok(()),
        n => Err(Error::invalid(
            InvalidKind::RowKey,
            format!(
                "a row key of {n} bytes: at most {} are allowed; use a hash of it as the key",
                bigtable::ROW_KEY_BYTES_MAX
            ),
        )),
    }
}

//! Defines the atomic change of several rows, which a store may offer beyond changes of single
//! rows.

use std::fmt::Debug;
use std::sync::Arc;

use crate::{Error, Mutation, Probe, Result, RowKey, TableSchema, Timestamp};

/// The most rows of one [`CommitRows`].
pub const COMMIT_ROWS_MAX: usize = 1000;

/// An atomic change of several rows of one store, see
/// [`Store::commit_rows`](crate::Store::commit_rows). Its timestamp is taken while the store
/// holds all the rows latched.
///
/// ```
/// use std::sync::Arc;
/// use bigtable::*;
/// const WRITE: Family = Family::from_static("write");
///
/// #[derive(Debug)]
/// struct AtSeven;
/// impl AtCommit for AtSeven {
///     fn timestamp(&self) -> Option<Timestamp> {
///         Timestamp::new(7)
///     }
///     fn mutations(&self, _row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
///         vec![Mutation::set(WRITE, "bal", commit_ts, "$10")]
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let store = MemoryStore::new();
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("write", Layout::Versions)] };
/// store.open_table("accounts", &schema).await?;
/// let row = |row: &str| CommitRow {
///     table: "accounts".into(),
///     row: row.into(),
///     predicate: vec![Probe::new(WRITE, "bal", TimeRange::since(Timestamp::new(5).unwrap()))],
/// };
/// let above = Timestamp::new(5).unwrap();
/// let rows = vec![row("Bob"), row("Joe")];
/// let request = CommitRows { rows, above, bytes: 16, at: Arc::new(AtSeven) };
/// let committed = RowsOutcome::Committed(Timestamp::new(7).unwrap());
/// assert_eq!(store.commit_rows(request.clone()).await?, committed);
/// // Now both rows hold a write since 5.
/// assert_eq!(store.commit_rows(request).await?, RowsOutcome::Rejected { row: 0 });
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CommitRows {
    /// The rows, in ascending order of table and key, without duplicates.
    pub rows: Vec<CommitRow>,
    /// The request is refused with [`TooOld`](Error::TooOld) if this timestamp is below the
    /// store's floor. The timestamp from [`at`](CommitRows::at) is above it.
    pub above: Timestamp,
    /// The approximate bytes of keys and values to write. Stores use it to bound the queue and
    /// the size of a batch.
    pub bytes: usize,
    /// The source of the timestamp, and of the changes at that timestamp.
    pub at: Arc<dyn AtCommit>,
}

/// One row of a [`CommitRows`].
///
/// See [`CommitRows`] for an example.
#[derive(Debug, Clone)]
pub struct CommitRow {
    /// The name of the row's table, which must be open.
    pub table: Arc<str>,
    /// The row.
    pub row: RowKey,
    /// The request is rejected if any of these finds a cell.
    pub predicate: Vec<Probe>,
}

/// The calls that a store makes to its caller while it holds the rows latched. They must not
/// block, and must not call the store.
///
/// See [`CommitRows`] for an example.
pub trait AtCommit: Send + Sync + Debug {
    /// Returns a timestamp above every one that was issued before. Returns `None` if none is
    /// available now; the outcome is then [`RowsOutcome::NoTimestamp`].
    fn timestamp(&self) -> Option<Timestamp>;

    /// The changes to the row at position `row` of the request.
    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation>;
}

/// The outcome of a [`CommitRows`].
///
/// See [`CommitRows`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsOutcome {
    /// Everything is written, at this timestamp.
    Committed(Timestamp),
    /// Nothing is written, because a row's predicate found a cell.
    Rejected {
        /// The position of the first such row.
        row: usize,
    },
    /// Nothing is written, because no timestamp was available.
    NoTimestamp,
}

impl CommitRows {
    /// Checks limits, the order of the rows, and their families against the schemas of their
    /// tables. For implementations of [`Store`](crate::Store).
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the limit, the rows or the family.
    pub fn check<'a>(&self, schema_of: impl Fn(usize) -> &'a TableSchema) -> Result<()> {
        if self.rows.len() > COMMIT_ROWS_MAX {
            let rows = self.rows.len();
            return Err(Error::invalid(format!(
                "the commit has {rows} rows, at most {COMMIT_ROWS_MAX} are allowed"
            )));
        }
        let ascends = |a: &CommitRow, b: &CommitRow| (&a.table, &a.row) < (&b.table, &b.row);
        if let Some(two) = self.rows.windows(2).find(|two| !ascends(&two[0], &two[1])) {
            let (a, b) = (&two[0].row, &two[1].row);
            return Err(Error::invalid(format!("rows {a} and {b} are not in ascending order")));
        }
        for (index, row) in self.rows.iter().enumerate() {
            row.row.check()?;
            row.predicate.iter().try_for_each(|probe| probe.check(schema_of(index)))?;
        }
        Ok(())
    }

    /// The changes to the row at position `row`, checked. For implementations of
    /// [`Store`](crate::Store).
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the limit or the family.
    pub fn mutations_at(
        &self,
        row: usize,
        commit_ts: Timestamp,
        schema: &TableSchema,
    ) -> Result<Vec<Mutation>> {
        let mutations = self.at.mutations(row, commit_ts);
        mutations.iter().try_for_each(|mutation| mutation.check(schema))?;
        Ok(mutations)
    }
}

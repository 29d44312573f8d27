//! Several rows in one step: what a store may offer beyond single rows.

use std::fmt::Debug;
use std::sync::Arc;

use crate::{Error, Mutation, Probe, Result, RowKey, TableSchema, Timestamp};

/// Most rows of one [`CommitRows`].
pub const COMMIT_ROWS_MAX: usize = 1000;

/// A change to several rows of one store, at a timestamp that is taken while all of them are
/// latched: all of it happens at once, or nothing (see
/// [`Store::commit_rows`](crate::Store::commit_rows)).
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
    /// The rows, in ascending order of table and key, none twice.
    pub rows: Vec<CommitRow>,
    /// Refused with [`TooOld`](Error::TooOld) unless this is at or above the store's floor. The
    /// timestamp that [`at`](CommitRows::at) gives lies above it.
    pub above: Timestamp,
    /// Keys and values that will be written, in bytes, roughly: stores bound what waits and what
    /// goes into one batch by it.
    pub bytes: usize,
    /// Gives the timestamp, and what to write at it.
    pub at: Arc<dyn AtCommit>,
}

/// One row of a [`CommitRows`].
///
/// See there for an example.
#[derive(Debug, Clone)]
pub struct CommitRow {
    /// The name of the row's table, which is open.
    pub table: Arc<str>,
    /// The row.
    pub row: RowKey,
    /// The request is rejected if any of these finds a cell.
    pub predicate: Vec<Probe>,
}

/// What a store asks of the caller while it holds the rows latched. Neither may block or come back
/// to the store.
///
/// See [`CommitRows`] for an example.
pub trait AtCommit: Send + Sync + Debug {
    /// A timestamp higher than every one that was handed out before; `None` if none is at hand,
    /// which makes the outcome [`RowsOutcome::NoTimestamp`].
    fn timestamp(&self) -> Option<Timestamp>;

    /// The changes to the row at this position.
    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation>;
}

/// What became of a [`CommitRows`].
///
/// See there for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsOutcome {
    /// Everything is written, at this timestamp.
    Committed(Timestamp),
    /// Nothing is: the predicate of the row at this position found a cell.
    Rejected {
        /// The first such row.
        row: usize,
    },
    /// Nothing is: there was no timestamp at hand.
    NoTimestamp,
}

impl CommitRows {
    /// Checks limits, order and families against the schemas of the rows' tables; for those who
    /// implement [`Store`](crate::Store).
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] names what is wrong.
    pub fn check<'a>(&self, schema_of: impl Fn(usize) -> &'a TableSchema) -> Result<()> {
        if self.rows.len() > COMMIT_ROWS_MAX {
            let rows = self.rows.len();
            return Err(Error::invalid(format!("{rows} rows, at most {COMMIT_ROWS_MAX}")));
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

    /// What to write to the row at this position, checked; for those who implement
    /// [`Store`](crate::Store).
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] names what is wrong.
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

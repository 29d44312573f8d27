//! Describes the change to one row that a request asks for: a conditional mutation or an edit.
//! The condition of a conditional mutation is a list of probes, each for a cell in some
//! columns and times. An edit is decided by a function that sees the row.
//!
//! Percolator needs only probes, which cost almost nothing. A general server of Bigtable's API
//! needs edits: filters as conditions, increments, and deletions of everything in a row.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bigtable::{ConditionalMutation, Error, Mutation, Result, Row, RowKey, Selection};
use bigtable::{Syncing, TableSchema, Timestamp};

use crate::commit::view::{RowAt, View};
use crate::failure::fault::Fault;
use crate::read::seen::Seen;

/// An edit of one row: `decide` receives the selected cells, and the mutations that it returns
/// are applied. No other change can come between.
///
/// The store calls `decide` at most once, and commits nothing else while it runs. So `decide`
/// must not block, and a panic in it ends the store. `decide` may pass results to its caller
/// through captured state.
///
/// ```
/// use bigtable::*;
/// use bigtable_fjall::{FjallStore, Options, RowEdit};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("counters");
/// # futures::executor::block_on(async {
/// const DATA: Family = Family::from_static("data");
/// let store = FjallStore::open(&dir, Options::default())?;
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// let table = store.open_fjall_table("counters", &schema).await?;
/// let select = Selection::default().column(DATA, "hits", TimeRange::ALL, 1);
/// for _ in 0..3 {
///     let edit = RowEdit::new("page", select.clone(), |row: Row| {
///         let hits = row.cells.first().map_or(0, |cell| cell.value.len());
///         vec![Mutation::set(DATA, "hits", Timestamp::ZERO, vec![b'|'; hits + 1])]
///     });
///     table.edit_row(edit).await?;
/// }
/// let row = table.read_row(&RowKey::from("page"), &select).await?;
/// assert_eq!(&row.cells[0].value[..], b"|||");
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
pub struct RowEdit {
    row: RowKey,
    select: Selection,
    decide: Box<dyn Fn(Row) -> Vec<Mutation> + Send + Sync>,
    bytes: usize,
    is_late: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    sync: Syncing,
}

impl RowEdit {
    /// An edit of `row`. The families of the mutations that `decide` returns must be the table's.
    pub fn new(
        row: impl Into<RowKey>,
        select: Selection,
        decide: impl Fn(Row) -> Vec<Mutation> + Send + Sync + 'static,
    ) -> Self {
        RowEdit {
            row: row.into(),
            select,
            decide: Box::new(decide),
            bytes: EDIT_BYTES,
            is_late: None,
            sync: Syncing::AsStore,
        }
    }

    /// Sets how many bytes of keys and values `decide` holds, so that the queue of edits also
    /// stays bounded in bytes.
    #[must_use]
    pub fn holding(mut self, bytes: usize) -> Self {
        self.bytes = bytes.max(EDIT_BYTES);
        self
    }

    /// Refuses the edit as `Unavailable` if `is_late` returns true when its turn comes. A
    /// refused edit was not applied. The caller supplies the clock.
    #[must_use]
    pub fn unless(mut self, is_late: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.is_late = Some(Box::new(is_late));
        self
    }

    /// Sets whether the edit must be on disk before it is acknowledged.
    #[must_use]
    pub fn sync(mut self, sync: Syncing) -> Self {
        self.sync = sync;
        self
    }

    pub(crate) fn check(&self, schema: &TableSchema) -> Result<()> {
        self.row.check()?;
        if self.select.above.is_some() {
            return Err(Error::invalid("an edit cannot have a condition on the floor"));
        }
        self.select.check(schema)
    }
}

impl fmt::Debug for RowEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowEdit").field("row", &self.row).finish_non_exhaustive()
    }
}

/// A request to the committer.
#[derive(Debug)]
pub(crate) enum Request {
    /// With what a scan has read before, if it is a removal.
    Conditional(ConditionalMutation, Option<Arc<Seen>>),
    Edit(RowEdit),
}

/// The result of evaluating a request against its row.
pub(crate) struct Decision<'a> {
    /// Whether the predicate held.
    pub(crate) holds: bool,
    pub(crate) mutations: Cow<'a, [Mutation]>,
}

/// The least size in bytes that the queue counts for an edit.
const EDIT_BYTES: usize = 1024;

impl Request {
    pub(crate) fn row(&self) -> &RowKey {
        match self {
            Request::Conditional(request, _) => &request.row,
            Request::Edit(edit) => &edit.row,
        }
    }

    /// The bytes of keys and values in the request.
    pub(crate) fn bytes(&self) -> usize {
        let of = |mutation: &Mutation| match mutation {
            Mutation::Set { qualifier, value, .. } => qualifier.len() + value.len(),
            Mutation::Delete { qualifier, .. } => qualifier.len(),
        };
        let changes = match self {
            Request::Conditional(request, _) => {
                request.then.iter().chain(&request.otherwise).map(of).sum()
            }
            Request::Edit(edit) => edit.bytes,
        };
        self.row().as_bytes().len() + changes
    }

    pub(crate) fn sync(&self) -> Syncing {
        match self {
            Request::Conditional(request, _) => request.sync,
            Request::Edit(edit) => edit.sync,
        }
    }

    pub(crate) fn above(&self) -> Option<Timestamp> {
        match self {
            Request::Conditional(request, _) => request.above,
            Request::Edit(_) => None,
        }
    }

    /// The packs that a scan has read, unless a batch after the scan has rewritten a history. The
    /// last batch that did has the number `rewritten`.
    pub(crate) fn seen(&self, rewritten: u64) -> Option<&Seen> {
        match self {
            Request::Conditional(_, seen) => seen.as_deref().filter(|seen| seen.holds(rewritten)),
            Request::Edit(_) => None,
        }
    }

    /// # Errors
    /// `Unavailable` if the edit's deadline passed before its turn.
    pub(crate) fn check_time(&self) -> Result<()> {
        match self {
            Request::Edit(RowEdit { is_late: Some(is_late), .. }) if is_late() => {
                let why =
                    "the deadline passed before the store began the request; nothing was changed";
                Err(Error::Unavailable { why: why.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Reads the row, and returns the mutations to apply to it.
    pub(crate) fn decide<'a>(
        &self,
        row: &mut RowAt<'a>,
        view: View<'a>,
    ) -> std::result::Result<Decision<'_>, Fault> {
        match self {
            Request::Conditional(request, _) => {
                let mut holds = false;
                for probe in &request.predicate {
                    holds = holds || view.finds(row, probe)?;
                }
                let mutations = if holds { &request.then } else { &request.otherwise };
                Ok(Decision { holds, mutations: Cow::Borrowed(mutations) })
            }
            Request::Edit(edit) => {
                let row = view.row(row.table, &edit.row, &edit.select)?;
                Ok(Decision { holds: true, mutations: Cow::Owned((edit.decide)(row)) })
            }
        }
    }
}

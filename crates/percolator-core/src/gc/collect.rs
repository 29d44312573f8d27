//! Step 3: dropping what nobody can read any more.
//!
//! Of each cell the newest write at or below the safe point stays, unless it is a deletion that
//! every observer of the column has acknowledged; what it hides goes: write records, their values,
//! and the acknowledgements of a cell that is gone. Tombs below the safe point go (late prewrites
//! are refused by the floor now: H04), and so do notifications of cells that are not dirty.
//!
//! # Why no row is locked
//!
//! Everything happens while transactions read and write the same rows. That is safe, because what
//! is dropped lies in a part of the row that no longer changes. Let F be the safe point; the floor
//! is F and every lock below it has been resolved.
//!
//! * *No write record at or below F is added any more.* A commit or roll-forward needs a lock of
//!   its transaction s. Below F there are none, and prewrite places none there, nor does a commit
//!   in one step go through; from F on, c > s >= F. So "the newest write at or below F" is the same
//!   at every later moment, a delete with these bounds is right however late it arrives, and twice
//!   is as good as once.
//! * *No reader misses it.* A read at s >= F finds the newest write at or below s, which is kept or
//!   newer. A read below F is refused in the row operation itself (H35), its second look, for a
//!   long value, too. A dropped deletion reads as absent, which is what it said.
//! * *No writer misses it.* Prewrite at s >= F looks for writes at or above s, which are above F.
//! * *No owner or resolver misses it.* The evidence that a transaction s committed or not is asked
//!   for by those who hold or meet a lock of s. Below F nobody meets one, and an owner who does not
//!   know what became of its own commit says `Unknown` below the floor, never `Aborted`; its tomb
//!   is refused there (H06).
//! * *The values that go belong to dropped writes.* The lives [s, c] of one cell's transactions do
//!   not overlap, so between the values of two dropped writes there are only values of dropped
//!   ones.
//! * *No observer is misled.* A cell and its acknowledgements leave in one row mutation, and
//!   workers read them in one row read: they see both or neither. An acknowledgement goes only when
//!   no write at or below F is left; every later one is above F and so above the acknowledged
//!   timestamp.
//!
//! Within a row the oldest goes first (H36), one mutation if it is of a reasonable size: a crash in
//! between leaves newer versions that hide what is still there.

use std::collections::{BTreeMap, BTreeSet};

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, RequestSize, Row, RowKey, RowRange, Selection,
    TimeRange, Timestamp,
};

use crate::gc::notifications::collect_notifications;
use crate::gc::pace::Pace;
use crate::gc::report::GcCounts;
use crate::mutants::{self, off};
use crate::observe::register::acknowledged;
use crate::records::layout::{DATA, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::Kind;
use crate::records::schema::{Schema, Strength};
use crate::records::write::Write;
use crate::shared::Shared;
use crate::txn::get::{Patience, read_acknowledged};
use crate::{Column, Error, Result, Table};

/// Most rows of one page.
const PAGE_ROWS: usize = 256;
/// Most versions of one column that one read returns, and that one mutation drops.
const VERSIONS_MAX: u32 = 512;
/// Most mutations in one request; one cell with its acknowledgements is not split.
const MUTATIONS_MAX: usize = 512;

/// A committed version at or below the safe point.
#[derive(Debug, Clone, Copy)]
struct Version {
    commit_ts: Timestamp,
    start_ts: Timestamp,
    delete: bool,
    /// Whether its value is in the family `data`.
    long: bool,
}

impl Version {
    fn decode(cell: &bigtable::Cell) -> Result<Self> {
        let Write { start_ts, kind, short_value } = Write::decode(&cell.value)?;
        let delete = kind == Kind::Delete;
        let long = !delete && short_value.is_none();
        Ok(Version { commit_ts: cell.timestamp, start_ts, delete, long })
    }
}

/// What is to be dropped from a row.
#[derive(Debug, Default)]
struct Plan {
    /// Requests of their own, in this order, before the others.
    first: Vec<Vec<Mutation>>,
    /// By cell; the mutations of one belong into one request.
    cells: BTreeMap<Column, Vec<Mutation>>,
    /// Each may be in any request. A cell may have more notifications than one request can delete.
    notifications: Vec<Mutation>,
}

/// What a round collects with.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) safe_point: Timestamp,
    schema: Schema,
}

/// Drops what lies hidden at the safe point, in all tables.
pub(super) async fn collect_tables(
    shared: &Shared,
    safe_point: Timestamp,
    pace: &mut Pace,
    counts: &mut GcCounts,
) -> Result<()> {
    // Read after the safe point was chosen: it names every observer that a writer below knew.
    let bounds = Bounds { safe_point, schema: Schema::read(shared.system()).await? };
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        collect_table(shared, &table, &bounds, pace, counts).await?;
    }
    Ok(())
}

async fn collect_table(
    shared: &Shared,
    table: &Table,
    bounds: &Bounds,
    pace: &mut Pace,
    counts: &mut GcCounts,
) -> Result<()> {
    let below = TimeRange::below(bounds.safe_point);
    let mut select = Selection::default()
        .family(WRITE, TimeRange::up_to(bounds.safe_point), VERSIONS_MAX)
        .family(ROLLBACK, below, u32::MAX);
    if table.notifies_apart() {
        collect_notifications(shared, table, bounds, pace, counts).await?
    } else {
        select = select.family(NOTIFY, below, u32::MAX)
    }
    let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.store().scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        let mut requests = Vec::new();
        for row in &page.rows {
            let plan = plan(shared, table, row, bounds, counts).await?;
            requests.extend(drop_first(shared, table, &row.key, plan, pace).await?);
        }
        for result in table.store().check_and_mutate_rows(requests).await {
            result?;
        }
        left = page.resume;
        pace.pause(shared).await;
    }
    Ok(())
}

/// Applies a plan up to its last request, which it returns.
async fn drop_first(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    plan: Plan,
    pace: &mut Pace,
) -> Result<Option<ConditionalMutation>> {
    let limits = shared.limits();
    let empty = RequestSize::of_row(row.as_bytes());
    let mut requests = plan.first;
    let (mut last, mut size) = (Vec::new(), empty);
    let notifications = plan.notifications.into_iter().map(|delete| vec![delete]);
    for mut mutations in plan.cells.into_values().chain(notifications) {
        let of_cell = |size| mutations.iter().fold(size, RequestSize::and);
        let grown = of_cell(size);
        let fits = grown.mutations <= MUTATIONS_MAX && limits.check(grown).is_ok();
        size = if fits { grown } else { of_cell(empty) };
        if !fits && !last.is_empty() {
            requests.push(std::mem::take(&mut last));
        }
        last.append(&mut mutations);
    }
    let request = |otherwise| ConditionalMutation { otherwise, ..ConditionalMutation::new(row) };
    for mutations in requests {
        table.store().check_and_mutate_row(request(mutations)).await?;
        pace.pause(shared).await;
    }
    Ok((!last.is_empty()).then(|| request(last)))
}

/// Decides what goes from one row.
async fn plan(
    shared: &Shared,
    table: &Table,
    found: &Row,
    bounds: &Bounds,
    counts: &mut GcCounts,
) -> Result<Plan> {
    let mut plan = Plan::default();
    let columns = committed(shared, table, found, bounds).await?;
    let clean = clean_columns(shared, table, found, &columns, bounds).await?;
    // The newest stays, unless it says "deleted" to everybody who asked.
    let stays = |column: &Column, newest: &Version| !(newest.delete && clean.contains(column));
    let living = columns.iter().filter(|(column, v)| !column.is_ack() && stays(column, &v[0]));
    let living: BTreeSet<&Column> = living.map(|(column, _)| column).collect();
    for (column, versions) in &columns {
        let of = column.acknowledges();
        let cell = of.as_ref().unwrap_or(column);
        // One whose cell cannot be told is left as it is.
        let kept = living.contains(cell) || (column.is_ack() && of.is_none());
        if kept && !off(mutants::GC_DROPS_NEWEST) {
            plan.drop_versions(column, cell, &versions[1..], counts);
        } else {
            plan.drop_versions(column, cell, versions, counts);
            counts.acknowledgements += u64::from(of.is_some());
        }
    }
    plan.drop_hints(found, &clean, counts);
    counts.cells += plan.cells.len() as u64;
    Ok(plan)
}

/// The committed versions of each column of the row, newest first.
async fn committed(
    _shared: &Shared,
    table: &Table,
    found: &Row,
    bounds: &Bounds,
) -> Result<Vec<(Column, Vec<Version>)>> {
    let writes = found.cells.iter().filter(|cell| cell.family == WRITE);
    let writes: Vec<_> = writes.collect();
    let mut columns = Vec::new();
    for cells in writes.chunk_by(|a, b| a.qualifier == b.qualifier) {
        let column = Column::from_stored(cells[0].qualifier.clone());
        let versions = cells.iter().map(|cell| Version::decode(cell));
        let mut versions = versions.collect::<Result<Vec<_>>>()?;
        // A column with more versions than one read returns.
        let mut more = cells.len() == VERSIONS_MAX as usize;
        while more && let Some(oldest) = versions.last() {
            let older = TimeRange::below(oldest.commit_ts);
            let select = Selection::default().column(WRITE, column.to_bytes(), older, VERSIONS_MAX);
            let read = table.store().read_row(&found.key, &select).await?;
            more = read.cells.len() == VERSIONS_MAX as usize;
            for cell in &read.cells {
                versions.push(Version::decode(cell)?);
            }
        }
        debug_assert!(versions.iter().all(|v| v.commit_ts <= bounds.safe_point));
        columns.push((column, versions));
    }
    Ok(columns)
}

/// Of the row's columns that are deleted or notified, those that nobody is interested in: not
/// observed, or every observer has acknowledged the newest write.
async fn clean_columns(
    shared: &Shared,
    table: &Table,
    found: &Row,
    columns: &[(Column, Vec<Version>)],
    bounds: &Bounds,
) -> Result<BTreeSet<Column>> {
    let deleted = columns.iter().filter(|(_, versions)| versions[0].delete);
    let mut asked: BTreeSet<Column> = deleted.map(|(column, _)| column.clone()).collect();
    let notified = found.cells.iter().filter(|cell| cell.family == NOTIFY);
    asked.extend(notified.map(|cell| Column::from_stored(cell.qualifier.clone())));
    let mut clean = BTreeSet::new();
    for column in asked {
        if is_clean(shared, table, &found.key, &column, bounds).await? {
            clean.insert(column);
        }
    }
    Ok(clean)
}

/// Whether nobody is interested in a column of a row: see
/// [`clean_columns`].
pub(super) async fn is_clean(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
    Bounds { schema, .. }: &Bounds,
) -> Result<bool> {
    match schema.strength(table.name(), column) {
        _ if off(mutants::GC_DROPS_UNSEEN_DELETES) => return Ok(true),
        None => return Ok(true),
        // Its notifications are all there is.
        Some(Strength::Weak) => return Ok(false),
        Some(Strength::Strong) => {}
    }
    let acks = schema.of(table.name(), column).map(|entry| column.ack_of(&entry.observer));
    let acks: Vec<_> = acks.collect();
    let mut all = acks.clone();
    all.push(column.clone());
    // The newest of all time: what is acknowledged stays so.
    let now = Timestamp::MAX;
    let versions = match read_acknowledged(shared, table, row, &all, now, Patience::GiveUp).await {
        Ok(versions) => versions,
        // Somebody is at work on it: the next round will look again.
        Err(Error::Locked { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let of = |column: &Column| versions.iter().find(|version| version.column == *column);
    let newest = of(column).map(|version| version.commit_ts);
    let acked = |ack: &Column| of(ack).and_then(|v| acknowledged(v.value.as_deref()));
    Ok(newest.is_none_or(|newest| {
        acks.iter().all(|ack| acked(ack).is_some_and(|acked| acked >= newest))
    }))
}

impl Plan {
    /// Drops versions of a column, given newest first; the last step goes together with `cell`.
    fn drop_versions(
        &mut self,
        column: &Column,
        cell: &Column,
        versions: &[Version],
        counts: &mut GcCounts,
    ) {
        let oldest_first: Vec<Version> = versions.iter().rev().copied().collect();
        let steps = oldest_first.chunks(VERSIONS_MAX as usize);
        let count = steps.len();
        for (index, step) in steps.enumerate() {
            let mutations = drop_step(column, step, index == 0);
            counts.writes += step.len() as u64;
            counts.values += step.iter().filter(|version| version.long).count() as u64;
            if index + 1 < count {
                self.first.push(mutations);
            } else {
                self.cells.entry(cell.clone()).or_default().extend(mutations);
            }
        }
    }

    /// Drops the row's tombs, and the notifications of columns that are not dirty.
    fn drop_hints(&mut self, found: &Row, clean: &BTreeSet<Column>, counts: &mut GcCounts) {
        // The tombs of a column go by one range: of an often aborted cell there are many.
        let mut tombs: BTreeMap<Column, TimeRange> = BTreeMap::new();
        for cell in &found.cells {
            let column = Column::from_stored(cell.qualifier.clone());
            let at = TimeRange::at(cell.timestamp);
            if cell.family == ROLLBACK {
                counts.tombs += 1;
                let range = tombs.entry(column).or_insert(at);
                range.from = range.from.min(cell.timestamp);
                range.to = range.to.max(cell.timestamp);
            } else if cell.family == NOTIFY && clean.contains(&column) {
                counts.notifications += 1;
                let delete = Mutation::delete(NOTIFY, column.to_bytes(), at);
                self.notifications.push(delete);
                self.cells.entry(column).or_default();
            }
        }
        for (column, range) in tombs {
            let delete = Mutation::delete(ROLLBACK, column.to_bytes(), range);
            self.cells.entry(column).or_default().push(delete);
        }
    }
}

/// The mutations that drop neighbouring versions, given oldest first, with their values. Below the
/// `oldest` of a column there is nothing, so that its range begins at zero.
fn drop_step(column: &Column, step: &[Version], oldest: bool) -> Vec<Mutation> {
    let (Some(first), Some(last)) = (step.first(), step.last()) else { return Vec::new() };
    let from = if oldest { Timestamp::ZERO } else { first.commit_ts };
    let time = TimeRange { from, to: last.commit_ts };
    let mut mutations = vec![Mutation::delete(WRITE, column.to_bytes(), time)];
    let mut long = step.iter().filter(|version| version.long);
    if let Some(first) = long.next() {
        let last = long.next_back().unwrap_or(first);
        let time = TimeRange { from: first.start_ts, to: last.start_ts };
        mutations.push(Mutation::delete(DATA, column.to_bytes(), time));
    }
    mutations
}

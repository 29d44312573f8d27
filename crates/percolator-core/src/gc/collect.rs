//! Step 3: drops versions that no reader can read any more.
//!
//! Collection keeps the newest write of each cell at or below the safe point. It drops that
//! write only if it is a deletion on which no observer has work. The column then has no
//! observer, or every observer has acknowledged the deletion. Everything that the newest write
//! hides is dropped: write records, their values, and the acknowledgements of a cell that is
//! gone. Tombs below the safe point are dropped too, because the floor now refuses late
//! prewrites (H04). Notifications in the row are dropped if their cells are not dirty.
//!
//! # Why no row is locked
//!
//! Collection runs while transactions read and write the same rows. That is safe, because it
//! only drops from a part of the row that no longer changes. Let F be the safe point. The
//! floor is F, and every lock below it has been resolved.
//!
//! * *No write record at or below F is added any more.* A commit or roll-forward needs a lock
//!   of its transaction s. Below F there are no locks, prewrite places none there, and the
//!   floor also refuses a one-step commit. From F on, c > s >= F. So "the newest write at or
//!   below F" is the same at every later moment. A delete with these bounds is right however
//!   late it arrives, and repeating it is harmless.
//! * *No reader misses a dropped version.* A read at s >= F finds the newest write at or below
//!   s, which is kept or newer. A read below F is refused in the row operation itself (H35),
//!   and so is its second read, for a long value. A cell whose deletion was dropped reads as
//!   absent, as before.
//! * *No writer misses one.* Prewrite at s >= F looks for writes at or above s, which are
//!   above F.
//! * *No owner or resolver misses one.* Only a client that holds or finds a lock of s asks
//!   whether the transaction s has committed. Below F there is no lock to find. An owner that
//!   does not know the outcome of its own commit reports `Unknown` below the floor, never
//!   `Aborted`: the floor refuses its tomb (H06).
//! * *The dropped values belong to dropped writes.* A value lies at the start timestamp s of
//!   its write. One mutation deletes the values of several successive writes, as one range of
//!   timestamps. The range holds no value of a kept write, because values have the same order
//!   as their writes. Of two transactions that write one cell, the later begins after the
//!   earlier has committed.
//! * *No observer is misled.* One row mutation drops a cell together with its
//!   acknowledgements, and workers read them in one row read. So they see both or neither. The
//!   newest acknowledgement is dropped only when no write at or below F is left. Every later
//!   write is above F, and so above the acknowledged timestamp.
//!
//! # Stores that drop superseded versions by themselves
//!
//! An embedded store merges its files all the time, and reads every version then. With the floor
//! raised and the locks swept, a version that another one superseded at or below F is hidden, by
//! the sentences above. So the store may drop it in a merge
//! ([`drop_superseded`](bigtable::Table::drop_superseded)), in any order (H79). The newest
//! write at or below F hides it, and no merge drops that one. A merge is durable at once, whatever
//! the journal says. So what the sweep has written must be durable before.
//!
//! Records whose values lie in `data` stay, because the merge does not delete those values.
//! Collection drops them, and all else that is left, but looks less often.
//!
//! Within a row the oldest versions are dropped first, in one mutation if its size is
//! reasonable. After a crash in between, newer versions still hide the ones that are left
//! (H36).

use std::collections::{BTreeMap, BTreeSet};

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, RequestSize, Row, RowKey, RowRange,
    SUPERSEDED_BYTES_MAX, Selection, TimeRange, Timestamp,
};

use crate::gc::notifications::collect_notifications;
use crate::gc::pace::Pace;
use crate::gc::report::GcCounts;
use crate::gc::tally::Tally;
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
/// Most versions of one column that one read returns and one mutation drops.
const VERSIONS_MAX: u32 = 512;
/// Most mutations in one request. The last mutations of a cell, with its acknowledgements, are
/// never split.
const MUTATIONS_MAX: usize = 512;

/// A committed version at or below the safe point.
#[derive(Debug, Clone, Copy)]
struct Version {
    commit_ts: Timestamp,
    start_ts: Timestamp,
    delete: bool,
    /// Whether its value is stored in the family `data`.
    long: bool,
    /// Whether its record is larger than stores drop by themselves.
    large: bool,
}

impl Version {
    fn decode(cell: &bigtable::Cell) -> Result<Self> {
        let Write { start_ts, kind, short_value } = Write::decode(&cell.value)?;
        let delete = kind == Kind::Delete;
        let long = !delete && short_value.is_none();
        let large = cell.value.len() > SUPERSEDED_BYTES_MAX;
        Ok(Version { commit_ts: cell.timestamp, start_ts, delete, long, large })
    }
}

/// The mutations that collect one row.
#[derive(Debug, Default)]
struct Plan {
    /// Separate requests, in this order, before all others.
    first: Vec<Vec<Mutation>>,
    /// The mutations of each cell, which belong into one request.
    cells: BTreeMap<Column, Vec<Mutation>>,
    /// Deletes of notifications, for any request. A cell may have more notifications than one
    /// request can delete.
    notifications: Vec<Mutation>,
}

/// The safe point of a round, and the schema read after it.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) safe_point: Timestamp,
    schema: Schema,
}

/// Lets the stores drop versions by themselves that are hidden at the safe point, in all tables.
pub(super) async fn let_stores_drop(
    shared: &Shared,
    safe_point: Timestamp,
    tally: &mut Tally,
) -> Result<()> {
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        let drops = table.store().drop_superseded(&WRITE, safe_point, Write::stays_in_merges);
        tally.kept += u64::from(!drops);
    }
    Ok(())
}

/// Drops the versions that are hidden at the safe point, in all tables.
pub(super) async fn collect_tables(
    shared: &Shared,
    safe_point: Timestamp,
    pace: &mut Pace,
    tally: &mut Tally,
) -> Result<()> {
    // Read after the safe point was chosen, so it names every observer that a writer below it
    // knew.
    let bounds = Bounds { safe_point, schema: Schema::read(shared.system()).await? };
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        collect_table(shared, &table, &bounds, pace, tally).await?;
    }
    Ok(())
}

async fn collect_table(
    shared: &Shared,
    table: &Table,
    bounds: &Bounds,
    pace: &mut Pace,
    tally: &mut Tally,
) -> Result<()> {
    let below = TimeRange::below(bounds.safe_point);
    let mut select = Selection::default()
        .family(WRITE, TimeRange::up_to(bounds.safe_point), VERSIONS_MAX)
        .family(ROLLBACK, below, u32::MAX);
    if table.notifies_apart() {
        collect_notifications(shared, table, bounds, pace, &mut tally.counts).await?
    } else {
        select = select.family(NOTIFY, below, u32::MAX)
    }
    let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.store().scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        tally.rows += page.rows.len() as u64;
        let mut requests = Vec::new();
        for row in &page.rows {
            let plan = plan(shared, table, row, bounds, tally).await?;
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

/// Sends all requests of a plan but the last, which it returns.
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

/// Decides which versions of one row are dropped.
async fn plan(
    shared: &Shared,
    table: &Table,
    found: &Row,
    bounds: &Bounds,
    tally: &mut Tally,
) -> Result<Plan> {
    let counts = &mut tally.counts;
    let mut plan = Plan::default();
    let columns = committed(shared, table, found, bounds).await?;
    let clean = clean_columns(shared, table, found, &columns, bounds).await?;
    // The newest version stays, unless it is a deletion that every observer has acknowledged.
    let stays = |column: &Column, newest: &Version| !(newest.delete && clean.contains(column));
    let living = columns.iter().filter(|(column, v)| !column.is_ack() && stays(column, &v[0]));
    let living: BTreeSet<&Column> = living.map(|(column, _)| column).collect();
    for (column, versions) in &columns {
        let of = column.acknowledges();
        let cell = of.as_ref().unwrap_or(column);
        // Keep an acknowledgement column whose name does not parse.
        let kept = living.contains(cell) || (column.is_ack() && of.is_none());
        let dropped =
            if kept && !off(mutants::GC_DROPS_NEWEST) { &versions[1..] } else { versions };
        plan.drop_versions(column, cell, dropped, counts);
        tally.large += dropped.iter().filter(|version| version.large).count() as u64;
        if dropped.len() == versions.len() {
            counts.acknowledgements += u64::from(of.is_some());
            tally.gone += 1;
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
        // The column has more versions than one read returns.
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

/// Returns the deleted or notified columns of the row on which no observer has work. Either the
/// column is not observed, or every observer has acknowledged its newest write.
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

/// Whether no observer has work on a column of a row: see [`clean_columns`].
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
        // A weak observer's notifications are the only sign of its work.
        Some(Strength::Weak) => return Ok(false),
        Some(Strength::Strong) => {}
    }
    let acks = schema.of(table.name(), column).map(|entry| column.ack_of(&entry.observer));
    let acks: Vec<_> = acks.collect();
    let mut all = acks.clone();
    all.push(column.clone());
    // Read the newest write of all: a write that is acknowledged now stays acknowledged.
    let now = Timestamp::MAX;
    let versions = match read_acknowledged(shared, table, row, &all, now, Patience::GiveUp).await {
        Ok(versions) => versions,
        // A transaction is at work on the cell: the next round looks again.
        Err(Error::Locked { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let of = |column: &Column| versions.iter().find(|version| version.column == *column);
    let newest = of(column).map(|version| version.commit_ts);
    let acked = |ack: &Column| of(ack).and_then(acknowledged);
    Ok(newest.is_none_or(|newest| {
        acks.iter().all(|ack| acked(ack).is_some_and(|acked| acked >= newest))
    }))
}

impl Plan {
    /// Plans to drop versions of a column, given newest first. The last step joins the request
    /// of `cell`.
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

    /// Plans to drop the row's tombs, and the notifications of columns that are not dirty.
    fn drop_hints(&mut self, found: &Row, clean: &BTreeSet<Column>, counts: &mut GcCounts) {
        // One range deletes all tombs of a column, because a cell that is often aborted has
        // many.
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

/// Builds the mutations that drop neighbouring versions, given oldest first, with their
/// values. Below the `oldest` step of a column there is nothing, so its range begins at zero.
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

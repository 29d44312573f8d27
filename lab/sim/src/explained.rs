//! Compares `explain` with real reads, over copies of what a world's store holds.
//!
//! The world takes at most three copies: at its first kills, and at the end of its storm if fewer
//! were taken. A copy has the locks, the tombs and the garbage of that moment. In the copy some
//! lock owners live, and all others are dead. Some cells of each table, cells with locks first, are
//! explained and then read, at timestamps around their records. Nothing here draws from the seed or
//! takes time in the world, so a seed's history stays the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigtable::{
    Family, Layout, LocalityGroup, MemoryStore, Mutation, PageLimit, RowKey, RowMutation, RowRange,
    Selection, Store, Table, TableSchema, TimeRange, Timestamp,
};
use futures::FutureExt;
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    CellState, Client, Column, Error, FirstStep, LockService, Options, Oracle, ProcessLocks,
    ReadOutcome, ReaderView, Result, SYSTEM_TABLE, Services, Stamp,
};

use crate::check::property;
use crate::failures::READY;
use crate::history::Finding;
use crate::names::{DATA, LOCK, NOTIFY, NOTIFY_TABLE, ROLLBACK, TABLES, WRITE};
use crate::store::new_store;
use crate::tally::{Sometimes, Tally};
use crate::world::World;

/// How many copies of one world are compared.
const COPIES_MAX: u64 = 3;
/// How many cells of a table are compared, cells with locks first.
const CELLS_MAX: usize = 6;
/// A cell is read around this many of its newest records.
const MOMENTS_MAX: usize = 3;

const SYSTEM: Family = Family::from_static("system");

/// Hands out timestamps above all those in a copy.
#[derive(Debug)]
struct Above(AtomicU64);

#[async_trait::async_trait]
impl Oracle for Above {
    async fn timestamp(&self) -> Result<Stamp> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Stamp { timestamp: self.peek().await?, schema_version: 0 })
    }

    async fn peek(&self) -> Result<Timestamp> {
        Ok(Timestamp::new(self.0.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX))
    }

    async fn schema_version(&self) -> Result<u64> {
        Ok(0)
    }

    async fn raise_schema_version(&self, _version: u64) -> Result<()> {
        Ok(())
    }
}

/// A copy of a world's store, with some application cells in it.
struct Copied {
    store: Arc<MemoryStore>,
    cells: Vec<(&'static str, RowKey, Column)>,
    latest: Timestamp,
}

/// Takes a copy, unless the world has had enough of them. Records where explanation and read
/// differ.
pub(crate) fn compare(world: &World) {
    let before = world.book().copies;
    if before >= COPIES_MAX {
        return;
    }
    world.book().copies += 1;
    let copied = copy(world);
    let runtime = VirtualRuntime::new(before);
    let found = runtime.clone().block_on(look(&runtime, copied, &world.tally));
    let facts = found.unwrap_or_else(|error| vec![format!("at the copy of a store: {error}")]);
    let findings = facts.into_iter().map(|facts| Finding { property: property::EXPLAINED, facts });
    world.book().findings.extend(findings);
}

fn copy(world: &World) -> Copied {
    let (from, to) = (world.store.inner(), new_store(&world.swarm));
    let mut copied = Copied { store: Arc::new(to), cells: Vec::new(), latest: from.floor() };
    let system = TableSchema { groups: vec![LocalityGroup::on_disk("system", Layout::Versions)] };
    copy_table(from, &mut copied, SYSTEM_TABLE, &system, &[SYSTEM]);
    let families = [LOCK, WRITE, DATA, ROLLBACK, NOTIFY];
    for name in TABLES {
        let schema = percolator_core::table_schema();
        let columns = copy_table(from, &mut copied, name, &schema, &families);
        copied.cells.extend(some_of(name, columns));
        if world.swarm.apart {
            let (name, schema) = ([NOTIFY_TABLE, name].concat(), percolator_core::notify_schema());
            copy_table(from, &mut copied, &name, &schema, &[NOTIFY]);
        }
    }
    if world.swarm.life.is_none() {
        copied.store.raise_floor(from.floor()).now_or_never().expect(READY).expect("it has floors");
    }
    copied
}

/// Copies a table's cells. Returns the columns of the table, each with a flag that is false if
/// the column is locked.
fn copy_table(
    from: &MemoryStore,
    copied: &mut Copied,
    name: &str,
    schema: &TableSchema,
    families: &[Family],
) -> BTreeSet<(bool, RowKey, bytes::Bytes)> {
    let open = |store: &MemoryStore| -> Arc<dyn Table> {
        let opened = store.open_table(name, schema).now_or_never().expect(READY);
        opened.expect("the table has this schema")
    };
    let (from, to) = (open(from), open(&copied.store));
    let all = |select: Selection, family: &Family| {
        select.family(family.clone(), TimeRange::ALL, u32::MAX)
    };
    let select = families.iter().fold(Selection::default(), all);
    let (mut columns, mut left) = (BTreeSet::new(), Some(RowRange::all()));
    while let Some(range) = left {
        let page = from.scan(&range, &select, PageLimit::default()).now_or_never().expect(READY);
        let page = page.expect("the selection is well formed");
        for row in page.rows {
            let locked: BTreeSet<_> =
                row.cells.iter().filter(|c| c.family == LOCK).map(|c| &c.qualifier).collect();
            for cell in &row.cells {
                copied.latest = copied.latest.max(cell.timestamp);
                let unlocked = !locked.contains(&cell.qualifier);
                columns.insert((unlocked, row.key.clone(), cell.qualifier.clone()));
            }
            // Cells are set one by one, because the row may have more cells than the store
            // accepts in one request.
            for bigtable::Cell { family, qualifier, timestamp, value } in row.cells {
                let set = Mutation::set(family, qualifier, timestamp, value);
                let request = RowMutation::new(&row.key).mutation(set);
                let set = to.mutate_row(request).now_or_never().expect(READY);
                set.expect("a cell that was there may be set");
            }
        }
        left = page.resume;
    }
    columns
}

/// Returns some cells of a table, cells with locks first.
fn some_of(
    table: &'static str,
    columns: BTreeSet<(bool, RowKey, bytes::Bytes)>,
) -> impl Iterator<Item = (&'static str, RowKey, Column)> {
    let cell = move |(_, row, name)| Some((table, row, Column::new(name).ok()?));
    columns.into_iter().filter_map(cell).take(CELLS_MAX)
}

/// Explains and reads each cell. Returns descriptions of all differences.
async fn look(runtime: &VirtualRuntime, copied: Copied, tally: &Tally) -> Result<Vec<String>> {
    let Copied { store, cells, latest } = copied;
    let locks = Arc::new(ProcessLocks::new(Arc::new(runtime.clone())));
    let services = Services {
        store,
        oracle: Arc::new(Above(AtomicU64::new(latest.as_u64() + 2))),
        locks: locks.clone(),
        runtime: Arc::new(runtime.clone()),
    };
    let options = Options { read_wait_max: Duration::ZERO, ..Options::default() };
    let client = Client::open(services, options).await?;
    for lock in client.held_locks(usize::MAX).await? {
        if lock.owner.0.is_multiple_of(2) {
            locks.register(lock.owner).await?;
        }
    }
    let mut facts = Vec::new();
    for (table, row, column) in cells {
        let table = client.table(table).await?;
        let state = client.cell_state(&table, &row, &column).await?;
        for at in places(&state) {
            // The state is fetched again, because the read before has resolved locks.
            let state = client.cell_state(&table, &row, &column).await?;
            let explained = state.explain(Some(at));
            let said = |ts| explained.lines.iter().any(|line| line.timestamp == ts);
            if let Some(moment) = state.moments.iter().find(|moment| !said(moment.timestamp)) {
                facts
                    .push(format!("the explanation does not mention {moment:?} of {}", state.cell));
            }
            let read = match client.snapshot_at(at).await {
                Ok(snapshot) => snapshot.get(&table, row.clone(), &column).await,
                Err(error) => Err(error),
            };
            count(tally, &explained.reader);
            if !agrees(&explained.reader, &read) {
                let reader = explained.reader;
                facts.push(format!("{}: {reader:?}, and the read is {read:?}", state.cell));
            }
        }
    }
    Ok(facts)
}

/// Returns timestamps around the cell's records, ascending. The first read near a lock is
/// below it.
fn places(state: &CellState) -> BTreeSet<Timestamp> {
    let near = |ts: Timestamp| [ts.as_u64().saturating_sub(1), ts.as_u64()];
    let records = state.moments.iter().filter(|m| m.lock.is_some() || m.write.is_some());
    let records = records.take(MOMENTS_MAX).flat_map(|moment| near(moment.timestamp));
    let ends = [near(state.floor), near(state.latest), near(state.latest).map(|ts| ts + 1)];
    records.chain(ends.into_iter().flatten()).filter_map(Timestamp::new).collect()
}

fn agrees(reader: &ReaderView, read: &Result<Option<bytes::Bytes>>) -> bool {
    match (&reader.outcome, read) {
        (ReadOutcome::Value { value, .. }, Ok(Some(read))) => value == read,
        (ReadOutcome::Absent, Ok(None))
        | (ReadOutcome::TooOld, Err(Error::TooOld { .. }))
        | (ReadOutcome::NotIssued, Err(Error::NotIssued { .. })) => true,
        (ReadOutcome::Waits { lock_ts }, Err(Error::Locked { lock_ts: waited, .. })) => {
            lock_ts == waited
        }
        _ => false,
    }
}

fn count(tally: &Tally, reader: &ReaderView) {
    match reader.first {
        Some(FirstStep::RollForward) => tally.happened(Sometimes::ExplainedRollForward),
        Some(FirstStep::RollBack) => tally.happened(Sometimes::ExplainedRollBack),
        Some(FirstStep::Decide) => tally.happened(Sometimes::ExplainedDecision),
        _ => {}
    }
    if matches!(reader.outcome, ReadOutcome::Waits { .. }) {
        tally.happened(Sometimes::ExplainedWait);
    }
}

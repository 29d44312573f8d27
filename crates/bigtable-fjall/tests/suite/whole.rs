//! Tests that readers see all of a mutation or nothing, and never an older state than before.
//! Meanwhile others write, and the engine flushes and merges on its own threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bigtable::Glanced;

use super::*;

const ROWS: usize = 8;
const WRITES: u64 = 3000;
const COLUMNS: [(Family, &str); 5] =
    [(NEWEST, "a"), (NEWEST, "z"), (MEMORY, "m"), (PLAIN, "b"), (NEWEST, "n")];

/// The newest version of each column, selected one by one.
fn newest() -> Selection {
    let column = |select: Selection, (family, qualifier): &(Family, &'static str)| {
        select.column(family.clone(), *qualifier, TimeRange::ALL, 1)
    };
    COLUMNS.iter().fold(Selection::default(), column)
}

fn write(table: &dyn Table, row: usize, number: u64) {
    let set = |(family, qualifier): &(Family, &'static str)| {
        Mutation::set(family.clone(), *qualifier, ts(number), vec![number as u8; 200])
    };
    let request = bigtable::RowMutation::new(format!("{row}"));
    let request = COLUMNS.iter().map(set).fold(request, bigtable::RowMutation::mutation);
    block_on(table.mutate_row(request)).expect("the store takes a mutation");
}

/// The state that the readers and the writer of a run share.
#[derive(Default)]
struct Run {
    over: AtomicBool,
    /// The last acknowledged mutation of each row.
    acknowledged: [AtomicU64; ROWS],
    read: AtomicU64,
}

/// Stops the readers, however the writer ends.
struct Ends<'a>(&'a Run);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

impl Run {
    fn read(&self, table: &dyn Table, first_row: usize, rest: u32) {
        let mut seen = [0; ROWS];
        let mut turn = first_row;
        while !self.over.load(Ordering::SeqCst) {
            turn += 1;
            let row = turn % ROWS;
            let acknowledged = self.acknowledged[row].load(Ordering::SeqCst);
            let read = block_on(table.read_row(&format!("{row}").into(), &newest()));
            let read = read.expect("the store answers a read");
            // In-memory cells may be older than the others, as locks are allowed to be.
            let of = |c: &bigtable::Cell| (c.family != MEMORY).then(|| c.timestamp.as_u64());
            let times: Vec<u64> = read.cells.iter().filter_map(of).collect();
            let memory = read.cells.iter().find(|cell| cell.family == MEMORY);
            let memory = memory.map_or(0, |cell| cell.timestamp.as_u64());
            let first = times.first().copied().unwrap_or_default();
            assert!(times.iter().all(|time| *time == first), "a part of a mutation: {times:?}");
            assert!(first >= seen[row], "row {row} goes back to {first}");
            assert!(first >= acknowledged, "row {row} at {first} and not {acknowledged}");
            assert!(memory >= acknowledged, "memory of row {row} at {memory}");
            assert!(memory <= first, "memory of row {row} is ahead: {memory}, {first}");
            let at = bigtable::Glance {
                row: &format!("{row}").into(),
                qualifier: b"a",
                family: &NEWEST,
                guard: &MEMORY,
                s: Timestamp::MAX,
            };
            match table.glance(at).expect("the store answers a glance") {
                Glanced::Newest(time, _) => seen[row] = time.as_u64(),
                Glanced::Absent => seen[row] = 0,
                Glanced::Nothing => panic!("nothing guards row {row}, and no rows are pending"),
            }
            assert!(seen[row] >= first, "row {row} goes back to {}", seen[row]);
            self.read.fetch_add(1, Ordering::SeqCst);
            (0..rest).for_each(|_| std::hint::spin_loop());
        }
    }

    fn write(&self, table: &dyn Table) {
        let _ends = Ends(self);
        let mut number = 0;
        // Write until the readers have read something.
        while number < WRITES || self.read.load(Ordering::SeqCst) == 0 {
            number += 1;
            let row = (number % ROWS as u64) as usize;
            write(table, row, number);
            self.acknowledged[row].store(number, Ordering::SeqCst);
        }
    }
}

fn write_and_read(options: Options, readers: usize, rest: u32) {
    let dir = tempfile::tempdir().expect("a directory for the store");
    let options = Options { write_buffer_bytes: 64 << 10, ..options };
    let store = FjallStore::open(dir.path(), options).expect("the store opens");
    let table = block_on(store.open_table("t", &schema())).expect("the table opens");
    let run = Run::default();
    std::thread::scope(|scope| {
        for reader in 0..readers {
            let (table, run) = (&*table, &run);
            scope.spawn(move || run.read(table, reader, rest));
        }
        run.write(&*table);
    });
}

#[test]
fn readers_see_whole_mutations_in_order_whatever_is_flushed() {
    // The cache is off, or so small that it always evicts, or large enough for everything.
    for recent_bytes in [0, 16 << 10, 1 << 20] {
        let options = Options { recent_bytes, ..options(Durability::Buffered) };
        write_and_read(options.clone(), 3, 0);
        // With reads this rare, the committer opens no snapshots beforehand.
        write_and_read(options, 1, 1_000_000);
    }
}

#[test]
fn readers_see_whole_mutations_that_are_synced() {
    write_and_read(Options { group_rows_max: 1, ..options(Durability::Sync) }, 2, 0);
}

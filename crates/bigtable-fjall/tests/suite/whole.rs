//! Readers see all of a mutation or nothing, and never go back, while others write and the engine flushes and
//! merges on threads of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const ROWS: u64 = 8;
const READERS: u64 = 3;
const COLUMNS: [&str; 3] = ["a", "m", "z"];

/// The newest version of each column, one by one.
fn newest() -> Selection {
    let column = |select: Selection, qualifier: &&str| {
        select.column(NEWEST, qualifier.to_string(), TimeRange::ALL, 1)
    };
    COLUMNS.iter().fold(Selection::default(), column)
}

fn write(table: &dyn Table, row: u64, number: u64) {
    let set = |qualifier: &&str| {
        Mutation::set(NEWEST, qualifier.to_string(), ts(number), vec![number as u8; 200])
    };
    let mutations = COLUMNS.iter().map(set).collect();
    let request = bigtable::RowMutation { row: format!("{row}").into(), mutations, sync: false };
    block_on(table.mutate_row(request)).expect("the store works");
}

#[test]
fn readers_see_whole_mutations_in_order_whatever_is_flushed() {
    // Nothing is remembered, or so little that it is forgotten all the time, or everything.
    for recent_bytes in [0, 16 << 10, 1 << 20] {
        write_and_read(recent_bytes);
    }
}

fn write_and_read(recent_bytes: usize) {
    let dir = tempfile::tempdir().expect("the store works");
    let options =
        Options { write_buffer_bytes: 64 << 10, recent_bytes, ..options(Durability::Buffered) };
    let store = FjallStore::open(dir.path(), options).expect("the store works");
    let table = block_on(store.open_table("t", &schema())).expect("the store works");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (table, over) = (&*table, &over);
            scope.spawn(move || {
                let mut seen = [0; ROWS as usize];
                let mut turn = reader;
                while !over.load(Ordering::SeqCst) {
                    turn += 1;
                    let row = turn % ROWS;
                    let key = format!("{row}").into();
                    let read = block_on(table.read_row(&key, &newest())).expect("the store works");
                    let times: Vec<u64> = read.cells.iter().map(|c| c.timestamp.as_u64()).collect();
                    let Some(first) = times.first() else { continue };
                    assert_eq!(times, [*first; COLUMNS.len()], "a part of a mutation of row {row}");
                    assert!(*first >= seen[row as usize], "row {row} goes back to {first}");
                    seen[row as usize] = *first;
                }
            });
        }
        for number in 1..3000 {
            write(&*table, number % ROWS, number);
        }
        over.store(true, Ordering::SeqCst);
    });
}

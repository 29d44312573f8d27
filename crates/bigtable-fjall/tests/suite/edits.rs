//! Tests edits, reading backwards, and dropping tables.

use std::sync::{Arc, Mutex};

use bigtable::{RowKey, RowMutation};
use bigtable_fjall::{FjallTable, RowEdit};

use super::*;

fn open_own(dir: &Path) -> (FjallStore, FjallTable) {
    let store = FjallStore::open(dir, options(Durability::Buffered)).expect("the store opens");
    let table = block_on(store.open_fjall_table("t", &schema())).expect("the table opens");
    (store, table)
}

#[test]
fn an_edit_sees_the_row_as_it_is_and_nothing_comes_between() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open_own(&dir.path().join("s"));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let table = table.clone();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let edit = RowEdit::new("r", everything(), |row: Row| {
                        let held: Vec<_> = EACH
                            .iter()
                            .map(|f| row.newest(f, b"q").map_or(0, |cell| cell.value.len()))
                            .collect();
                        assert!(held.iter().all(|len| *len == held[0]), "a half-made edit");
                        let value = "|".repeat(held[0] + 1);
                        EACH.iter().map(|f| set(f, 1, &value)).collect()
                    });
                    block_on(table.edit_row(edit)).expect("the edit is applied");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    let row = block_on(table.read_row(&RowKey::from("r"), &everything())).unwrap();
    assert!(row.cells.len() == 4 && row.cells.iter().all(|cell| cell.value.len() == 200));
}

#[test]
fn an_edit_whose_time_is_over_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open_own(&dir.path().join("s"));
    let edit = |row, is_late: Option<bool>| {
        let edit = RowEdit::new(row, everything(), |_| vec![set(&PLAIN, 1, "v")]);
        match is_late {
            Some(is_late) => edit.unless(move || is_late),
            None => edit,
        }
    };
    let late = block_on(table.edit_row(edit("late", Some(true))));
    assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
    let results = [edit("late", Some(true)), edit("soon", Some(false)), edit("whenever", None)];
    let results = block_on(table.edit_rows(results.into()));
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true]);
    for (row, cells) in [("late", 0), ("soon", 1), ("whenever", 1)] {
        let found = block_on(table.read_row(&RowKey::from(row), &everything())).unwrap();
        assert_eq!(found.cells.len(), cells, "{row}");
    }
}

#[test]
fn edits_of_one_call_have_their_results_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open_own(&dir.path().join("s"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let edit = |row: &str| {
        let seen = seen.clone();
        RowEdit::new(row, everything(), move |row: Row| {
            seen.lock().unwrap().push(row.cells.len());
            vec![set(&PLAIN, row.cells.len() as u64, "v")]
        })
    };
    let results = block_on(table.edit_rows(vec![edit("a"), edit(""), edit("a"), edit("a")]));
    let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, true]);
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn rows_are_found_from_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open_own(&dir.path().join("s"));
    let rows = ["a", "b", "c", "d", "e"];
    for (row, family) in rows.iter().zip(EACH.iter().cycle()) {
        block_on(table.mutate_row(RowMutation::new(*row).mutation(set(family, 1, "v")))).unwrap();
    }
    let mut range = RowRange::all();
    let mut found = Vec::new();
    while let Some(row) = table.last_row(&range).unwrap() {
        range.end = std::ops::Bound::Excluded(row.clone());
        found.push(row.to_string());
    }
    assert_eq!(found, ["e", "d", "c", "b", "a"]);
    let last = table.last_row(&RowRange::between("b", "d")).unwrap();
    assert_eq!(last, Some(RowKey::from("c")));
    assert_eq!(table.last_row(&RowRange::prefix("x")).unwrap(), None);
}

#[test]
fn a_dropped_table_leaves_nothing_to_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open_own(&dir.path().join("s"));
    for row in 0..3000 {
        let sets = EACH.iter().flat_map(|f| [set(f, 1, "old"), set(f, 2, "newer")]);
        let request = sets.fold(RowMutation::new(format!("{row}")), RowMutation::mutation);
        block_on(table.mutate_row(request)).unwrap();
    }
    store.drop_table("t").unwrap();
    store.drop_table("t").unwrap();
    assert!(block_on(store.table_names()).unwrap().is_empty());
    let late = RowMutation::new("r").mutation(set(&PLAIN, 1, "late"));
    assert!(matches!(block_on(table.mutate_row(late)), Err(Error::InvalidRequest(_))));
    let table = block_on(store.open_fjall_table("t", &schema())).unwrap();
    assert_eq!(contents(&table), []);
    // The committer's cache of the table's cells is dropped as well.
    let request = RowMutation::new("1").mutation(set(&NEWEST, 1, "new"));
    block_on(table.mutate_row(request)).unwrap();
    let rows = contents(&table);
    assert_eq!((rows.len(), rows[0].cells.len()), (1, 1));
    assert_eq!(rows[0].cells[0].timestamp, ts(1));
}

#[test]
fn who_still_has_a_dropped_table_reads_nothing_and_spoils_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = FjallStore::open(dir.path().join("s"), options(Durability::Buffered)).unwrap();
    let of = |name: &str| {
        let group = LocalityGroup::on_disk("newest", Layout::NewestFirst);
        TableSchema { groups: vec![LocalityGroup { name: name.to_owned(), ..group }] }
    };
    let dropped = block_on(store.open_fjall_table("dropped", &of("first"))).unwrap();
    store.drop_table("dropped").unwrap();
    let table = block_on(store.open_fjall_table("another", &of("second"))).unwrap();
    // The value is too large for the cache when it is written, so only readers could add an
    // entry for the key.
    let long = "x".repeat(2000);
    let write = |number| {
        let request = RowMutation::new("r").mutation(set(&NEWEST, number, &long));
        block_on(table.mutate_row(request)).unwrap();
    };
    write(1);
    let upto = TimeRange::up_to(Timestamp::MAX);
    let select = Selection::default().column(NEWEST, "q", upto, u32::MAX);
    let read = |table: &FjallTable| block_on(table.read_row(&RowKey::from("r"), &select)).unwrap();
    assert_eq!(read(&dropped).cells, []);
    assert_eq!(read(&table).cells.len(), 1);
    write(2);
    assert_eq!(read(&table).cells.len(), 2);
}

/// After a panic the cells in memory may differ from those on disk.
#[test]
fn nothing_is_answered_once_a_commit_has_panicked() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), options(durability)).unwrap();
        let table = block_on(store.open_fjall_table("t", &schema())).unwrap();
        let sets = || EACH.iter().map(|family| set(family, 1, "v")).collect();
        block_on(table.edit_row(RowEdit::new("r", everything(), move |_| sets()))).unwrap();
        let panics = RowEdit::new("r", everything(), |_| panic!("by test"));
        // The panic occurs on this thread, or on the committer's.
        let edit = std::panic::AssertUnwindSafe(|| block_on(table.edit_row(panics)));
        let outcome = std::panic::catch_unwind(edit);
        assert!(!matches!(outcome, Ok(Ok(()))), "{durability:?}");
        let row = RowKey::from("r");
        let problems = [
            files_error(block_on(table.read_row(&row, &everything()))),
            files_error(block_on(table.scan(&RowRange::all(), &everything(), Default::default()))),
            files_error(block_on(
                table.mutate_row(RowMutation::new("r").mutation(set(&PLAIN, 2, "w"))),
            )),
            files_error(block_on(store.raise_floor(ts(1)))),
            files_error(block_on(store.table_names())),
            files_error(block_on(store.open_table("other", &schema())).map(|_| ())),
        ];
        for (problem, _) in problems {
            assert!(problem.contains("a commit panicked"), "{durability:?}: {problem}");
        }
    }
}

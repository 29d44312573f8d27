//! Tests a disk that fails under an open store.

use std::time::{Duration, Instant};

use bigtable::{Error, RowKey, RowMutation, Selection, Store, TimeRange};
use bigtable_fjall::{Condition, Durability, FjallStore, Options};
use futures::executor::block_on;

use crate::{PLAIN, options, schema, set, ts};

fn halted<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Halted { .. })), "{result:?}");
}

#[test]
fn nothing_is_answered_when_the_files_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { write_buffer_bytes: 64 << 10, ..options(Durability::Buffered) };
    let store = FjallStore::open(dir.path(), small).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    let write = |row: usize| {
        let value = "v".repeat(8000);
        block_on(
            table.mutate_row(RowMutation::new(format!("{row}")).mutation(set(&PLAIN, 1, &value))),
        )
    };
    write(0).unwrap();
    // New sorted runs cannot be written any more. The engine notices this in the background.
    std::fs::remove_dir_all(dir.path().join("engine")).unwrap();
    let begun = Instant::now();
    let error = (1..).find_map(|row| {
        assert!(begun.elapsed() < Duration::from_secs(60), "the failure was never noticed");
        write(row).err()
    });
    let error = error.expect("the loop ends with an error");
    assert!(matches!(error, Error::Unknown { .. } | Error::Halted { .. }), "{error}");
    let text = write(0).expect_err("the store has halted").to_string();
    assert!(text.contains("open the store again"), "{text}");
    assert!(matches!(store.condition(), Condition::Halted { .. }));
    let select = Selection::default().column(PLAIN, "q", TimeRange::ALL, 1);
    halted(block_on(table.read_row(&RowKey::from("0"), &select)));
    halted(block_on(table.scan(&bigtable::RowRange::all(), &select, Default::default())));
    halted(block_on(store.raise_floor(ts(1))));
    halted(block_on(store.table_names()));
    halted(block_on(store.open_table("u", &schema())));
    let batch =
        block_on(table.check_and_mutate_rows(vec![bigtable::ConditionalMutation::new("r")]));
    batch.into_iter().for_each(halted);
}

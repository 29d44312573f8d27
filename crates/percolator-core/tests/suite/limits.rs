//! Tests limits of cells, names and transactions, transactions over several tables, and the
//! state after a limit was reached.

use percolator_core::{
    Bytes, COLUMN_BYTES_MAX, Column, Error, ROW_KEY_BYTES_MAX, Registration, RowKey,
    TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX, Timestamp, WorkerOptions,
};

use crate::faults::LOCK;
use crate::world::{A, B, BAL, counting, get, run};

fn is_invalid<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Invalid { .. }))
}

#[test]
fn rows_values_and_columns_have_limits_that_are_checked_before_any_request() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        world.store.clear_trace();
        let row = |n: usize| RowKey::from(vec![b'r'; n]);
        assert!(is_invalid(tx.set(&table, row(0), &BAL, "v")));
        assert!(is_invalid(tx.set(&table, row(bigtable::ROW_KEY_BYTES_MAX + 1), &BAL, "v")));
        assert!(is_invalid(tx.get(&table, row(0), &BAL).await));
        assert!(is_invalid(tx.get_many(&table, &[row(0)], &[BAL]).await));
        let value = |n: usize| Bytes::from(vec![0; n]);
        assert!(is_invalid(tx.set(&table, "r", &BAL, value(bigtable::VALUE_BYTES_MAX + 1))));
        assert_eq!(tx.cells_written(), 0);
        assert!(world.store.trace().is_empty());
        tx.set(&table, row(ROW_KEY_BYTES_MAX), &BAL, "v").unwrap();
        // Some stores need one byte of the key. So every store has this limit for a program.
        assert!(is_invalid(tx.set(&table, row(ROW_KEY_BYTES_MAX + 1), &BAL, "v")));
        assert!(tx.get(&table, row(ROW_KEY_BYTES_MAX + 1), &BAL).await.unwrap().is_none());
        tx.delete(&table, row(ROW_KEY_BYTES_MAX + 1), &BAL).unwrap();
        tx.set(&table, "r", &BAL, value(bigtable::VALUE_BYTES_MAX)).unwrap();
        tx.set(&table, "empty", &BAL, "").unwrap();
        let longest = Column::new(vec![b'c'; COLUMN_BYTES_MAX]).unwrap();
        tx.set(&table, "r", &longest, "v").unwrap();
        tx.commit().await.unwrap();
        let tx = client.begin().await.unwrap();
        let length = tx.get(&table, "r", &BAL).await.unwrap().map(|value| value.len());
        assert_eq!(length, Some(bigtable::VALUE_BYTES_MAX));
        assert_eq!(get(&client, &table, "empty").await.as_deref(), Some(""));
        for name in ["", ":", ":q", "a b", "é", "ack", "ack:x", "f/g"] {
            assert!(is_invalid(Column::new(name)), "{name:?}");
        }
        assert!(is_invalid(Column::new(vec![b'c'; COLUMN_BYTES_MAX + 1])));
        for name in ["f", "f:", "f::", "f: \u{1F600}", "-_.9:x", "ackn:x"] {
            assert!(Column::new(name).is_ok(), "{name:?}");
        }
        for name in ["", "a/b", "percolator.system", &"x".repeat(51)] {
            assert!(is_invalid(client.table(name).await), "{name:?}");
        }
    });
}

#[test]
fn a_transaction_at_its_limit_keeps_what_it_has() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        for n in 0..TRANSACTION_CELLS_MAX {
            tx.set(&table, format!("{n:06}"), &BAL, "v").unwrap();
        }
        assert!(is_invalid(tx.set(&table, "one more", &BAL, "v")));
        assert_eq!(tx.cells_written(), TRANSACTION_CELLS_MAX);
        tx.set(&table, "000000", &BAL, "overwritten").unwrap();
        tx.delete(&table, "000001", &BAL).unwrap();
        assert!(tx.get(&table, "one more", &BAL).await.unwrap().is_none());
        // Reach the limit of bytes: the same buffer counts several times.
        let mut tx = client.begin().await.unwrap();
        let quarter = Bytes::from(vec![0; TRANSACTION_BYTES_MAX / 4]);
        for row in ["a", "b", "c"] {
            tx.set(&table, row, &BAL, quarter.clone()).unwrap();
        }
        assert!(is_invalid(tx.set(&table, "d", &BAL, quarter.clone())), "names count too");
        assert_eq!(tx.cells_written(), 3);
        tx.set(&table, "c", &BAL, quarter.clone()).unwrap();
        tx.delete(&table, "a", &BAL).unwrap();
        tx.set(&table, "d", &BAL, quarter).unwrap();
    });
}

#[test]
fn one_transaction_spans_tables() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let tables = [owner.table("a").await.unwrap(), owner.table("b").await.unwrap()];
        for (forward, value) in [(true, "first"), (false, "second")] {
            let mut tx = owner.begin().await.unwrap();
            for table in tables.iter().rev() {
                tx.set(table, "r", &A, value).unwrap();
                tx.set(table, "s", &B, value).unwrap();
            }
            let prewritten = tx.prewrite().await.unwrap();
            let decided =
                if forward { Some(prewritten.commit_primary().await.unwrap()) } else { None };
            drop(decided);
            world.declare_dead(&owner);
            let tx = other.begin().await.unwrap();
            for table in tables.iter().rev() {
                let rows = tx.scan(table).collect().await.unwrap();
                let values: Vec<_> = rows.iter().map(|row| &row.cells[0].1[..]).collect();
                assert_eq!(values, [b"first", b"first"], "{}", table.name());
            }
        }
        for table in &tables {
            assert_eq!(world.cells(table, LOCK).await, 0);
            world.audit(table).await;
        }
        assert_eq!(other.table_names().await.unwrap(), ["a", "b"]);
    });
}

#[test]
fn a_transaction_that_wrote_nothing_commits_without_a_request() {
    run(async |world| {
        let client = world.client().await;
        let tx = client.begin().await.unwrap();
        let (s, before) = (tx.start_ts(), world.oracle.peek().await.unwrap());
        world.store.clear_trace();
        assert_eq!(tx.commit().await.unwrap(), s);
        assert!(world.store.trace().is_empty());
        assert_eq!(world.oracle.peek().await.unwrap(), before);
        let nothing = client.begin().await.unwrap().prewrite().await;
        assert!(matches!(nothing, Err(Error::Invalid { .. })));
    });
}

#[test]
fn acknowledgements_are_not_seen_by_scans_nor_written_by_applications() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let strong = Registration::strong("o", "t", &BAL, counting(A));
        let workers = client.observe(vec![strong], WorkerOptions::default()).await.unwrap();
        client.transact(async |mut tx| tx.set(&table, "r", &BAL, "1")).await.unwrap();
        client.wait_idle(None).await.unwrap();
        let rows = client.begin().await.unwrap().scan(&table).collect().await.unwrap();
        let columns: Vec<_> = rows[0].cells.iter().map(|(column, _)| column.clone()).collect();
        assert_eq!(columns, [BAL, A]);
        assert!(Timestamp::ZERO < world.oracle.peek().await.unwrap());
        workers.stop().await;
    });
}

//! Tests reads and scans: locks in the way, paging, own writes, columns (H27 to H39, H65).

use std::collections::BTreeMap;

use percolator_core::{
    Client, Column, Error, Options, RowKey, RowRange, Runtime, Table, Timestamp,
};

use crate::faults::{Fault, LOCK, Op, Weather};
use crate::world::{A, B, BAL, get, is_aborted, run, run_seed, set, writing};

#[test]
fn h27_a_commit_between_a_readers_begin_and_its_read_is_seen_whole() {
    run(async |world| {
        let (writer, reader) = (world.client().await, world.client().await);
        let table = writer.table("t").await.unwrap();
        set(&writer, &table, &[("p", "old"), ("s", "old")]).await;
        let held = world.store.on(Op::CommitPrimary, "p", 1, Fault::Hold);
        let cells = [("p", "new"), ("s", "new")];
        let commit = world.beside(writing(&writer, &table, &cells).await.commit());
        held.arrived().await;
        let tx = reader.begin().await.unwrap();
        let (s, table_) = (tx.start_ts(), table.clone());
        let read = world.beside(async move {
            let s = tx.get(&table_, "s", &BAL).await;
            (s, tx.get(&table_, "p", &BAL).await)
        });
        world.sleep_ms(500).await;
        held.release();
        let commit_ts = commit.await.unwrap().unwrap();
        assert!(commit_ts < s, "the writer's timestamp was issued first");
        let (read_s, read_p) = read.await.unwrap();
        assert_eq!(read_s.unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(read_p.unwrap().as_deref(), Some(&b"new"[..]));
    });
}

#[test]
fn h28_every_value_passed_a_lock_check_at_the_same_timestamp() {
    run(async |world| {
        let (writer, reader) = (world.client().await, world.client().await);
        let table = writer.table("t").await.unwrap();
        let write = async |column: &Column, value: &'static str| {
            let mut tx = writer.begin().await.unwrap();
            tx.set(&table, "r", column, value).unwrap();
            tx.prewrite().await.unwrap()
        };
        write(&A, "old").await.commit_primary().await.unwrap();
        write(&B, "old").await.commit_primary().await.unwrap();
        let earlier = write(&B, "earlier").await;
        let tx = reader.begin().await.unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap().as_deref(), Some(&b"old"[..]));
        // A lock from before `s` blocks, even if the row was read before. A lock from after
        // `s` does not.
        let later = write(&A, "later").await;
        assert_eq!(tx.get(&table, "r", &A).await.unwrap().as_deref(), Some(&b"old"[..]));
        later.commit_primary().await.unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap().as_deref(), Some(&b"old"[..]));
        let table_ = table.clone();
        let blocked =
            world.beside(async move { tx.get_many(&table_, &["r".into()], &[A, B]).await });
        world.sleep_ms(100).await;
        // The writer's commit timestamp is above the reader's, so the reader must see the old
        // value.
        earlier.commit_primary().await.unwrap();
        let row = blocked.await.unwrap().unwrap().remove(0);
        assert_eq!(row, [Some("old".into()), Some("old".into())]);
    });
}

#[test]
fn h28_a_reader_gives_up_on_a_living_owner_after_a_bound() {
    run(async |world| {
        let (writer, reader) = (world.client().await, world.client().await);
        let table = writer.table("t").await.unwrap();
        let held = world.store.on(Op::CommitPrimary, "a", 1, Fault::Hold);
        let commit = world.beside(writing(&writer, &table, &[("a", "1")]).await.commit());
        held.arrived().await;
        let before = world.runtime.now();
        let tx = reader.begin().await.unwrap();
        let result = tx.get(&table, "a", &BAL).await;
        let Err(Error::Locked { cell, owner, .. }) = result else { panic!("{result:?}") };
        assert_eq!((cell.to_string().as_str(), owner), ("t/a/bal", writer.incarnation()));
        let waited = world.runtime.now() - before;
        assert!(waited < reader.options().read_wait_max + reader.options().lock_lifetime);
        // After a scan has failed at the lock, it can go on, and misses nothing.
        let mut scan = tx.scan(&table);
        assert!(scan.next().await.is_err());
        held.release();
        commit.await.unwrap().unwrap();
        assert!(scan.next().await.unwrap().is_some(), "its timestamp was there before the reader");
    });
}

#[test]
fn a_scan_goes_on_where_an_error_stopped_it() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("a", "1"), ("b", "1")]).await;
        world.store.when(1, Fault::Fail, |request| request.op == Op::Scan);
        let tx = client.begin().await.unwrap();
        let mut scan = tx.scan(&table);
        assert!(scan.next().await.is_err());
        assert_eq!(scan.collect().await.unwrap().len(), 2);
    });
}

#[test]
fn a_scan_reads_many_long_values_at_the_same_time() {
    run(async |world| {
        let (writer, reader) = (world.client().await, world.client().await);
        let table = writer.table("t").await.unwrap();
        let value = |n: usize| vec![b'x'; if n.is_multiple_of(3) { 10 } else { 2_000 + n }];
        let mut tx = writer.begin().await.unwrap();
        for n in 0..90 {
            tx.set(&table, format!("{n:02}"), &BAL, value(n)).unwrap();
        }
        tx.commit().await.unwrap();
        // A lock in the midst of them, whose owner is dead.
        let other = world.client().await;
        let mut tx = other.begin().await.unwrap();
        tx.set(&table, "40", &BAL, "never committed").unwrap();
        drop(tx.prewrite().await.unwrap());
        world.declare_dead(&other);
        // The first value comes last.
        let first = world.store.on(Op::Read, "01", 1, Fault::Hold);
        let others = world.store.when(1_000, Fault::Hold, |request| {
            request.op == Op::Read && request.row != "01".into()
        });
        let tx = reader.begin().await.unwrap();
        let scanned = world.beside(async move { tx.scan(&table).collect().await });
        world.sleep_ms(1).await;
        assert_eq!(first.count() + others.count(), 32, "the most at the same time");
        others.release();
        world.sleep_ms(1).await;
        first.release();
        let rows = scanned.await.unwrap().unwrap();
        let found = rows.iter().map(|row| (row.row.clone(), row.cells[0].1.to_vec()));
        let expected = (0..90).map(|n| (format!("{n:02}").into(), value(n)));
        assert!(found.eq(expected), "each row has its own value, in order");
    });
}

#[test]
fn h30_a_scan_finds_new_rows_whose_commit_stopped_half_way() {
    run(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = writing(&owner, &table, &[("a", "1"), ("b", "1")]).await;
        drop(tx.prewrite().await.unwrap().commit_primary().await.unwrap());
        let rows = other.begin().await.unwrap().scan(&table).collect().await.unwrap();
        assert_eq!(rows.len(), 2);
    });
}

/// A table in which every third row is locked in one way or another.
async fn locked_table(client: &Client, table: &Table, dead: &[Client]) -> BTreeMap<String, String> {
    let mut model = BTreeMap::new();
    for n in 0..24 {
        let row = format!("r{n:02}");
        set(client, table, &[(&row, &row)]).await;
        model.insert(row, format!("r{n:02}"));
    }
    for n in (0..24).step_by(3) {
        let (row, next) = (format!("r{n:02}"), format!("r{:02}", n + 1));
        let owner = &dead[n % dead.len()];
        let mut tx = owner.begin().await.unwrap();
        tx.set(table, row.as_str(), &BAL, "new").unwrap();
        tx.delete(table, next.as_str(), &BAL).unwrap();
        tx.set(table, format!("{row}+"), &BAL, "born").unwrap();
        let prewritten = tx.prewrite().await.unwrap();
        if n % 2 == 0 {
            drop(prewritten.commit_primary().await.unwrap());
            model.insert(row.clone(), "new".to_owned());
            model.insert(format!("{row}+"), "born".to_owned());
            model.remove(&next);
        }
    }
    model
}

#[test]
fn h31_scans_with_locks_everywhere_equal_the_model_whatever_the_page() {
    for limit in (1..30).chain([usize::MAX]) {
        run_seed(limit as u64, async |world| {
            let client = world.client().await;
            let table = client.table("t").await.unwrap();
            let dead = [world.client().await, world.client().await, world.client().await];
            let mut model = locked_table(&client, &table, &dead).await;
            dead.iter().for_each(|client| world.declare_dead(client));
            let mut tx = client.begin().await.unwrap();
            if limit % 2 == 0 {
                // Own writes lie over the pages: at the ends, in the middle, and hiding rows.
                for row in ["a", "r04", "r05x", "z"] {
                    tx.set(&table, row, &BAL, "own").unwrap();
                    model.insert(row.to_owned(), "own".to_owned());
                }
                for row in ["r02", "r05", "r23", "none"] {
                    tx.delete(&table, row, &BAL).unwrap();
                    model.remove(row);
                }
            }
            let mut seen = Vec::new();
            let mut left = Some(RowRange::all());
            while let Some(range) = left {
                let page =
                    tx.scan(&table).range(range.clone()).limit(limit).collect().await.unwrap();
                assert!(page.len() <= limit);
                left = match page.last() {
                    Some(last) if page.len() == limit => Some(range.after(last.row.clone())),
                    _ => None,
                };
                seen.extend(page);
            }
            let seen: Vec<(RowKey, Vec<u8>)> =
                seen.into_iter().map(|row| (row.row, row.cells[0].1.to_vec())).collect();
            let expected: Vec<(RowKey, Vec<u8>)> =
                model.into_iter().map(|(row, value)| (row.into(), value.into_bytes())).collect();
            assert_eq!(seen, expected, "limit {limit}");
        });
    }
}

#[test]
fn h31_get_many_loses_no_key() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let dead = [world.client().await];
        let model = locked_table(&client, &table, &dead).await;
        world.declare_dead(&dead[0]);
        let mut rows: Vec<RowKey> = (0..300).map(|n| format!("r{:02}", n % 30).into()).collect();
        rows.reverse();
        let mut tx = client.begin().await.unwrap();
        tx.set(&table, "r29", &BAL, "own").unwrap();
        let columns = [B, BAL, B, BAL];
        let found = tx.get_many(&table, &rows, &columns).await.unwrap();
        assert_eq!(found.len(), rows.len());
        for (row, values) in rows.iter().zip(found) {
            let own = (*row == "r29".into()).then(|| "own".to_owned());
            let value = own.or_else(|| model.get(&row.to_string()).cloned());
            let value = value.map(|value| value.into_bytes().into());
            assert_eq!(values, [None, value.clone(), None, value], "{row}");
        }
        assert!(tx.get_many(&table, &rows, &[]).await.unwrap().iter().all(Vec::is_empty));
    });
}

#[test]
fn h32_rolled_back_transactions_hide_nothing() {
    run(async |world| {
        let reader = world.client().await;
        let table = reader.table("t").await.unwrap();
        let commit_ts = set(&reader, &table, &[("r", "kept")]).await;
        for n in 0..50 {
            let owner = world.client().await;
            let value = if n % 2 == 0 { "short".to_owned() } else { "long".repeat(100) };
            drop(writing(&owner, &table, &[("r", &value)]).await.prewrite().await.unwrap());
            world.declare_dead(&owner);
            assert_eq!(get(&reader, &table, "r").await.as_deref(), Some("kept"));
        }
        let history = reader.cell_history(&table, "r", &BAL).await.unwrap();
        assert!(
            history.iter().any(|moment| moment.timestamp == commit_ts && moment.write.is_some())
        );
        assert_eq!(history.iter().filter(|moment| moment.data.is_some()).count(), 1);
        assert_eq!(history.iter().filter(|moment| moment.rolled_back).count(), 50);
    });
}

#[test]
fn h34_a_transaction_seen_alive_and_committed_later_is_read_as_committed() {
    run(async |world| {
        let (owner, reader) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
        let prewritten = tx.prewrite().await.unwrap();
        // A writer that reads nothing looks into the lock, finds the owner alive, and gives
        // up.
        assert!(is_aborted(&writing(&reader, &table, &[("s", "2")]).await.commit().await));
        drop(prewritten.commit_primary().await.unwrap());
        assert_eq!(get(&reader, &table, "s").await.as_deref(), Some("1"));
    });
}

#[test]
fn h37_a_transaction_reads_its_own_writes_unless_asked_otherwise() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("a", "old"), ("b", "old")]).await;
        let mut tx = client.begin().await.unwrap();
        tx.set(&table, "a", &BAL, "own").unwrap();
        tx.delete(&table, "b", &BAL).unwrap();
        tx.set(&table, "c", &BAL, "own").unwrap();
        for own in [true, false] {
            tx.read_own_writes(own);
            let text = |value: Option<percolator_core::Bytes>| value.map(|v| v.to_vec());
            let (old, new) = (Some(b"old".to_vec()), Some(b"own".to_vec()));
            let expected = if own { [new.clone(), None, new] } else { [old.clone(), old, None] };
            let rows = ["a".into(), "b".into(), "c".into()];
            let many = tx.get_many(&table, &rows, &[BAL]).await.unwrap();
            let scanned = tx.scan(&table).collect().await.unwrap();
            for (n, row) in ["a", "b", "c"].into_iter().enumerate() {
                assert_eq!(text(tx.get(&table, row, &BAL).await.unwrap()), expected[n]);
                assert_eq!(text(many[n][0].clone()), expected[n]);
                let scanned = scanned.iter().find(|found| found.row == row.into());
                assert_eq!(scanned.map(|found| found.cells[0].1.to_vec()), expected[n]);
            }
        }
    });
}

#[test]
fn h38_columns_of_one_row_are_independent_and_one_transaction_is_whole() {
    run(async |world| {
        let (one, two) = (world.client().await, world.client().await);
        let table = one.table("t").await.unwrap();
        let (mut first, mut second) = (one.begin().await.unwrap(), two.begin().await.unwrap());
        first.set(&table, "r", &A, "first").unwrap();
        second.set(&table, "r", &B, "no").unwrap();
        second.set(&table, "r", &B, "second").unwrap();
        let first = first.prewrite().await.unwrap();
        second.commit().await.unwrap();
        first.commit_primary().await.unwrap();
        let row =
            one.begin().await.unwrap().get_many(&table, &["r".into()], &[A, B]).await.unwrap();
        assert_eq!(row[0], [Some("first".into()), Some("second".into())]);
        // Both writes are lost or none, whichever of the two conflicts.
        for column in [A, B] {
            let mut loser = one.begin().await.unwrap();
            loser.set(&table, "r", &A, "lost").unwrap();
            loser.set(&table, "r", &B, "lost").unwrap();
            two.transact(async |mut tx| tx.set(&table, "r", &column, "won")).await.unwrap();
            assert!(is_aborted(&loser.commit().await));
        }
        let row =
            one.begin().await.unwrap().get_many(&table, &["r".into()], &[A, B]).await.unwrap();
        assert_eq!(row[0], [Some("won".into()), Some("won".into())]);
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

#[test]
fn h39_a_client_sees_what_was_committed_before_it_began() {
    run(async |world| {
        world.store.set_weather(Weather {
            delay_max: std::time::Duration::from_millis(2),
            ..Weather::default()
        });
        let table = world.client().await.table("t").await.unwrap();
        let mut last = Timestamp::ZERO;
        for n in 0..50 {
            let (writer, reader) = (world.client().await, world.client().await);
            let value = n.to_string();
            let commit_ts = set(&writer, &table, &[("p", &value), ("s", &value)]).await;
            assert!(commit_ts > last);
            last = commit_ts;
            let tx = reader.begin().await.unwrap();
            assert!(tx.start_ts() > commit_ts);
            for row in ["p", "s"] {
                let read = tx.get(&table, row, &BAL).await.unwrap();
                assert_eq!(read.as_deref(), Some(value.as_bytes()));
            }
        }
    });
}

#[test]
fn h65_any_bytes_name_a_cell_and_its_locks_resolve() {
    let names: [&[u8]; 6] = [b"f", b"f:", b"f:\x00", b"f:\xff\xff", b"f:a/b:c", b"f:\x00\x01\x00"];
    let rows: [&[u8]; 5] = [b"\x00", b"\xff", b"a\x00b", b"a", b"\xff\xff\xff"];
    run(async |world| {
        let reader = world.client().await;
        let table = reader.table("t").await.unwrap();
        for name in names {
            let column = Column::new(name.to_vec()).unwrap();
            for forward in [true, false] {
                let owner = world.client().await;
                let mut tx = owner.begin().await.unwrap();
                for row in rows {
                    tx.set(&table, row, &column, row.to_vec()).unwrap();
                }
                let prewritten = tx.prewrite().await.unwrap();
                if forward {
                    drop(prewritten.commit_primary().await.unwrap());
                } else {
                    drop(prewritten);
                }
                world.declare_dead(&owner);
                let tx = reader.begin().await.unwrap();
                let found = tx.scan(&table).columns([&column]).collect().await.unwrap();
                let mut expected: Vec<RowKey> = rows.iter().map(|row| RowKey::from(*row)).collect();
                expected.sort();
                assert!(found.iter().map(|row| &row.row).eq(&expected));
                assert!(found.iter().all(|row| *row.cells[0].1 == *row.row.as_bytes()));
            }
        }
        assert_eq!(world.cells(&table, LOCK).await, 0);
        world.audit(&table).await;
    });
}

#[test]
fn snapshots_of_the_future_and_below_the_floor_are_refused() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let first = set(&client, &table, &[("a", "1")]).await;
        let second = set(&client, &table, &[("a", "2")]).await;
        let at = async |ts| {
            let snapshot = client.snapshot_at(ts).await?;
            snapshot.get(&table, "a", &BAL).await.map(|value| value.map(|value| value[0]))
        };
        assert_eq!(at(first.previous()).await.unwrap(), None);
        assert_eq!(at(first).await.unwrap(), Some(b'1'));
        assert_eq!(at(second.previous()).await.unwrap(), Some(b'1'));
        assert_eq!(at(second).await.unwrap(), Some(b'2'));
        let latest = world.oracle.peek().await.unwrap();
        let future = at(latest.next()).await;
        assert!(matches!(future, Err(Error::NotIssued { asked, latest: l })
            if asked == latest.next() && l == latest));
        let open = client.snapshot_at(first).await.unwrap();
        bigtable::Store::raise_floor(&*world.store, second).await.unwrap();
        assert!(matches!(at(first).await, Err(Error::TooOld { .. })));
        let below = open.get(&table, "a", &BAL).await;
        assert!(matches!(below, Err(Error::TooOld { .. })), "H35: an error, not None: {below:?}");
        assert!(open.scan(&table).collect().await.is_err());
        assert_eq!(at(second).await.unwrap(), Some(b'2'));
    });
}

/// A row of the same name is another row in another store.
#[test]
fn a_table_of_another_store_is_refused() {
    run(async |world| {
        let client = world.client().await;
        let runtime = &world.runtime;
        let foreign = percolator_core::testing::client(runtime, Options::default()).await.unwrap();
        let (own, other) = (client.table("t").await.unwrap(), foreign.table("t").await.unwrap());
        let refused = |result: Result<(), Error>| {
            let Err(Error::Invalid { what: why, .. }) = result else {
                panic!("it was taken: {result:?}")
            };
            assert!(why.contains("table t was opened by a client of another store"), "{why}");
        };
        let mut tx = client.begin().await.unwrap();
        refused(tx.set(&other, "a", &BAL, "1"));
        refused(tx.delete(&other, "a", &BAL));
        refused(tx.get(&other, "a", &BAL).await.map(drop));
        refused(tx.get_many(&other, &["a".into()], &[BAL]).await.map(drop));
        refused(tx.scan(&other).next().await.map(drop));
        // Another client of the same store shares its tables.
        let second = world.client().await;
        set(&second, &own, &[("a", "1")]).await;
        assert_eq!(get(&client, &own, "a").await.as_deref(), Some("1"));
    });
}

/// Keys and ages are in opposite orders: the oldest locks are in the last table, and there in the
/// last rows.
#[test]
fn the_locks_that_are_listed_are_the_oldest() {
    run(async |world| {
        let client = world.client().await;
        let mut held = Vec::new();
        for name in ["u", "t"] {
            let table = client.table(name).await.unwrap();
            for row in ["d", "c", "b", "a"] {
                let tx = writing(&client, &table, &[(row, "1")]).await;
                held.push(tx.prewrite().await.unwrap());
            }
        }
        let listed = async |limit: usize| -> Vec<String> {
            let locks = client.held_locks(limit).await.unwrap();
            locks.iter().map(|l| format!("{}{}", l.cell.table, l.cell.row)).collect()
        };
        let all = ["ud", "uc", "ub", "ua", "td", "tc", "tb", "ta"];
        for limit in 0..=all.len() {
            assert_eq!(listed(limit).await, all[..limit]);
        }
        assert_eq!(listed(usize::MAX).await, all);
        for prewritten in held {
            prewritten.commit_primary().await.unwrap();
        }
    });
}

//! Tests rows with many columns and long names, on stores that accept only requests of a
//! limited size (H69, H70).

use std::collections::BTreeSet;
use std::time::Duration;

use percolator_core::{
    AbortReason, Bytes, COLUMN_BYTES_MAX, Client, Column, Error, Options, Prewritten, RowKey,
    Runtime, Table, Timestamp, Transaction,
};

use crate::faults::{Fault, LOCK, Op, ROLLBACK};
use crate::world::{BAL, World, get_column, is_aborted, run_both, run_limited};

/// `count` columns with names of `bytes` bytes.
pub(crate) fn columns(count: usize, bytes: usize) -> Vec<Column> {
    let rest = bytes - 2;
    (0..count).map(|n| Column::new(format!("f:{n:0rest$}")).unwrap()).collect()
}

/// A transaction that has written one value to `columns` of `row`, and to the primary, in row `p`.
pub(crate) async fn wide(
    client: &Client,
    table: &Table,
    row: &str,
    columns: &[Column],
) -> Transaction {
    let mut tx = client.begin().await.unwrap();
    tx.set(table, "p", &BAL, "1").unwrap();
    for column in columns {
        tx.set(table, row, column, "1").unwrap();
    }
    tx
}

/// Whether the columns have their values, read together and by a scan: either all have them,
/// or none. If there are many columns, only some are read.
pub(crate) async fn is_there(
    client: &Client,
    table: &Table,
    row: &str,
    columns: &[Column],
) -> bool {
    let step = columns.len().div_ceil(1000);
    let columns: Vec<Column> = columns.iter().step_by(step).cloned().collect();
    let tx = client.begin().await.unwrap();
    let rows = tx.scan(table).collect().await.unwrap();
    let scanned = rows.iter().find(|found| found.row == RowKey::from(row));
    let scanned: BTreeSet<&Column> =
        scanned.map_or(BTreeSet::new(), |row| row.cells.iter().map(|(column, _)| column).collect());
    let values = tx.get_many(table, &[RowKey::from(row)], &columns).await.unwrap();
    let read = values[0].iter().filter(|value| value.is_some()).count();
    assert!(read == 0 || read == columns.len(), "{read} of {} columns", columns.len());
    for column in &columns {
        assert_eq!(scanned.contains(&column), read > 0, "{column} in a scan");
    }
    let first = get_column(client, table, row, &columns[0]).await;
    assert_eq!(first.is_some(), read > 0, "the first column by itself");
    read > 0
}

/// The state in which an owner left its transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Left {
    Committed,
    /// It died after its commit point.
    Decided,
    /// It died before its commit point.
    Prewritten,
    /// It gave up before its commit point.
    Aborted,
}

pub(crate) async fn leave(world: &World, owner: &Client, tx: Transaction, left: Left) {
    match left {
        Left::Committed => drop(tx.commit().await.unwrap()),
        Left::Decided => drop(tx.prewrite().await.unwrap().commit_primary().await.unwrap()),
        Left::Prewritten => drop::<Prewritten>(tx.prewrite().await.unwrap()),
        Left::Aborted => {
            let refused = world.store.on(Op::CommitPrimary, "p", 1, Fault::Refuse);
            assert!(is_aborted(&tx.commit().await));
            refused.release();
        }
    }
    if left != Left::Committed {
        world.declare_dead(owner);
    }
}

/// Commits, rolls forward, rolls back and aborts a row with these columns, once as the
/// primary's row and once as another one.
async fn every_way(world: &World, columns: &[Column]) {
    for row in ["p", "s"] {
        for left in [Left::Prewritten, Left::Aborted, Left::Decided, Left::Committed] {
            let owner = world.client_with(Options::over_network()).await;
            let other = world.client().await;
            let table = owner.table("t").await.unwrap();
            let tx = wide(&owner, &table, row, columns).await;
            leave(world, &owner, tx, left).await;
            // Values that were committed before must stay.
            let there = is_there(&other, &table, row, columns).await;
            let commits = matches!(left, Left::Decided | Left::Committed);
            assert_eq!(there, commits, "{left:?}, {} columns of row {row}", columns.len());
            other.begin().await.unwrap().scan(&table).collect().await.unwrap();
            assert_eq!(world.cells(&table, LOCK).await, 0, "{left:?}, row {row}");
            world.audit(&table).await;
        }
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        for column in columns {
            tx.delete(&table, row, column).unwrap();
        }
        tx.commit().await.unwrap();
        assert!(!is_there(&client, &table, row, columns).await);
    }
}

#[test]
fn h70_a_wide_row_is_committed_and_rolled_back_whatever_a_predicate_may_hold() {
    for (count, bytes) in [(200, 48), (100, 108), (30, 1008), (320, 24)] {
        run_limited(async |world| every_way(&world, &columns(count, bytes)).await);
    }
}

#[test]
fn h70_a_name_that_no_predicate_can_hold_is_committed_and_rolled_back() {
    for bytes in [11_000, 16_000, COLUMN_BYTES_MAX] {
        run_limited(async |world| every_way(&world, &columns(1, bytes)).await);
    }
}

#[test]
fn h70_a_row_of_ten_thousand_columns_is_committed_and_rolled_forward() {
    run_limited(async |world| {
        let columns = columns(10_000, 12);
        for left in [Left::Committed, Left::Decided] {
            let (owner, other) = (world.client().await, world.client().await);
            let table = owner.table("t").await.unwrap();
            let tx = wide(&owner, &table, "s", &columns).await;
            leave(&world, &owner, tx, left).await;
            assert!(is_there(&other, &table, "s", &columns).await, "{left:?}");
            assert_eq!(world.cells(&table, LOCK).await, 0, "{left:?}");
        }
    });
}

/// The largest row that can be committed is accepted, and a row with one more cell is refused.
#[test]
fn h70_a_row_whose_commit_could_not_be_sent_is_refused_before_it_is_locked() {
    run_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let most = world.store.inner_limits().mutations_max.unwrap() / 2;
        let columns = columns(most + 1, 12);
        for row in ["p", "s"] {
            let tx = wide(&client, &table, row, &columns[usize::from(row == "p")..]).await;
            assert_eq!(tx.cells_written(), most + 1 + usize::from(row == "s"));
            world.store.clear_trace();
            let Err(Error::Invalid { what: why, .. }) = tx.commit().await else {
                panic!("{row}: not refused")
            };
            for part in
                [&format!("row {row} of table t"), "commit", &format!("at most {}", 2 * most)]
            {
                assert!(why.contains(part), "{part:?} in {why:?}");
            }
            assert_eq!(world.store.count(Op::Prewrite), 0);
            assert_eq!(world.cells(&table, LOCK).await, 0);
        }
        wide(&client, &table, "s", &columns[1..]).await.commit().await.unwrap();
        assert!(is_there(&client, &table, "s", &columns[1..]).await);
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

#[test]
fn h70_a_row_that_is_too_large_for_a_message_is_refused_before_it_is_locked() {
    run_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let most = world.store.inner_limits().request_bytes_max.unwrap();
        let mut tx = client.begin().await.unwrap();
        let value = Bytes::from(vec![0; most / 2]);
        for column in columns(2, 12) {
            tx.set(&table, "s", &column, value.clone()).unwrap();
        }
        world.store.clear_trace();
        let Err(Error::Invalid { what: why, .. }) = tx.commit().await else {
            panic!("not refused")
        };
        assert!(why.contains("prewrite of row s") && why.contains(&most.to_string()), "{why}");
        assert_eq!(world.store.count(Op::Prewrite), 0);
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// Programs that did not ask for limits left such rows. The next reader repairs them.
#[test]
fn h70_a_locked_row_that_is_too_wide_for_one_request_is_repaired_by_its_next_reader() {
    run_limited(async |world| {
        let most = world.store.inner_limits().mutations_max.unwrap();
        let columns = columns(most / 2 + 1, 12);
        for left in [Left::Decided, Left::Prewritten] {
            world.store.state_limits(false);
            let (owner, other) = (world.client().await, world.client().await);
            let table = owner.table("t").await.unwrap();
            let tx = wide(&owner, &table, "s", &columns).await;
            leave(&world, &owner, tx, left).await;
            world.store.state_limits(true);
            assert!(world.cells(&table, LOCK).await > columns.len() - 1);
            get_column(&other, &table, "s", &columns[0]).await;
            assert_eq!(world.raw(&table, "s", LOCK, &columns[0]).await, []);
            assert!(is_there(&other, &table, "s", &columns).await, "after {left:?}");
            assert_eq!(world.cells(&table, LOCK).await, 0, "after {left:?}");
            world.audit(&table).await;
        }
    });
}

#[test]
fn h70_a_commit_that_the_store_refuses_for_good_is_aborted_at_once() {
    run_limited(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let column = columns(1, 12);
        // The store refuses the first request.
        world.store.on(Op::CommitPrimary, "p", 1, Fault::Refuse);
        let before = world.runtime.now();
        let result = wide(&client, &table, "s", &column).await.commit().await;
        let Err(Error::Aborted { reason: AbortReason::Store(error), .. }) = result else {
            panic!("{result:?}")
        };
        assert!(error.to_string().contains("by rule"), "{error}");
        assert!(world.runtime.now() - before < Duration::from_secs(1));
        assert_eq!(world.cells(&table, LOCK).await, 0);
        assert!(!is_there(&client, &table, "s", &column).await);
        // The store refuses the repeated request, after the first was applied and its reply
        // was lost.
        world.store.on(Op::CommitPrimary, "p", 1, Fault::DropReply);
        world.store.on(Op::CommitPrimary, "p", 1, Fault::Refuse);
        let tx = wide(&client, &table, "s", &column).await;
        assert!(tx.commit().await.is_ok());
        assert!(is_there(&client, &table, "s", &column).await);
        // The store refuses the repeated request while the first is in flight.
        let late = world.store.on(Op::CommitPrimary, "p", 1, Fault::Late);
        world.store.on(Op::CommitPrimary, "p", 1, Fault::Refuse);
        let tx = wide(&client, &table, "s", &column).await;
        let s = tx.start_ts();
        assert!(is_aborted(&tx.commit().await));
        assert!(matches!(late.deliver().await[..], [Ok(false)]), "its lock is gone");
        assert_eq!(world.raw(&table, "p", ROLLBACK, &BAL).await.first(), Some(&s));
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// A heartbeat names every lock that its owner may have written since the last reply.
#[test]
fn h70_heartbeats_that_get_no_reply_stay_within_the_limit_of_a_predicate() {
    run_limited(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let primary = &columns(1, COLUMN_BYTES_MAX)[0];
        let mut tx = owner.begin().await.unwrap();
        tx.set(&table, "p", primary, vec![b'v'; 256]).unwrap();
        let unsettled = world.store.on(Op::Heartbeat, "p", 15, Fault::DropReply);
        let held = world.store.on(Op::CommitPrimary, "p", 1, Fault::Hold);
        let commit = world.beside(tx.commit());
        held.arrived().await;
        while unsettled.count() < 15 {
            world.sleep_ms(1000).await;
        }
        // The owner still renews its lock, and no other client takes it for dead.
        let before: Vec<Timestamp> = world.raw(&table, "p", LOCK, primary).await;
        world.sleep_ms(3 * owner.options().lock_lifetime.as_millis() as u64).await;
        let read = other.begin().await.unwrap().get(&table, "p", primary).await;
        assert!(read.is_err() || read.unwrap().is_none());
        assert_eq!(world.raw(&table, "p", LOCK, primary).await, before);
        held.release();
        assert!(commit.await.unwrap().is_ok());
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// The abort removes the primary lock first and leaves its tomb. The remaining locks of the
/// row are removed with the other rows.
#[test]
fn h69_an_abort_leaves_no_lock_in_the_row_of_the_primary() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        for column in [&BAL, &Column::literal("f:longer"), &Column::literal("f:longest")] {
            tx.set(&table, "p", column, "1").unwrap();
        }
        world.store.on(Op::CommitPrimary, "p", 1, Fault::Refuse);
        assert!(is_aborted(&tx.commit().await));
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// A resolver does so as well. The next client must resolve the rest of a row from which it
/// took the primary.
#[test]
fn h69_locks_that_the_primary_left_behind_are_rolled_back() {
    run_both(async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let long = Column::literal("f:longer");
        let mut tx = owner.begin().await.unwrap();
        tx.set(&table, "p", &BAL, "1").unwrap();
        tx.set(&table, "p", &long, "1").unwrap();
        let prewritten = tx.prewrite().await.unwrap();
        world.declare_dead(&owner);
        // The first resolver dies between the primary and the rest of the row.
        let rest = world.store.on(Op::RollBack, "p", 1, Fault::Fail);
        assert!(other.begin().await.unwrap().get(&table, "p", &BAL).await.is_err());
        assert_eq!(rest.count(), 1);
        assert_eq!(world.raw(&table, "p", LOCK, &BAL).await, []);
        assert_eq!(world.raw(&table, "p", LOCK, &long).await.len(), 1);
        // The owner wakes, and finds no primary.
        assert!(is_aborted(&prewritten.commit_primary().await));
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

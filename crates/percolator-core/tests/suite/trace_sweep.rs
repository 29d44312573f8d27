//! Tests the sweeps of the trace: what they delete, and whom they hold up.

use bigtable::RowKey;
use percolator_core::{Client, Registration, Sampling, Table};

use crate::faults::{Fault, Op};
use crate::notifications::one_thread;
use crate::trace::{TABLE, keys, rows, step, traced};
use crate::world::{A, BAL, World, run, set};

const HOUR_MS: u64 = 3_600_000;

/// Commits, and waits until that is in the trace.
async fn write(world: &World, client: &Client, table: &Table) {
    set(client, table, &[("r", "1")]).await;
    world.sleep_ms(1_000).await;
}

#[test]
fn a_sweep_does_not_hold_up_what_is_written() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let held = world
            .store
            .when(1, Fault::Hold, |request| request.table == TABLE && request.op == Op::SystemRead);
        for n in 1..5 {
            write(&world, &client, &table).await;
            assert_eq!((held.count(), rows(&world).await), (1, n));
        }
        held.release();
    });
}

/// Leaves a trace of twenty rows that are too old.
async fn twenty_old(world: &World) -> (Client, Table) {
    let client = world.client_with(traced(Sampling::All)).await;
    let table = client.table("t").await.unwrap();
    for _ in 0..20 {
        write(world, &client, &table).await;
    }
    world.sleep_ms(25 * HOUR_MS).await;
    (client, table)
}

#[test]
fn a_page_of_rows_is_deleted_at_once() {
    run(async |world| {
        let (client, table) = twenty_old(&world).await;
        let first = keys(&world).await[0].clone();
        let held = world.store.when(1, Fault::Hold, move |request| request.row == first);
        write(&world, &client, &table).await;
        assert_eq!(rows(&world).await, 2, "the first of the old ones, and a new one");
        held.release();
    });
}

#[test]
fn a_sweep_ends_when_its_client_is_closed() {
    run(async |world| {
        let (client, table) = twenty_old(&world).await;
        let held = world
            .store
            .when(1, Fault::Hold, |request| request.table == TABLE && request.op == Op::SystemRead);
        write(&world, &client, &table).await;
        client.close().await;
        held.release();
        world.sleep_ms(1_000).await;
        assert_eq!(rows(&world).await, 21);
    });
}

/// A run may handle a change that is older than all that the trace still has.
#[test]
fn an_entry_of_an_old_change_expires_too() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let skip = async || {
            // The next rows are in the same shard, and after those that are there.
            for _ in 0..16 << 10 {
                client.oracle().timestamp().await.unwrap();
            }
        };
        let of_first_bucket = async || {
            let is_first = |key: &RowKey| key.as_bytes()[..9] == [0; 9];
            keys(&world).await.iter().filter(|key| is_first(key)).count()
        };
        set(&client, &table, &[("old", "1")]).await;
        write(&world, &client, &table).await;
        for _ in 0..2 {
            skip().await;
            world.sleep_ms(12 * HOUR_MS + 60_000).await;
            write(&world, &client, &table).await;
        }
        assert_eq!(of_first_bucket().await, 0);
        let late = vec![Registration::strong("late", "t", &BAL, step(A, None))];
        let workers = client.observe(late, one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        world.sleep_ms(1_000).await;
        assert_eq!(of_first_bucket().await, 1);
        for _ in 0..3 {
            skip().await;
            world.sleep_ms(12 * HOUR_MS).await;
            write(&world, &client, &table).await;
        }
        assert_eq!(of_first_bucket().await, 0);
        workers.stop().await;
    });
}

//! Tests garbage collection on stores that cannot compare a floor within their row operations.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::layer::StoreLayer;
use bigtable::{MemoryStore, Store, Timestamp};
use futures::future::{Either, select};
use percolator_core::testing::{VirtualRuntime, client_on};
use percolator_core::{AbortReason, Client, Error, GcOptions, Options, Result, Runtime, Table};

use crate::faults::{DATA, Fault, LOCK, Op, WRITE};
use crate::world::{BAL, Process, World, get, run_unfenced, set, writing};

/// The longest life of a request, and the term that follows from it.
const LIFE: Duration = Duration::from_secs(1);
const TERM: Duration = Duration::from_secs(4);

async fn delete(client: &Client, table: &Table, row: &str) -> Timestamp {
    let mut tx = client.begin().await.unwrap();
    tx.delete(table, row, &BAL).unwrap();
    tx.commit().await.unwrap()
}

async fn at(client: &Client, table: &Table, row: &str, ts: Timestamp) -> Result<Option<String>> {
    let value = client.snapshot_at(ts).await?.get(table, row, &BAL).await?;
    Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

/// A process whose renewals end when it crashes. Its client goes on, and does not know that.
async fn process(world: &World) -> Process {
    world.process(Options::default(), 0).await
}

/// Runs rounds until collection has passed a timestamp.
async fn collect_beyond(world: &World, collector: &Client, ts: Timestamp) {
    for _ in 0..20 {
        // Take a timestamp to which the safe point can advance.
        collector.begin().await.unwrap();
        if collector.gc(TERM).await.unwrap().safe_point > ts {
            return;
        }
        world.sleep_ms(1_000).await;
    }
    panic!("collection never goes beyond {ts}");
}

fn is_too_old<T>(result: &Result<T>) -> bool {
    let aborted = matches!(result, Err(Error::Aborted { reason: AbortReason::TooOld, .. }));
    aborted || matches!(result, Err(Error::TooOld { .. }))
}

#[test]
fn options_that_contradict_the_life_of_a_request_are_refused_with_the_remedy() {
    run_unfenced(LIFE, async |world| {
        let client = world.client().await;
        assert_eq!(client.retention_min(), TERM);
        let short = TERM - Duration::from_millis(1);
        let error = client.gc(short).await.unwrap_err().to_string();
        assert!(
            error.contains("a retention of 3.999s") && error.contains("at least 4s"),
            "{error}"
        );
        assert!(error.contains("give a retention of at least"), "{error}");
        client.gc(TERM).await.unwrap();
    });
    let runtime = VirtualRuntime::new(1);
    let store = MemoryStore::new().without_floors(Duration::from_secs(151));
    let opened = runtime.block_on(client_on(&runtime, Arc::new(store), Options::default()));
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("151s") && error.contains("a shorter deadline"), "{error}");
}

/// A store without a floor, as seen by a client whose requests live longer than those of
/// others.
#[derive(Debug)]
struct Patient(Arc<MemoryStore>);

impl StoreLayer for Patient {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn request_life_max(&self) -> Option<Duration> {
        Some(3 * LIFE)
    }
}

#[test]
fn retention_goes_by_the_client_whose_requests_live_longest() {
    let runtime = VirtualRuntime::new(1);
    let store = Arc::new(MemoryStore::new().without_floors(LIFE));
    let opened = async {
        let collector = client_on(&runtime, store.clone(), Options::default()).await?;
        collector.gc(TERM).await?;
        let patient = client_on(&runtime, Arc::new(Patient(store)), Options::default()).await?;
        assert_eq!(patient.retention_min(), 3 * TERM);
        let error = collector.gc(3 * TERM - LIFE).await.unwrap_err().to_string();
        assert!(
            error.contains("may stay in flight for 3s") && error.contains("at least 12s"),
            "{error}"
        );
        assert_eq!(collector.retention_min(), 3 * TERM);
        collector.gc(3 * TERM).await
    };
    runtime.block_on(opened).unwrap();
}

#[test]
fn what_is_overwritten_goes_and_what_is_read_stays_without_a_floor() {
    run_unfenced(LIFE, async |world| {
        for short_value_bytes_max in [255, 0] {
            let options = Options { short_value_bytes_max, ..Options::default() };
            let client = world.client_with(options).await;
            let table = client.table(&format!("t{short_value_bytes_max}")).await.unwrap();
            let first = set(&client, &table, &[("a", "first")]).await;
            for n in 0..4 {
                set(&client, &table, &[("a", &n.to_string()), ("gone", "x")]).await;
            }
            delete(&client, &table, "gone").await;
            let report = client.gc(TERM).await.unwrap();
            assert_eq!(report.counts.writes, 4 + 5, "{report:?}");
            assert_eq!(world.cells(&table, WRITE).await, 1);
            let data = usize::from(short_value_bytes_max == 0);
            assert_eq!(world.cells(&table, DATA).await, data);
            assert_eq!(get(&client, &table, "a").await.as_deref(), Some("3"));
            assert!(is_too_old(&at(&client, &table, "a", first).await));
            let then = at(&client, &table, "a", report.safe_point).await.unwrap();
            assert_eq!(then.as_deref(), Some("3"));
            let status = client.gc_status(TERM).await.unwrap();
            assert_eq!(status.safe_point, report.safe_point);
            assert_eq!(status.last.unwrap().collected, report.safe_point);
        }
    });
}

#[test]
fn a_background_collector_works_without_a_floor() {
    run_unfenced(LIFE, async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let options = GcOptions { retention: TERM, interval: LIFE, ..GcOptions::default() };
        let collector = client.collect_in_background(options);
        for n in 0..20 {
            set(&client, &table, &[("a", &n.to_string())]).await;
            world.sleep_ms(500).await;
        }
        let left = world.cells(&table, WRITE).await;
        assert!((2..=14).contains(&left), "{left} versions are left");
        world.sleep_ms(20_000).await;
        assert_eq!(world.cells(&table, WRITE).await, 1);
        drop(collector);
    });
}

/// This also holds for a client that collects nothing itself, long after its timestamp was
/// young (H35).
#[test]
fn h35_a_reader_that_keeps_its_registration_reads_on_however_long() {
    run_unfenced(LIFE, async |world| {
        let (reader, other) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        set(&other, &table, &[("a", "1"), ("b", "1")]).await;
        let tx = reader.begin().await.unwrap();
        delete(&other, &table, "a").await;
        set(&other, &table, &[("b", "2")]).await;
        for _ in 0..20 {
            world.sleep_ms(1_500).await;
            other.begin().await.unwrap();
            let round = other.gc(TERM).await.unwrap();
            assert!(round.safe_point <= tx.start_ts(), "{round:?}");
            for row in ["a", "b"] {
                let value = tx.get(&table, row, &BAL).await.unwrap();
                assert_eq!(value.as_deref(), Some(&b"1"[..]));
            }
        }
        assert_eq!(tx.scan(&table).collect().await.unwrap().len(), 2);
        let s = tx.start_ts();
        drop(tx);
        collect_beyond(&world, &other, s).await;
        assert_eq!(world.cells(&table, WRITE).await, 1);
    });
}

/// The client's registration no longer reaches the store, and other clients go on without it
/// (H35).
#[test]
fn h35_a_reader_whose_registration_lapsed_gets_an_error_not_nothing() {
    run_unfenced(LIFE, async |world| {
        let (reader, other) = (process(&world).await, world.client().await);
        let table = reader.client.table("t").await.unwrap();
        set(&other, &table, &[("a", "1")]).await;
        let tx = reader.client.begin().await.unwrap();
        let s = tx.start_ts();
        // The timestamp was registered once.
        world.sleep_ms(3_000).await;
        reader.crash();
        delete(&other, &table, "a").await;
        collect_beyond(&world, &other, s).await;
        assert_eq!(world.cells(&table, WRITE).await, 0);
        assert!(is_too_old(&tx.get(&table, "a", &BAL).await));
        assert!(is_too_old(&tx.scan(&table).collect().await));
        assert!(is_too_old(&at(&reader.client, &table, "a", s).await));
        // A transaction that begins now is young.
        assert_eq!(get(&reader.client, &table, "a").await, None);
    });
}

/// The reply of a read was in flight for so long that collection may have overtaken the read
/// (H35).
#[test]
fn h35_an_answer_that_comes_after_the_registration_lapsed_is_not_believed() {
    run_unfenced(LIFE, async |world| {
        let (reader, other) = (process(&world).await, world.client().await);
        let table = reader.client.table("t").await.unwrap();
        set(&other, &table, &[("a", "1")]).await;
        let tx = reader.client.begin().await.unwrap();
        let s = tx.start_ts();
        reader.crash();
        let held = world.store.on(Op::Read, "a", 1, Fault::Hold);
        let reading = table.clone();
        let read = world.beside(async move { tx.get(&reading, "a", &BAL).await });
        held.arrived().await;
        delete(&other, &table, "a").await;
        collect_beyond(&world, &other, s).await;
        held.release();
        assert!(is_too_old(&read.await.unwrap()));
    });
}

/// A young reader needs no registration, because a version that was overwritten recently is
/// kept. A round that would not keep it is refused (H35).
#[test]
fn h35_a_retention_that_is_too_short_drops_nothing_beneath_a_young_reader() {
    run_unfenced(LIFE, async |world| {
        let (reader, other) = (world.client().await, world.client().await);
        let table = reader.table("t").await.unwrap();
        set(&other, &table, &[("a", "1")]).await;
        let tx = reader.begin().await.unwrap();
        set(&other, &table, &[("a", "2")]).await;
        other.begin().await.unwrap();
        for retention in [Duration::ZERO, LIFE, TERM - Duration::from_millis(1)] {
            world.sleep_ms(200).await;
            let round = other.gc(retention).await;
            let value = tx.get(&table, "a", &BAL).await.unwrap();
            assert_eq!(value.as_deref(), Some(&b"1"[..]), "{round:?}");
        }
    });
}

/// All evidence of the transaction is collected. Its commit would overwrite a deletion that it
/// has not seen (H04).
#[test]
fn h04_h35_a_transaction_whose_registration_lapsed_does_not_commit() {
    run_unfenced(LIFE, async |world| {
        let (owner, other) = (process(&world).await, world.client().await);
        let table = owner.client.table("t").await.unwrap();
        set(&other, &table, &[("a", "1")]).await;
        let tx = writing(&owner.client, &table, &[("a", "2"), ("b", "2")]).await;
        owner.crash();
        delete(&other, &table, "a").await;
        collect_beyond(&world, &other, tx.start_ts()).await;
        assert_eq!(world.cells(&table, WRITE).await, 0);
        let result = tx.commit().await;
        assert!(is_too_old(&result), "{result:?}");
        for row in ["a", "b"] {
            assert_eq!(get(&other, &table, row).await, None);
        }
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// A commit that is sent less than one request life before its owner lapses may be applied
/// after that.
#[test]
fn h04_h35_no_commit_is_sent_that_could_be_applied_after_the_registration_lapsed() {
    run_unfenced(LIFE, async |world| {
        let (owner, other) = (process(&world).await, world.client().await);
        let table = owner.client.table("t").await.unwrap();
        let tx = writing(&owner.client, &table, &[("a", "1"), ("b", "1")]).await;
        owner.crash();
        // The owner may rely on five sixths of a term. Half a request life of them is left.
        world.runtime.sleep(TERM * 5 / 6 - LIFE / 2).await;
        let result = tx.commit().await;
        assert!(is_too_old(&result), "{result:?}");
        assert_eq!(world.store.count(Op::CommitPrimary), 0, "it was sent");
        for row in ["a", "b"] {
            assert_eq!(get(&other, &table, row).await, None);
        }
    });
}

/// A commit that may have been applied before the registration lapsed is not reported as
/// aborted (H07).
#[test]
fn h07_h35_a_commit_without_a_reply_is_unknown_once_the_registration_lapsed() {
    // The commit's record may be collected or not when the owner looks for it.
    for collected in [false, true] {
        run_unfenced(LIFE, async |world| {
            let (owner, other) = (process(&world).await, world.client().await);
            let table = owner.client.table("t").await.unwrap();
            let tx = writing(&owner.client, &table, &[("a", "1")]).await;
            owner.crash();
            world.store.on(Op::CommitPrimary, "a", 1, Fault::DropReply);
            let look = world.store.on(Op::Read, "a", 1, Fault::Hold);
            let commit = world.beside(tx.commit());
            look.arrived().await;
            if collected {
                let deleted = delete(&other, &table, "a").await;
                collect_beyond(&world, &other, deleted).await;
                assert_eq!(world.cells(&table, WRITE).await, 0);
            }
            look.release();
            match commit.await.unwrap() {
                Ok(_) => assert!(!collected),
                Err(Error::Unknown { .. }) => assert!(collected),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

/// A copy of a prewrite is held up beyond every deadline. When it arrives, the deletion that
/// would have rejected it is collected, and the primary's record is not (H06, H12).
#[test]
fn h06_h12_a_late_lock_below_the_last_collection_is_removed_and_never_rolled_forward() {
    run_unfenced(LIFE, async |world| {
        for short_value_bytes_max in [255, 0] {
            let options = Options { short_value_bytes_max, ..Options::default() };
            let (owner, other) = (world.client_with(options).await, world.client().await);
            let table = owner.table(&format!("t{short_value_bytes_max}")).await.unwrap();
            let copy = world.store.on(Op::Prewrite, "s", 1, Fault::Duplicate);
            let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
            let s = tx.start_ts();
            tx.commit().await.unwrap();
            delete(&other, &table, "s").await;
            let latest = world.oracle.peek().await.unwrap();
            collect_beyond(&world, &other, latest).await;
            let delivered = copy.deliver().await;
            assert!(matches!(delivered[..], [Ok(false)]), "nothing is left to reject it");
            assert_eq!(world.raw(&table, "s", LOCK, &BAL).await, [s]);
            // A client that has resolved locks of this transaction before looks again, too.
            assert_eq!(get(&other, &table, "s").await, None);
            assert_eq!(world.raw(&table, "s", LOCK, &BAL).await, []);
            assert_eq!(world.raw(&table, "s", DATA, &BAL).await, []);
            assert_eq!(world.raw(&table, "s", WRITE, &BAL).await, []);
            assert_eq!(get(&other, &table, "p").await.as_deref(), Some("1"));
        }
    });
}

/// The collector stops between its read of a lock and its verdict (H06, seed 7633).
#[test]
fn h06_a_lock_that_was_judged_too_late_does_not_count_as_swept() {
    run_unfenced(LIFE, async |world| {
        let (owner, other) = (process(&world).await, world.client().await);
        let table = owner.client.table("t").await.unwrap();
        let tx = writing(&owner.client, &table, &[("p", "1"), ("s", "1")]).await;
        let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
        let c = decided.commit_ts();
        drop(decided);
        owner.crash();
        let held = world.store.on(Op::Read, "s", 1, Fault::Hold);
        let (collector, runtime) = (other.clone(), world.runtime.clone());
        let rounds = world.beside(async move {
            loop {
                collector.begin().await.unwrap();
                if collector.gc(TERM).await.unwrap().safe_point > c {
                    return;
                }
                percolator_core::Runtime::sleep(&runtime, LIFE).await;
            }
        });
        held.arrived().await;
        world.sleep_ms(2_000).await;
        held.release();
        rounds.await.unwrap();
        assert_eq!(world.raw(&table, "s", LOCK, &BAL).await, [], "it was resolved all the same");
        assert_eq!(get(&other, &table, "s").await.as_deref(), Some("1"));
    });
}

/// A reader of the past and a collection round may overtake each other anywhere. At least one
/// must see the other.
#[test]
fn h35_who_begins_to_read_the_past_is_seen_by_the_round_or_refused() {
    for (held_of_round, number) in [(true, 1), (true, 2), (true, 3), (false, 1), (false, 2)] {
        run_unfenced(LIFE, async |world| {
            let (reader, other) = (world.client().await, world.client().await);
            let table = reader.table("t").await.unwrap();
            let past = set(&other, &table, &[("a", "1")]).await;
            set(&other, &table, &[("a", "2")]).await;
            other.gc(TERM).await.unwrap();
            let past = Timestamp::new(past.as_u64() + 3).unwrap();
            delete(&other, &table, "a").await;
            for _ in 0..3 {
                other.begin().await.unwrap();
            }
            other.ages(&[]).await.unwrap();
            world.sleep_ms(5_000).await;
            let of_round = |row: &bigtable::RowKey| *row == "gc".into();
            let held = world.store.when(number, Fault::Hold, move |request| {
                let registers = request.row.as_bytes().starts_with(b"reader/");
                request.op == Op::System
                    && if held_of_round { of_round(&request.row) } else { registers }
            });
            let (collector, at_work) = (other.clone(), reader.clone());
            let read_table = table.clone();
            let read = async move { at(&at_work, &read_table, "a", past).await };
            let round = async move { collector.gc(TERM).await.unwrap() };
            let (read, round) = if held_of_round {
                let round = world.beside(round);
                world.sleep_ms(10).await;
                let read = world.beside(read);
                world.sleep_ms(10).await;
                held.release();
                (read, round)
            } else {
                let read = world.beside(read);
                world.sleep_ms(10).await;
                let round = world.beside(round);
                world.sleep_ms(10).await;
                held.release();
                (read, round)
            };
            let (read, round) = (read.await.unwrap(), round.await.unwrap());
            match read {
                Ok(value) => assert_eq!(value.as_deref(), Some("2"), "{round:?}"),
                Err(Error::TooOld { .. }) => assert!(round.safe_point > past, "{round:?}"),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

/// A copy of a request may be in flight when its transaction ends, however long the
/// transaction was open.
#[test]
fn h04_what_ends_after_long_stays_registered_until_its_requests_are_over() {
    run_unfenced(LIFE, async |world| {
        let (owner, other) = (world.client().await, world.client().await);
        let table = owner.table("t").await.unwrap();
        let tx = writing(&owner, &table, &[("a", "1")]).await;
        let s = tx.start_ts();
        world.sleep_ms(20_000).await;
        other.begin().await.unwrap();
        other.gc(TERM).await.unwrap();
        tx.commit().await.unwrap();
        let ended = percolator_core::Runtime::now(&world.runtime);
        loop {
            other.begin().await.unwrap();
            let safe_point = other.gc(TERM).await.unwrap().safe_point;
            let since = percolator_core::Runtime::now(&world.runtime) - ended;
            if safe_point > s {
                assert!(since > LIFE, "{since:?}");
                return;
            }
            assert!(since < 3 * TERM, "its registration never goes");
            world.sleep_ms(50).await;
        }
    });
}

/// For example, the future of a branch of `select!` while another branch awaits.
#[test]
fn h77_a_registration_that_is_not_polled_holds_up_no_other() {
    run_unfenced(LIFE, async |world| {
        let client = process(&world).await.client;
        let table = client.table("t").await.unwrap();
        let past = set(&client, &table, &[("a", "1")]).await;
        // No timestamp of the past is young any more.
        world.sleep_ms(2 * TERM.as_millis() as u64).await;
        let registration = format!("reader/{}", client.incarnation());
        let held = world.store.on(Op::System, &registration, 1, Fault::Hold);
        let first = Box::pin(client.snapshot_at(past));
        let Either::Right(((), first)) = select(first, pin!(held.arrived())).await else {
            panic!("it was not held");
        };
        held.release();
        let second = pin!(client.snapshot_at(past));
        let waited = pin!(world.runtime.sleep(LIFE));
        let Either::Left((second, _)) = select(second, waited).await else {
            panic!("it waits for one that is not polled");
        };
        second.unwrap();
        first.await.unwrap();
    });
}

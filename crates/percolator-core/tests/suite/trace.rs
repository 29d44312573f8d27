//! Tests the stored trace: its contents, its effect on other work, and its expiry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    Family, Layout, LocalityGroup, MemoryStore, RowRange, Selection, Store, TableSchema, TimeRange,
};
use percolator_core::testing::{VirtualRuntime, client_on};
use percolator_core::{
    Batch, BatchObserver, Change, Client, Column, Error, Observed, Observer, Options, Registration,
    Result, RowKey, Runtime, Sampling, Side, Strength, Transaction, Why, WhyNode,
};

use crate::faults::{Fault, Op};
use crate::notifications::one_thread;
use crate::world::{A, B, BAL, World, observer, run, run_both, set};

pub(crate) const TABLE: &str = "percolator.trace";
pub(crate) const CHANGED: Column = Column::literal("f:changed");
pub(crate) const QUEUE: Column = Column::literal("f:queue");

pub(crate) fn traced(sampling: Sampling) -> Options {
    Options { trace: sampling, ..Options::default() }
}

/// Sets `column` to the name of the observer, and notifies the next one.
pub(crate) fn step(column: Column, next: Option<Column>) -> impl Observer {
    observer(move |tx, change| {
        let (column, next) = (column.clone(), next.clone());
        Box::pin(async move {
            tx.set(&change.table, &change.row, &column, change.commit_ts.to_string())?;
            match next {
                Some(next) => tx.notify(&change.table, &change.row, &next),
                None => Ok(()),
            }
        })
    })
}

/// Takes changes and writes nothing.
pub(crate) struct Takes;

impl BatchObserver for Takes {
    async fn observe(&self, _: &mut Transaction, _: &[Change]) -> Result<()> {
        Ok(())
    }
}

/// bal --first--> f:a, f:changed --second--> f:b, f:queue --third--> nothing
fn cascade() -> Vec<Registration> {
    let batch = Batch { changes_max: 8, interval: Duration::from_millis(100) };
    vec![
        Registration::strong("first", "t", &BAL, step(A, Some(CHANGED))),
        Registration::weak("second", "t", &CHANGED, step(B, Some(QUEUE))),
        Registration::batched("third", "t", &QUEUE, batch, Takes),
    ]
}

async fn why(client: &Client, row: &str, column: &Column) -> Why {
    let table = client.table("t").await.unwrap();
    client.why(&table, row, column, None).await.unwrap().unwrap()
}

fn name(node: &WhyNode) -> &str {
    node.record
        .as_ref()
        .map_or("not recorded", |record| record.name.as_deref().unwrap_or("unnamed"))
}

pub(crate) fn names(why: &Why) -> Vec<(&str, Side)> {
    why.nodes.iter().map(|node| (name(node), node.side)).collect()
}

pub(crate) fn system_schema() -> TableSchema {
    TableSchema { groups: vec![LocalityGroup::on_disk("system", Layout::Versions)] }
}

/// Returns everything in a store but the trace, as text.
async fn dump(store: &dyn Store) -> String {
    let mut text = String::new();
    for name in store.table_names().await.unwrap() {
        if name == TABLE {
            continue;
        }
        let schema = if name == "t" { percolator_core::table_schema() } else { system_schema() };
        let mut select = Selection::default();
        for of in schema.groups.iter().flat_map(|group| &group.families) {
            select = select.family(of.family.clone(), TimeRange::ALL, u32::MAX);
        }
        let table = store.open_table(&name, &schema).await.unwrap();
        let page = table.scan(&RowRange::all(), &select, Default::default()).await.unwrap();
        text.push_str(&format!("{name}: {:#?}\n", page.rows));
    }
    text
}

#[test]
fn a_change_is_followed_up_to_its_root_and_down_to_the_last_run() {
    run_both(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let workers = client.observe(cascade(), one_thread()).await.unwrap();
        let load = client.named("load");
        load.transact(async |mut tx| tx.set(&table, "r", &BAL, "1")).await.unwrap();
        client.wait_idle(None).await.unwrap();
        world.sleep_ms(1000).await;
        let root = why(&client, "r", &BAL).await;
        let down = [
            ("load", Side::Own),
            ("first", Side::Effect),
            ("second", Side::Effect),
            ("third", Side::Effect),
        ];
        assert_eq!(names(&root), down);
        assert_eq!(root.nodes[3].record.as_ref().unwrap().causes[0].cell.column, QUEUE);
        let columns = root.edges.iter().map(|edge| &edge.cell.column);
        assert_eq!(columns.collect::<Vec<_>>(), [&BAL, &CHANGED, &QUEUE]);
        assert!(root.nodes.iter().skip(1).all(|node| node.delay.is_some()) && !root.cut);
        let middle = why(&client, "r", &B).await;
        let up = [("load", Side::Cause), ("first", Side::Cause), ("second", Side::Own)];
        assert_eq!(names(&middle)[..3], up);
        assert_eq!(middle.nodes[2].ts, middle.write.commit_ts);
        let record = middle.nodes[2].record.as_ref().unwrap();
        assert_eq!((record.written_total, record.notified_total), (1, 1));
        assert_eq!(record.client, client.incarnation());
        workers.stop().await;
    });
}

#[test]
fn changes_that_one_run_handles_together_all_lead_to_it() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        client.observe(cascade(), one_thread()).await.unwrap().stop().await;
        let first = set(&client, &table, &[("r", "1")]).await;
        set(&client, &table, &[("r", "2")]).await;
        let workers = client.observe(cascade(), one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        workers.stop().await;
        // The change of the next run leads to that run alone.
        let third = set(&client, &table, &[("r", "3")]).await;
        let workers = client.observe(cascade(), one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        world.sleep_ms(1000).await;
        let at = async |ts| client.why(&table, "r", &BAL, Some(ts)).await.unwrap().unwrap();
        let (first, third) = (at(first).await, at(third).await);
        let ts = |why: &Why| why.nodes.iter().map(|node| node.ts).collect::<Vec<_>>();
        assert_eq!(names(&first).len(), 4, "{first:#?}");
        assert_eq!(names(&third).len(), 4, "{third:#?}");
        assert!(ts(&first)[1..].iter().all(|ts_| !ts(&third).contains(ts_)));
        workers.stop().await;
    });
}

/// The runs that handled a change with later ones are found without the values and without the
/// schema's row.
#[test]
fn a_question_reads_the_schema_once() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let first = || vec![Registration::strong("first", "t", &BAL, step(A, None))];
        client.observe(first(), one_thread()).await.unwrap().stop().await;
        let old = set(&client, &table, &[("r", "1")]).await;
        set(&client, &table, &[("r", "2")]).await;
        let workers = client.observe(first(), one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        world.sleep_ms(1_000).await;
        let schema_reads = || {
            let reads = world.store.trace();
            reads.iter().filter(|request| request.table == "percolator.system").count()
        };
        world.store.clear_trace();
        client.cell_state(&table, "r", &BAL).await.unwrap();
        let once = schema_reads();
        world.store.clear_trace();
        let why = client.why(&table, "r", &BAL, Some(old)).await.unwrap().unwrap();
        assert_eq!(names(&why), [("unnamed", Side::Own), ("first", Side::Effect)]);
        assert_eq!(schema_reads(), once);
        workers.stop().await;
    });
}

#[test]
fn a_full_answer_looks_at_no_more_cells() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let never = Observed {
            table: "t".to_owned(),
            column: A,
            observer: "never".to_owned(),
            strength: Strength::Strong,
        };
        client.declare(&[never]).await.unwrap();
        let first = vec![Registration::strong("first", "t", &BAL, step(A, None))];
        let workers = client.observe(first, one_thread()).await.unwrap();
        let rows: Vec<String> = (0..600).map(|n| format!("r{n:03}")).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (&**row, "1")).collect();
        set(&client, &table, &cells).await;
        while client.stats().observer_runs < 600 {
            world.sleep_ms(100).await;
        }
        world.sleep_ms(1_000).await;
        world.store.clear_trace();
        let why = why(&client, "r000", &BAL).await;
        assert!(why.cut && why.nodes.len() == 500);
        let reads = world.store.count(Op::Read);
        assert!(reads < 10, "{reads}");
        workers.stop().await;
    });
}

#[test]
fn what_is_not_in_the_trace_is_not_recorded_and_below_the_safe_point_nothing_is_said() {
    run(async |world| {
        let (silent, client) =
            (world.client().await, world.client_with(traced(Sampling::All)).await);
        let table = client.table("t").await.unwrap();
        client.observe(cascade(), one_thread()).await.unwrap().stop().await;
        let then = set(&silent, &table, &[("r", "1")]).await;
        let workers = client.observe(cascade(), one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        workers.stop().await;
        world.sleep_ms(1000).await;
        let up = why(&client, "r", &A).await;
        assert_eq!(names(&up)[..2], [("not recorded", Side::Cause), ("first", Side::Own)]);
        assert!(up.nodes[1].delay.is_none(), "nobody knows when the change was");
        assert_eq!(client.why(&table, "none", &A, None).await.unwrap(), None);
        set(&client, &table, &[("r", "2")]).await;
        client.gc(Duration::ZERO).await.unwrap();
        let old = client.why(&table, "r", &BAL, Some(then)).await;
        assert!(matches!(old, Err(Error::TooOld { .. })), "{old:?}");
        let ahead = percolator_core::Timestamp::new(1 << 40);
        let new = client.why(&table, "r", &BAL, ahead).await;
        assert!(matches!(new, Err(Error::NotIssued { .. })), "{new:?}");
    });
}

/// Two clients, or one client twice, that keep one cascade of four.
pub(crate) async fn clients(world: &World, apart: bool) -> (Client, Client) {
    let one_of_4: Sampling = "1/4".parse().unwrap();
    let loader = world.client_with(traced(one_of_4)).await;
    let runner = if apart { world.client_with(traced(one_of_4)).await } else { loader.clone() };
    (loader, runner)
}

/// Of four cascades, one is kept as a whole, whichever client runs the observers.
#[test]
fn sampling_keeps_cascades_whole_in_one_client_and_in_several() {
    for apart in [false, true] {
        run(async |world| {
            let (loader, runner) = clients(&world, apart).await;
            let workers = runner.observe(cascade(), one_thread()).await.unwrap();
            let table = loader.table("t").await.unwrap();
            for n in 0..80 {
                set(&loader, &table, &[(&format!("r{n:02}"), "1")]).await;
                world.sleep_ms(20).await;
            }
            loader.wait_idle(None).await.unwrap();
            world.sleep_ms(20_000).await;
            let mut lengths = BTreeMap::<usize, usize>::new();
            for n in 0..80 {
                let why = why(&loader, &format!("r{n:02}"), &BAL).await;
                let known = why.nodes.iter().filter(|node| node.record.is_some()).count();
                *lengths.entry(known).or_default() += 1;
            }
            let whole = lengths.get(&4).copied().unwrap_or(0);
            assert!((8..40).contains(&whole), "{lengths:?}");
            // Batches hold changes of several cascades, and are kept if one of those is.
            let parts = lengths.range(1..4).map(|(_, n)| n).sum::<usize>();
            assert!(
                lengths.keys().all(|known| [0, 4].contains(known) || *known > 4),
                "{parts} {lengths:?}"
            );
            assert_eq!(loader.stats().trace_dropped + runner.stats().trace_dropped, 0);
            workers.stop().await;
        });
    }
}

/// The same work with and without a trace leaves the same store, byte for byte, and takes the same
/// timestamps.
#[test]
fn a_trace_changes_no_history() {
    let work = |sampling: Sampling| {
        let runtime = VirtualRuntime::new(7);
        runtime.clone().block_on(async move {
            let store = Arc::new(MemoryStore::new());
            let client = client_on(&runtime, store.clone(), traced(sampling)).await.unwrap();
            let table = client.table("t").await.unwrap();
            let workers = client.observe(cascade(), one_thread()).await.unwrap();
            for n in 0..200 {
                let row = format!("r{}", n % 17);
                set(&client, &table, &[(&row, &n.to_string()), ("hot", "x")]).await;
                client.wait_idle(None).await.unwrap();
                runtime.sleep(Duration::from_millis(30)).await;
            }
            workers.stop().await;
            let (stats, latest) = (client.stats(), client.oracle().peek().await.unwrap());
            client.close().await;
            let is_traced = store.table_names().await.unwrap().iter().any(|name| name == TABLE);
            assert_eq!(is_traced, sampling != Sampling::Off);
            (dump(&*store).await, latest, stats.committed, stats.observer_runs)
        })
    };
    let (without, with) = (work(Sampling::Off), work(Sampling::All));
    assert_eq!(without.1, with.1);
    assert!(without == with, "the stores differ");
}

/// A trace takes no timestamp, delays no wait for idleness, and is never collected.
#[test]
fn nothing_else_sees_a_trace() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        let before = client.oracle().peek().await.unwrap();
        world.sleep_ms(60_000).await;
        assert!(client.wait_idle(Some(Duration::ZERO)).await.unwrap().idle);
        assert_eq!(client.table_names().await.unwrap(), ["t"]);
        client.gc(Duration::ZERO).await.unwrap();
        assert_eq!(names(&why(&client, "r", &BAL).await), [("unnamed", Side::Own)]);
        assert_eq!(client.oracle().peek().await.unwrap(), before);
    });
}

#[test]
fn a_store_that_refuses_the_trace_fails_no_commit_and_what_is_lost_is_counted() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let refused = world.store.when(1, Fault::Fail, |request| request.table == TABLE);
        set(&client, &table, &[("r", "1")]).await;
        refused.arrived().await;
        world.sleep_ms(1000).await;
        assert_eq!(client.stats().trace_dropped, 1);
        set(&client, &table, &[("r", "2")]).await;
        world.sleep_ms(1000).await;
        assert_eq!(names(&why(&client, "r", &BAL).await), [("unnamed", Side::Own)]);
        assert_eq!(client.stats().trace_dropped, 1);
    });
}

#[test]
fn the_queue_is_bounded_and_a_commit_does_not_wait_for_it() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let held = world.store.when(1, Fault::HoldReply, |request| request.table == TABLE);
        set(&client, &table, &[("r", "1")]).await;
        held.arrived().await;
        // One entry of each of these has 8 KiB of names, and 16 MiB may wait.
        let rows: Vec<String> = (0..40).map(|n| format!("{n}{}", "k".repeat(400))).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (row.as_str(), "1")).collect();
        for _ in 0..2_100 {
            set(&client, &table, &cells).await;
        }
        let dropped = client.stats().trace_dropped;
        assert!((1..1_000).contains(&dropped), "{dropped}");
        held.release();
    });
}

#[test]
fn a_client_that_is_closed_writes_the_rest_and_waits_for_no_store() {
    run(async |world| {
        let (client, other) =
            (world.client_with(traced(Sampling::All)).await, world.client().await);
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        client.close().await;
        assert_eq!(names(&why(&other, "r", &BAL).await), [("unnamed", Side::Own)]);
        let client = world.client_with(traced(Sampling::All)).await;
        set(&client, &table, &[("r", "2")]).await;
        world.store.when(1, Fault::HoldReply, |request| request.table == TABLE);
        let begun = world.runtime.now();
        client.close().await;
        let took = world.runtime.now().saturating_sub(begun);
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!(client.stats().trace_dropped, 1, "nobody knows whether it was written");
    });
}

/// How many rows the trace has.
pub(crate) async fn rows(world: &World) -> usize {
    keys(world).await.len()
}

/// The keys of the trace's rows.
pub(crate) async fn keys(world: &World) -> Vec<RowKey> {
    let table = world.store.inner.open_table(TABLE, &system_schema()).await.unwrap();
    let family = Family::from_static("system");
    let select = Selection::default().family(family, TimeRange::ALL, u32::MAX);
    let page = table.scan(&RowRange::all(), &select, Default::default()).await.unwrap();
    page.rows.into_iter().map(|row| row.key).collect()
}

#[test]
fn rows_expire_by_age() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let write = async |n: usize| {
            set(&client, &table, &[("r", &n.to_string())]).await;
            world.sleep_ms(1_000).await;
        };
        for n in 0..20 {
            write(n).await;
        }
        assert_eq!(rows(&world).await, 20);
        world.sleep_ms(12 * 3_600_000).await;
        write(20).await;
        assert_eq!(rows(&world).await, 21);
        world.sleep_ms(12 * 3_600_000).await;
        write(21).await;
        assert_eq!(rows(&world).await, 2, "the first twenty are a day old");
        // A process that opens the store skips timestamps, and the trace stays.
        for _ in 0..3_000_000 {
            client.oracle().timestamp().await.unwrap();
        }
        world.sleep_ms(60_000).await;
        write(22).await;
        assert_eq!(rows(&world).await, 3);
    });
}

/// A row of another client that says that it holds so many transactions.
async fn claim(world: &World, bucket: u8, transactions: u64) {
    let table = world.store.inner.open_table(TABLE, &system_schema()).await.unwrap();
    let key = [&[bucket % 16, 0, 0, 0, 0, 0, 0, 0, bucket][..], &[9; 24]].concat();
    let time = [world.runtime.wall_ms().to_be_bytes(), transactions.to_be_bytes()].concat();
    let set = |column: &'static str, value: Vec<u8>| {
        let (family, zero) = (Family::from_static("system"), percolator_core::Timestamp::ZERO);
        bigtable::Mutation::set(family, column, zero, value)
    };
    let row = bigtable::RowMutation::new(key).mutation(set("time", time));
    table.mutate_row(row.mutation(set("trace", Vec::new()))).await.unwrap();
}

#[test]
fn of_more_than_a_million_transactions_the_oldest_go() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("r", "0")]).await;
        world.sleep_ms(1_000).await;
        for bucket in [100, 101, 102] {
            claim(&world, bucket, 400_000).await;
        }
        for n in 0..16_384 {
            set(&client, &table, &[("r", &n.to_string())]).await;
        }
        world.sleep_ms(120_000).await;
        // The first rows are older than those of the other client, and go before them.
        set(&client, &table, &[("r", "last")]).await;
        world.sleep_ms(2_000).await;
        let then = percolator_core::Timestamp::new(100 << 10).unwrap();
        assert!(client.oracle().peek().await.unwrap() < then);
        assert_eq!(rows(&world).await, 2, "two of the other client's fit");
    });
}

/// A client that does nothing is not woken by its trace.
#[test]
fn an_idle_trace_costs_nothing() {
    let woken = |sampling: Sampling| {
        let runtime = VirtualRuntime::new(1);
        runtime.clone().block_on(async move {
            let store = Arc::new(MemoryStore::new());
            let client = client_on(&runtime, store, traced(sampling)).await.unwrap();
            runtime.sleep(Duration::from_secs(3_600)).await;
            drop(client);
            runtime.woken()
        })
    };
    assert_eq!(woken(Sampling::All), woken(Sampling::Off));
}

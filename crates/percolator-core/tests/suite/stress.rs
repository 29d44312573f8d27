//! Runs many clients, observers and crashes over a store that loses, delays and repeats
//! requests.
//!
//! The invariants in every run:
//! * Money is neither made nor lost in any snapshot.
//! * The strong observer of a change handles it in exactly one committed run. One run may
//!   handle several changes.
//! * No lock and no notification is left.

use std::time::Duration;

use percolator_core::{
    Change, Client, Column, Options, Registration, Result, Runtime, Secondaries, Table,
    Transaction, WorkerOptions, Workers,
};

use crate::faults::{LOCK, ROLLBACK, WRITE, Weather};
use crate::stores::{FLOOR, STORMS};
use crate::world::{BAL, Process, World, add, number, observer, run_seed};

const VERSION: Column = Column::literal("f:version");
const SEEN: Column = Column::literal("f:seen");
const IDLE_RUNS: Column = Column::literal("f:idle_runs");
const CHANGED: Column = Column::literal("f:changed");
const COPY: Column = Column::literal("f:copy");
const ACCOUNTS: u64 = 5;
const MONEY: i64 = 100;

const STORM: Weather = Weather {
    delay_max: Duration::from_millis(3),
    fail: 50,
    drop_reply: 50,
    late: 60,
    duplicate: 30,
    late_max: Duration::from_secs(5),
};

fn options(seed: u64) -> Options {
    Options {
        lock_lifetime: Duration::from_secs(2),
        commit_deadline: Duration::from_secs(5),
        // Some values are stored in the records, some in `data`.
        short_value_bytes_max: (seed % 3) as usize,
        secondaries: if seed.is_multiple_of(2) {
            Secondaries::Awaited
        } else {
            Secondaries::Background
        },
        ..Options::default()
    }
}

fn account(number: u64) -> String {
    format!("account-{number}")
}

/// Moves money between two accounts, perhaps of two tables, and counts the change of each.
async fn transfer(client: &Client, banks: &[Table; 2]) -> Result<()> {
    let random = client.runtime().random();
    let from = (&banks[(random % 2) as usize], account((random >> 8) % ACCOUNTS));
    let to = (&banks[((random >> 1) % 2) as usize], account((random >> 16) % ACCOUNTS));
    let amount = ((random >> 24) % 20) as i64;
    if from.0 == to.0 && from.1 == to.1 {
        return Ok(());
    }
    client
        .transact(async |mut tx| {
            for ((table, row), by) in [(&from, -amount), (&to, amount)] {
                add(&mut tx, table, row.as_str(), &BAL, by).await?;
                add(&mut tx, table, row.as_str(), &VERSION, 1).await?;
            }
            Ok(())
        })
        .await
}

async fn sum(client: &Client, banks: &[Table; 2]) -> Result<i64> {
    let tx = client.begin().await?;
    let mut sum = 0;
    for table in banks {
        let rows = tx.scan(table).columns([&BAL]).collect().await?;
        sum += rows.into_iter().map(|row| number(Some(row.cells[0].1.clone()))).sum::<i64>();
    }
    Ok(sum)
}

/// Follows an account's changes: records the version that it has seen, and any run that saw
/// nothing new.
async fn follow(tx: &mut Transaction, change: &Change) -> Result<()> {
    let Change { table, row, .. } = change;
    let version = number(tx.get(table, row.clone(), &VERSION).await?);
    let seen = number(tx.get(table, row.clone(), &SEEN).await?);
    if version <= seen {
        add(tx, table, row.clone(), &IDLE_RUNS, 1).await?;
    }
    tx.notify(table, row.clone(), &CHANGED)?;
    tx.set(table, row.clone(), &SEEN, version.to_string())
}

/// Copies the version up to which the account was followed.
async fn copy(tx: &mut Transaction, change: &Change) -> Result<()> {
    let Change { table, row, .. } = change;
    let seen = tx.get(table, row.clone(), &SEEN).await?.unwrap_or_default();
    tx.set(table, row.clone(), &COPY, seen)
}

fn registrations() -> Vec<Registration> {
    let mut all = Vec::new();
    for table in ["bank-0", "bank-1"] {
        let run = observer(|tx, change| Box::pin(follow(tx, change)));
        all.push(Registration::strong("follow", table, &VERSION, run));
        let run = observer(|tx, change| Box::pin(copy(tx, change)));
        all.push(Registration::weak("copy", table, &CHANGED, run));
    }
    all
}

async fn observe(process: &Process) -> Workers {
    let options = WorkerOptions { threads: 2, ..WorkerOptions::default() };
    loop {
        if let Ok(workers) = process.client.observe(registrations(), options.clone()).await {
            return workers;
        }
    }
}

/// A process that transfers, and crashes somewhere in the middle or does not.
async fn teller(world: World, seed: u64, banks: [Table; 2]) {
    for _ in 0..2 {
        let process = world.process(options(seed), 0).await;
        let (client, banks) = (process.client.clone(), banks.clone());
        let (done, end) = futures::channel::oneshot::channel::<()>();
        process.spawn(async move {
            for _ in 0..6 {
                // Conflicts and lost replies are expected here.
                let _ = transfer(&client, &banks).await;
            }
            drop(done);
        });
        let life = Duration::from_micros(world.runtime.random() % 150_000);
        match world.runtime.random() % 3 {
            0 => drop(end.await),
            _ => world.runtime.sleep(life).await,
        }
        process.crash();
    }
}

/// Collects garbage until `stop`, in turns up to the present and some way behind it. Returns
/// how many rounds dropped something.
async fn collect(client: Client, mut stop: futures::channel::oneshot::Receiver<()>) -> usize {
    let mut rounds = 0;
    while let Ok(None) = stop.try_recv() {
        let random = client.runtime().random();
        // If faults end a round, the next one does its work.
        let round = client.gc(Duration::from_millis(random % 2 * 20)).await;
        rounds += usize::from(round.is_ok_and(|round| round.counts.writes > 0));
        client.runtime().sleep(Duration::from_millis((random >> 8) % 20)).await;
    }
    rounds
}

async fn storm(world: World, seed: u64) -> usize {
    let first = world.client_with(options(seed)).await;
    let banks = [first.table("bank-0").await.unwrap(), first.table("bank-1").await.unwrap()];
    let mut tx = first.begin().await.unwrap();
    for table in &banks {
        for number in 0..ACCOUNTS {
            tx.set(table, account(number).as_str(), &BAL, MONEY.to_string()).unwrap();
            tx.set(table, account(number).as_str(), &VERSION, "1").unwrap();
        }
    }
    tx.commit().await.unwrap();
    let total = 2 * ACCOUNTS as i64 * MONEY;
    world.store.set_weather(STORM);
    let crashing = world.process(options(seed), 0).await;
    let short_lived = observe(&crashing).await;
    let tellers = (0..4).map(|_| world.beside(teller(world.clone(), seed, banks.clone())));
    let tellers: Vec<_> = tellers.collect();
    let (stop, stopped) = futures::channel::oneshot::channel();
    let collector = world.process(options(seed), 0).await;
    let collecting = world.beside(collect(collector.client.clone(), stopped));
    for _ in 0..4 {
        world.sleep_ms(world.runtime.random() % 60).await;
        if let Ok(sum) = sum(&first, &banks).await {
            assert_eq!(sum, total, "seed {seed}: in the middle");
        }
    }
    crashing.crash();
    drop(short_lived);
    let workers = observe(&world.process(options(seed), 0).await).await;
    for teller in tellers {
        teller.await.unwrap();
    }
    // Requests in flight arrive, and then the weather clears.
    world.runtime.sleep(STORM.late_max).await;
    world.store.set_weather(Weather::default());
    drop(stop);
    let rounds = collecting.await.unwrap();
    let report = first.wait_idle(Some(Duration::from_secs(120))).await.unwrap();
    assert!(report.idle && report.set_aside.is_empty(), "seed {seed}: {report:?}");
    assert_eq!(sum(&first, &banks).await.unwrap(), total, "seed {seed}: at the end");
    let tx = first.begin().await.unwrap();
    for table in &banks {
        for row in tx.scan(table).collect().await.unwrap() {
            let cell = |column: &Column| row.cells.iter().find(|cell| cell.0 == *column);
            let value = |column: &Column| number(cell(column).map(|cell| cell.1.clone()));
            let what = format!("seed {seed}: {}/{}", table.name(), row.row);
            assert_eq!(value(&SEEN), value(&VERSION), "a change was not handled: {what}");
            assert_eq!(value(&IDLE_RUNS), 0, "a change was handled twice: {what}");
            assert_eq!(value(&COPY), value(&SEEN), "a weak notification was lost: {what}");
        }
        // Acknowledgements are not part of a scan. Observers resolve their locks when they
        // read them.
        let resolved = first.held_locks(1000).await.unwrap();
        assert!(resolved.iter().all(|lock| lock.cell.column.family() == b"ack"), "{resolved:?}");
        world.audit(table).await;
    }
    drop(tx);
    workers.stop().await;
    assert!(world.cells(&banks[0], LOCK).await < 10);
    if !FLOOR {
        return 0;
    }
    // The garbage collector leaves one version of each cell.
    let report = first.gc(Duration::ZERO).await.unwrap();
    assert!(report.blocked_by.is_none(), "seed {seed}: {report:?}");
    assert_eq!(sum(&first, &banks).await.unwrap(), total, "seed {seed}: after collection");
    for table in &banks {
        // Balance, version, copy, `seen` and its acknowledgement. No run was idle.
        assert_eq!(world.cells(table, WRITE).await, 5 * ACCOUNTS as usize, "seed {seed}");
        assert_eq!(world.cells(table, ROLLBACK).await, 0, "seed {seed}");
        world.audit(table).await;
    }
    rounds
}

/// Runs every second seed. The environment variable `SEEDS` sets their number.
fn storms(first: u64) {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(STORMS);
    let mut rounds = 0;
    for seed in (first..seeds).step_by(2) {
        rounds += run_seed(seed, async |world| storm(world, seed).await);
    }
    assert!(
        rounds > seeds as usize || !FLOOR,
        "collection took place in the middle of the storms: {rounds}"
    );
}

#[test]
fn money_and_observers_survive_storms_with_secondaries_awaited() {
    storms(0);
}

#[test]
fn money_and_observers_survive_storms_with_secondaries_in_the_background() {
    storms(1);
}

//! Pauses observers for some time, while changes of the observed cells go on.
//!
//! The client that pauses an observer notes the latest timestamp twice: after the pause, and
//! before it resumes the observer. No run of the observer may have a start timestamp between the
//! two. A transaction receives the version of the schema with its start timestamp, and so learns
//! of the pause. The observers' other checkers make sure that no change is lost and none is
//! handled twice.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use percolator_core::{Client, Result};

use crate::book::Pause;
use crate::history::{Cell, Finding};
use crate::names::OBSERVERS;
use crate::nemesis::wait;
use crate::tally::{Fault, Sometimes};
use crate::workload::{OBSERVED, PAUSED};
use crate::world::World;

/// Pauses one observer after the other, until the world is healed.
pub(crate) async fn pause_observers(world: Arc<World>, interval: Duration) {
    let client = world.client(&world.new_process()).await;
    loop {
        wait(&world, interval).await;
        if world.is_healed() {
            return;
        }
        let observer = PAUSED[world.between(0, PAUSED.len() as u64 - 1) as usize];
        // A failed call may have paused the observer nevertheless; the end of the world
        // resumes all.
        if let Ok(Some(pause)) = pause_one(&world, &client, observer, interval).await {
            world.tally.fault(Fault::ObserverPause);
            world.book().pauses.push(pause);
        }
    }
}

async fn pause_one(
    world: &World,
    client: &Client,
    observer: u8,
    longest: Duration,
) -> Result<Option<Pause>> {
    let name = OBSERVERS[usize::from(observer)];
    if client.pause_observer(name).await? == 0 {
        // No such observer is registered yet.
        return Ok(None);
    }
    let from = client.oracle().peek().await?;
    wait(world, longest).await;
    let upto = client.oracle().peek().await;
    // The end of the world resumes all observers, so a pause that reaches into it proves nothing.
    let known = !world.is_healed();
    while client.resume_observer(name).await.is_err() && !world.is_healed() {
        wait(world, Duration::from_millis(20)).await;
    }
    let upto = upto?;
    Ok(known.then_some(Pause { observer, from, upto }))
}

/// Resumes every observer, at the end.
pub(crate) async fn resume_all(client: &Client) -> Result<()> {
    for paused in client.paused_observers().await? {
        client.resume_observer(&paused.observer).await?;
    }
    Ok(())
}

/// Returns the runs that began while their observer was paused.
pub(crate) fn verify(world: &World) -> Vec<Finding> {
    let book = world.book();
    let strong = book.runs.iter().map(|run| (run.observer, run.cell, run.start_ts));
    let weak = book.weak_runs.iter().map(|(cell, s)| (6, *cell, *s));
    let batches = book.exported.iter().map(|(cell, s)| (7, *cell, *s));
    let runs: Vec<(u8, Cell, Timestamp)> = strong.chain(weak).chain(batches).collect();
    let mut findings = Vec::new();
    for Pause { observer, from, upto } in &book.pauses {
        let of = || runs.iter().filter(|(runner, _, _)| runner == observer);
        for (_, cell, s) in of().filter(|(_, _, s)| from < s && s <= upto) {
            let facts = format!("{observer} ran on {cell:?} at {s}, and was paused from {from}");
            findings.push(Finding { property: "paused", facts });
        }
        let changed = |cell: &Cell| {
            let records = &world.store.journal().records;
            records.iter().any(|r| r.cell == *cell && *from < r.commit_ts && r.commit_ts <= *upto)
        };
        let observes = OBSERVED.iter().any(|(number, _)| number == observer);
        if observes && of().any(|(_, cell, s)| s > upto && changed(cell)) {
            world.tally.happened(Sometimes::RanAfterPause);
        }
    }
    findings
}

//! Pauses observers for some time, while changes of the observed cells go on.
//!
//! The client that pauses an observer notes the latest timestamp after the pause. Until the client
//! begins to resume the observer, no run with a higher start timestamp may come. A transaction
//! receives the version of the schema with its start timestamp, and so learns of the pause. The
//! observers' other checkers make sure that no change is lost and none is handled twice.
//!
//! A run with a start timestamp from a pause may come after the pause: its process has read that
//! the observer is resumed. The checker does not know what a process has read. So it reports no run
//! that comes after the pause.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use percolator_core::{Client, Result};

use crate::book::Pause;
use crate::history::{Cell, Finding, Run};
use crate::names::OBSERVERS;
use crate::nemesis::wait;
use crate::tally::{Fault, Sometimes};
use crate::workload::PAUSED;
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
    world.book().paused.insert(observer, from);
    wait(world, longest).await;
    let upto = client.oracle().peek().await;
    // The end of the world resumes all observers, so a pause that reaches into it proves nothing.
    let known = !world.is_healed();
    world.book().paused.remove(&observer);
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

/// Reports a run that comes while its observer is paused.
pub(crate) fn check_run(world: &World, observer: u8, cell: Cell, start_ts: Timestamp) {
    let mut book = world.book();
    let Some(from) = book.paused.get(&observer).copied() else { return };
    // The end of the world resumes all observers.
    if from < start_ts && !world.is_healed() {
        let facts =
            format!("{observer} ran on {cell:?} at {start_ts}, and has been paused since {from}");
        book.findings.push(Finding { property: "paused", facts });
    }
}

/// Counts the changes of a pause that were handled after it.
pub(crate) fn count(world: &World) {
    let book = world.book();
    for Pause { observer, from, upto } in &book.pauses {
        let changed = |cell: &Cell| {
            let records = &world.store.journal().records;
            records.iter().any(|r| r.cell == *cell && *from < r.commit_ts && r.commit_ts <= *upto)
        };
        let after = |run: &&Run| run.observer == *observer && run.start_ts > *upto;
        if book.runs.iter().filter(after).any(|run| changed(&run.cell)) {
            world.tally.happened(Sometimes::RanAfterPause);
        }
    }
}

//! Does the clients' work: each seed draws some kinds of it, and its clients mix them.

mod cell;
mod mix;
mod observed;
mod plain;
mod sums;

use std::sync::Arc;

use percolator_core::Result;

use crate::book::Session;
use crate::history::{Cell, Finding};
use crate::world::World;

pub(crate) use mix::{Kind, Mix};
pub(crate) use observed::{LATE, OBSERVED, Observers, PAUSED, observe, with_late};

/// Writes the data that the workloads need before their first client.
pub(crate) async fn set_up(session: &Session) {
    if session.world.mix.has(Kind::Bank) {
        while sums::fund(session).await.is_err() {}
    }
}

/// Does one piece of work, which may fail because of the world's faults.
pub(crate) async fn step(session: &Session) -> Result<()> {
    let world = &session.world;
    let kind = world.executor.draw(|rng| world.mix.pick(rng));
    match kind.unwrap_or(Kind::Few) {
        Kind::Few => plain::mixed(session, 0, 6).await,
        Kind::Many => plain::mixed(session, 1, 200).await,
        Kind::Bank => sums::bank(session).await,
        Kind::Counter => sums::count(session).await,
        Kind::Append => sums::append(session).await,
        Kind::Set => plain::set(session).await,
        Kind::Skew => plain::skew(session).await,
        Kind::Reader => plain::long_reader(session).await,
        Kind::Large => plain::large(session).await,
        Kind::Blind => plain::blind(session).await,
        Kind::Source => observed::source(session).await,
        Kind::Notifier => observed::notifier(session).await,
    }
}

/// Checks the end of a run by the rules of each workload, beyond those for any history.
pub(crate) async fn verify(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = sums::verify(session).await?;
    findings.extend(observed::verify(session).await?);
    Ok(findings)
}

/// Counts the pairs of transactions with a write skew: each read that the other's cell was
/// empty, and both committed.
pub(crate) fn skews(world: &Arc<World>) -> u64 {
    let book = world.book();
    let journal = world.store.journal();
    let written = |cell: &Cell| journal.records.iter().any(|record| record.cell == *cell);
    book.skew_probes.iter().filter(|(a, b)| written(a) && written(b)).count() as u64
}

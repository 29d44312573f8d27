//! What clients do: each seed draws some of these, and its clients mix them.

mod observed;
mod plain;
mod sums;

use std::sync::Arc;

use percolator_core::Result;

use crate::book::Session;
use crate::history::{Cell, Finding};
use crate::random::Rng;
use crate::world::World;

pub(crate) use observed::{LATE, OBSERVED, Observers, PAUSED, observe, with_late};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Reads, writes, deletes and scans of few cells.
    Few,
    /// The same of many cells.
    Many,
    /// Transfers between accounts of two tables, and audits.
    Bank,
    /// Increments.
    Counter,
    /// Lists that grow.
    Append,
    /// A set that is scanned.
    Set,
    /// Two transactions that each read what the other writes.
    Skew,
    /// Readers that take their time.
    Reader,
    /// Transactions of many cells.
    Large,
    /// Writers that read nothing.
    Blind,
    /// Writers of observed columns.
    Source,
    /// Writers that leave weak notifications.
    Notifier,
}

impl Kind {
    pub(crate) const ALL: [Kind; 12] = [
        Kind::Few,
        Kind::Many,
        Kind::Bank,
        Kind::Counter,
        Kind::Append,
        Kind::Set,
        Kind::Skew,
        Kind::Reader,
        Kind::Large,
        Kind::Blind,
        Kind::Source,
        Kind::Notifier,
    ];
}

/// The kinds that a seed's clients mix.
#[derive(Debug, Clone)]
pub(crate) struct Mix(Vec<Kind>);

impl Mix {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut kinds = Kind::ALL.to_vec();
        let keep = rng.between(1, 6) as usize;
        while kinds.len() > keep {
            let out = rng.below(kinds.len() as u64) as usize;
            kinds.remove(out);
        }
        Mix(kinds)
    }

    /// Leaves a kind out; the last one stays.
    pub(crate) fn leave_out(&mut self, kind: Kind) {
        if self.0.len() > 1 {
            self.0.retain(|other| *other != kind);
        }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// Whether any column is observed.
    pub(crate) fn observes(&self) -> bool {
        self.has(Kind::Source) || self.has(Kind::Notifier)
    }
}

/// What must be there before the first client.
pub(crate) async fn set_up(session: &Session) {
    if session.world.mix.has(Kind::Bank) {
        while sums::fund(session).await.is_err() {}
    }
}

/// Does one piece of work; it may fail, as work does in such a world.
pub(crate) async fn step(session: &Session) -> Result<()> {
    let world = &session.world;
    let kind = world.executor.draw(|rng| rng.pick(&world.mix.0).copied());
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

/// What the kinds themselves say about the end of a run, beyond what holds for any history.
pub(crate) async fn verify(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = sums::verify(session).await?;
    findings.extend(observed::verify(session).await?);
    Ok(findings)
}

/// How many pairs of transactions made a skew: both read that the other's cell was empty, both
/// committed.
pub(crate) fn skews(world: &Arc<World>) -> u64 {
    let book = world.book();
    let journal = world.store.journal();
    let written = |cell: &Cell| journal.records.iter().any(|record| record.cell == *cell);
    book.skew_probes.iter().filter(|(a, b)| written(a) && written(b)).count() as u64
}

fn cell(table: u8, row: u64, column: u8) -> Cell {
    Cell { table, row: u16::try_from(row).unwrap_or(u16::MAX), column }
}

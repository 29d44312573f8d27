//! Sums up a run, and many runs.

use std::time::Duration;

use crate::history::{Finding, History, Outcome};
use crate::random::mix;
use crate::schedule::Policy;
use crate::tally::{Fault, Sometimes};
use crate::workload;
use crate::world::World;

/// The result of one seed.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of the trace: every task choice, message and fault.
    pub hash: u64,
    /// The trace as text, if the caller asked for it.
    pub trace: Vec<String>,
    /// The findings of the checkers.
    pub findings: Vec<Finding>,
    /// Counts of the run's events.
    pub totals: Totals,
}

/// Numbers that add up over seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of seeds.
    pub seeds: u64,
    /// One hash over all histories: the sum, modulo 2^64, of each seed mixed with the hash of its
    /// trace. The sum does not depend on the order in which the seeds ran.
    pub histories: u64,
    /// Seeds whose tasks ran by priority, with moments at which a priority changes.
    pub by_priority: u64,
    /// Transactions begun, those of observers included.
    pub transactions: u64,
    /// Transactions that the store shows as committed.
    pub committed: u64,
    /// Transactions whose client received "aborted", and transactions that wrote nothing.
    pub aborted: u64,
    /// Messages delivered.
    pub messages: u64,
    /// The sum of the virtual times.
    pub virtual_time: Duration,
    /// Pairs of transactions that made a write skew, which snapshot isolation allows.
    pub skews: u64,
    /// Counts of faults, in the order of [`Fault::ALL`].
    pub faults: Vec<u64>,
    /// Counts of things that must happen sometimes, in the order of [`Sometimes::ALL`].
    pub sometimes: Vec<u64>,
}

impl Report {
    pub(crate) fn of(
        world: &std::sync::Arc<World>,
        seed: u64,
        history: &mut History,
        findings: Vec<Finding>,
    ) -> Self {
        let trace = world.executor.take_trace();
        let aborted = |txn: &&crate::history::Txn| txn.outcome == Outcome::Aborted;
        let committed = world.store.journal().committed.len() as u64;
        let hash = trace.hash();
        let totals = Totals {
            seeds: 1,
            histories: mix(seed, hash),
            by_priority: u64::from(world.swarm.policy != Policy::Any),
            transactions: history.txns.len() as u64,
            committed,
            aborted: history.txns.iter().filter(aborted).count() as u64,
            messages: world.tally.messages(),
            virtual_time: world.now(),
            skews: workload::skews(world),
            faults: world.tally.faults(),
            sometimes: world.tally.sometimes(),
        };
        Report { seed, hash, trace: trace.into_lines(), findings, totals }
    }
}

impl Totals {
    /// Adds another run's numbers.
    pub fn add(&mut self, other: &Totals) {
        self.seeds += other.seeds;
        self.histories = self.histories.wrapping_add(other.histories);
        self.by_priority += other.by_priority;
        self.transactions += other.transactions;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.messages += other.messages;
        self.virtual_time += other.virtual_time;
        self.skews += other.skews;
        self.faults.resize(Fault::ALL.len(), 0);
        self.sometimes.resize(Sometimes::ALL.len(), 0);
        let pairs = self.faults.iter_mut().zip(&other.faults);
        pairs.for_each(|(sum, more)| *sum += more);
        let pairs = self.sometimes.iter_mut().zip(&other.sometimes);
        pairs.for_each(|(sum, more)| *sum += more);
    }

    /// Returns the names of things that must happen sometimes and never did.
    pub fn never(&self) -> Vec<&'static str> {
        let zero = |what: &&Sometimes| self.sometimes.get(**what as usize).is_none_or(|n| *n == 0);
        let mut never: Vec<_> =
            Sometimes::ALL.iter().filter(zero).map(|what| what.name()).collect();
        if self.skews == 0 {
            never.push("write_skew");
        }
        if self.by_priority == 0 {
            never.push("scheduling by priority");
        }
        never
    }
}

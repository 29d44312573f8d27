//! What a run did, by type of transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::request::{Reads, TransactionType};

/// What was done of one type.
///
/// See [`Report`].
#[derive(Debug, Clone)]
pub struct TypeReport {
    /// Transactions that ended: committed, or rolled back because the customer wished so.
    pub done: u64,
    /// Attempts that another transaction's write made fail.
    pub conflicts: u64,
    /// All attempts after the first.
    pub retries: u64,
    /// What the last attempts read and wrote.
    pub reads: Reads,
    /// Nanoseconds, from when a request was due to the end of its last attempt.
    pub latencies: Histogram<u64>,
}

impl Default for TypeReport {
    fn default() -> Self {
        let (done, conflicts, retries, reads) = (0, 0, 0, Reads::default());
        TypeReport { done, conflicts, retries, reads, latencies: histogram() }
    }
}

/// What a run did.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use tpce::{Exchange, Scale, TransactionType};
/// let scale = Scale { trades_per_customer: 5, ..Scale::new(20, 1) };
/// let db = percolator::Percolator::in_memory().await?;
/// let exchange = Exchange::load(db, scale).await?;
/// let report = exchange.transactions(2, 100).await?;
/// assert_eq!(report.total(), 100);
/// assert!(report.of(TransactionType::TradeStatus).done > 0);
/// assert!(exchange.check().await?.is_empty());
/// # Ok::<(), tpce::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Report {
    /// How long it took.
    pub elapsed: Duration,
    types: BTreeMap<TransactionType, TypeReport>,
    /// By how many nanoseconds requests were sent later than they should have been; of a closed
    /// loop nothing.
    pub lateness: Histogram<u64>,
}

impl Default for Report {
    fn default() -> Self {
        Report { elapsed: Duration::ZERO, types: BTreeMap::new(), lateness: histogram() }
    }
}

impl Report {
    /// What was done of a type.
    pub fn of(&self, kind: TransactionType) -> TypeReport {
        self.types.get(&kind).cloned().unwrap_or_default()
    }

    /// Transactions of all types.
    pub fn total(&self) -> u64 {
        self.types.values().map(|report| report.done).sum()
    }

    /// Trade-Results: what a brokerage is measured by.
    pub fn trade_results(&self) -> u64 {
        self.types.get(&TransactionType::TradeResult).map_or(0, |report| report.done)
    }

    /// Attempts that conflicted, of all types.
    pub fn conflicts(&self) -> u64 {
        self.types.values().map(|report| report.conflicts).sum()
    }

    /// Adds what was done in another part of a run, or in another run.
    pub fn add(&mut self, other: &Report) {
        self.elapsed += other.elapsed;
        add(&mut self.lateness, &other.lateness);
        for (kind, from) in &other.types {
            let into = self.entry(*kind);
            into.done += from.done;
            into.conflicts += from.conflicts;
            into.retries += from.retries;
            into.reads.add(from.reads);
            add(&mut into.latencies, &from.latencies);
        }
    }

    pub(crate) fn entry(&mut self, kind: TransactionType) -> &mut TypeReport {
        self.types.entry(kind).or_default()
    }
}

fn add(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    into.add(from).expect("all histograms have the same bounds");
}

/// Of nanoseconds up to ten minutes; what is longer counts as ten minutes.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("these bounds are allowed")
}

//! Holds the results of a run by type of transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::request::{Reads, TransactionType};

/// The results of one type.
///
/// See [`Report`].
#[derive(Debug, Clone)]
pub struct TypeReport {
    /// Number of finished transactions: committed, or rolled back by the customer's wish.
    pub done: u64,
    /// Number of attempts that failed because of another transaction's write.
    pub conflicts: u64,
    /// Number of attempts after the first.
    pub retries: u64,
    /// Reads and writes of the successful attempts.
    pub reads: Reads,
    /// Nanoseconds from the time a request was due to the end of its last attempt.
    pub latencies: Histogram<u64>,
}

impl Default for TypeReport {
    fn default() -> Self {
        let (done, conflicts, retries, reads) = (0, 0, 0, Reads::default());
        TypeReport { done, conflicts, retries, reads, latencies: histogram() }
    }
}

/// The results of a run.
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
    /// The length of the run.
    pub elapsed: Duration,
    types: BTreeMap<TransactionType, TypeReport>,
    /// Lateness with which requests were sent, in nanoseconds. Empty for a closed loop.
    pub lateness: Histogram<u64>,
}

impl Default for Report {
    fn default() -> Self {
        Report { elapsed: Duration::ZERO, types: BTreeMap::new(), lateness: histogram() }
    }
}

impl Report {
    /// The results of a type.
    pub fn of(&self, kind: TransactionType) -> TypeReport {
        self.types.get(&kind).cloned().unwrap_or_default()
    }

    /// Number of transactions of all types.
    pub fn total(&self) -> u64 {
        self.types.values().map(|report| report.done).sum()
    }

    /// Number of Trade-Results, the measure of a brokerage.
    pub fn trade_results(&self) -> u64 {
        self.types.get(&TransactionType::TradeResult).map_or(0, |report| report.done)
    }

    /// Number of conflicting attempts of all types.
    pub fn conflicts(&self) -> u64 {
        self.types.values().map(|report| report.conflicts).sum()
    }

    /// Adds the results of another part of a run, or of another run.
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

/// A histogram of nanoseconds up to ten minutes. Longer times count as ten minutes.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("these bounds are allowed")
}

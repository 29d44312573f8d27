//! Defines the stores that `percolator-bench fig9` drives.

use clap::ValueEnum;

/// Divisor for the customers of the smaller brokerage, which shows the effect of size.
pub(super) const SMALLER: u64 = 8;

/// A store that is driven by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Store {
    /// In the driver's own process.
    Embedded,
    /// The same, with an eighth of the customers.
    Small,
    /// Served by other processes.
    Rpc,
    /// PostgreSQL.
    Postgres,
}

impl Store {
    pub(super) const ALL: [Store; 4] = [Store::Embedded, Store::Small, Store::Rpc, Store::Postgres];

    pub(super) fn name(self) -> &'static str {
        match self {
            Store::Embedded => "embedded",
            Store::Small => "small",
            Store::Rpc => "rpc",
            Store::Postgres => "postgres",
        }
    }

    pub(super) fn customers(self, all: u64) -> u64 {
        match self {
            Store::Small => (all / SMALLER).max(tpce::CUSTOMERS_MIN),
            _ => all,
        }
    }
}

//! A TPC-E-like workload over Percolator: the experiment of the paper's section 3.3, as an
//! application.
//!
//! A brokerage: customers order trades and look at prices and positions, a market executes the
//! trades. What is counted is Trade-Results, each of which stands for about ten transactions and a
//! thousand reads. It follows the public description of TPC-E in data, transactions and their mix,
//! and deviates where [the paper did](TransactionType::TradeResult) and where this says so. **Its
//! results are not comparable with published TPC-E results.**
//!
//! ```text
//! model/         keys, records of 33 tables, index rows
//! generate/      all rows before the run, from a seed
//! request.rs     what is asked, the same for every store      emulator.rs  customers
//! transactions/  one file for each type, over Percolator      market.rs    the market
//! postgres/      the same transactions in SQL, to compare with
//! driver.rs      clients in a closed or an open loop          floor.rs     what they share
//! pace.rs, log.rs  one of several drivers: how fast it may go, and what it has done
//! check/         nine checks that a run ends with
//! ```
//!
//! Not here: Trade-Cleanup, which TPC-E runs before a measurement to remove what an earlier one
//! left (a run here begins with fresh data), and the tables' long tail of descriptive columns.

mod backend;
mod check;
mod driver;
mod emulator;
mod error;
mod floor;
mod generate;
mod log;
mod market;
mod model;
mod pace;
pub mod postgres;
mod report;
mod request;
mod rules;
mod scale;
mod store;
mod transactions;

pub use check::{Audit, Violation};
pub use driver::{Exchange, Seat};
pub use error::{Error, Result};
pub use log::{Entry, Log};
pub use pace::{Pace, Pacer};
pub use report::{Report, TypeReport};
pub use request::{Reads, TransactionType};
pub use scale::{CUSTOMERS_MAX, CUSTOMERS_MIN, Scale};

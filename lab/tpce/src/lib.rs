//! Implements a TPC-E-like workload over Percolator: the experiment of the paper's section 3.3,
//! as an application.
//!
//! It is a brokerage: customers order trades and look at prices and positions, and a market
//! executes the trades. The measure is Trade-Results, each of which stands for about ten
//! transactions and a thousand reads. Data, transactions and their mix follow the public
//! description of TPC-E. They deviate where [the paper did](TransactionType::TradeResult), and
//! where this documentation says so. **Its results are not comparable with published TPC-E
//! results.**
//!
//! ```text
//! model/         keys, records of 33 tables, index rows
//! generate/      all rows before the run, from a seed
//! request.rs     requests, the same for every store           emulator.rs  customers
//! transactions/  one file for each type, over Percolator      market.rs    the market
//! postgres/      the same transactions in SQL, to compare with
//! driver.rs      clients in a closed or an open loop          floor.rs     their shared state
//! pace.rs, log.rs  one of several drivers: its pace, and its log
//! check/         nine checks at the end of a run
//! ```
//!
//! It lacks Trade-Cleanup, which TPC-E runs before a measurement to remove the rest of an
//! earlier one: a run here begins with fresh data. It also lacks most of the tables'
//! descriptive columns.

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

//! What is measured, and how.
//!
//! All arms of a benchmark run in one process and take turns in short blocks, so that whatever else
//! the machine does falls on all of them; ratios are taken within a round, and the median over the
//! rounds is reported with its 95 % interval.
//!
//! ```text
//!   fig8, oracle, rpc    what the arms of each do
//!   scan                 scans of snapshots, and of notifications
//!   turns                the arms take turns
//!   callers              callers that get into each other's way
//!   report               arms and figures, as JSON and as tables
//!   findings             the same with conditions and a plot: notify, resolve, large_txn,
//!                        batching
//!   statistics, system   medians; what the operating system says
//!   server               a role of this program in a process of its own
//!   processes, priority  processes of this program that drive a store; who gets a processor first
//!   prefetch             counts reads; nothing is timed
//!   profile              counts instructions and allocations
//!   check, experiments   what all of them found: against the goals, and as a document
//!   webindex             two runs of the whole application; no arms
//! ```

pub(crate) mod batching;
mod callers;
pub(crate) mod check;
pub(crate) mod experiments;
pub(crate) mod fig10;
pub(crate) mod fig7;
pub(crate) mod fig8;
pub(crate) mod fig9;
pub(crate) mod findings;
pub(crate) mod large_txn;
pub(crate) mod notify;
pub(crate) mod oracle;
mod plot;
pub(crate) mod prefetch;
mod priority;
mod processes;
pub(crate) mod profile;
mod report;
pub(crate) mod resolve;
pub(crate) mod rpc;
pub(crate) mod scan;
mod server;
mod spy;
mod statistics;
mod system;
mod turns;
pub(crate) mod webindex;

pub(crate) use turns::Turns;

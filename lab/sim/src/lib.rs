//! Simulates the shipped protocol deterministically, from a seed: one thread, virtual time,
//! faults, and checkers of the result.
//!
//! ```text
//!   workload  clients and observers, written against the core's own API
//!   nemesis   kills, pauses, partitions, power cuts, clock steps, fail-overs, ...
//!   --------  percolator-core, unchanged
//!   mutated   takes a defence away, in a build with mutants
//!   remote_store, oracle, lock_service    the clients of these services, in each process
//!   gathered                              requests that wait in a process, to go in one message
//!   codec, transport                      bytes that are lost, late, doubled, out of order
//!   store (journal), oracle, lock_service the servers
//!   explained  checks on copies of the store that a read does what `explain` says
//!   executor, schedule                    every choice from one seed
//! ```
//!
//! A world is all that one seed simulates. Faults strike in its **storm**, and then the world is
//! healed. A **mutant** is a build with one defence switched off. A **tomb** is a rollback record,
//! which refuses a late prewrite. A **glance** is a read that never waits, and may answer
//! nothing ([`Glance`](bigtable::Glance)).
//!
//! The same seed gives the same run, in every build.

#[macro_use]
mod debug;

mod book;
mod codec;
mod executor;
mod explained;
mod failures;
mod gathered;
mod journal;
mod lock_service;
mod log_waits;
mod logged;
mod minimise;
mod names;
mod nemesis;
mod oracle;
mod oracle_layer;
mod pauses;
mod power;
mod process;
mod publishing;
mod random;
mod recording;
mod regressions;
mod remote_store;
mod report;
mod restrictions;
mod run;
mod schedule;
mod store;
mod swarm;
mod tally;
mod trace;
mod transport;
mod watching;
mod workload;
mod world;
mod write_record;

pub mod check;
pub mod crash_points;
pub mod history;
pub mod model;
pub mod mutated;
pub mod threads;
pub mod typed_ops;

pub use minimise::{Minimal, minimise};
pub use regressions::{Regression, regressions};
pub use report::{Report, Totals};
pub use restrictions::{Part, Restrictions};
pub use run::{run_seed, run_traced, run_watched, run_with};
pub use swarm::is_like_hbase;
pub use tally::{Fault, Sometimes};
pub use watching::Events;

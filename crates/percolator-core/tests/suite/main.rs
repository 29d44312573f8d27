//! Tests the protocol in virtual time. Each test is named after the hazard whose defence it
//! checks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod apart;
mod batches;
mod closing;
mod commit;
mod events;
mod faults;
mod finish;
mod gc;
mod gc_merges;
mod gc_observed;
mod hazards;
mod hinted;
mod idle;
mod leaders;
mod limits;
mod liveness;
mod long_runs;
mod notifications;
mod observers;
mod one_step;
mod oracle;
mod pauses;
mod read_ahead;
mod reads;
mod registration;
mod rollback;
mod scripts;
mod skips;
mod spans;
mod status;
mod stores;
mod stress;
mod synced;
mod table_locks;
mod trace;
mod trace_queue;
mod trace_sweep;
mod unfenced;
mod wide;
mod wide_upkeep;
mod world;

//! Tests the client: with the conformance suite against the server of this crate, and against a
//! server with scripted answers.

mod batches;
mod cloud;
mod conformance;
mod failures;
mod filters;
mod merging;
mod pool;
mod reads;
mod replaced;
mod resending;
mod runtimes;
mod script;
mod turns;
mod unpolled;

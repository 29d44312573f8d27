//! Tests of the client: against the server of this crate by the conformance suite, and against a
//! server that does as it is told.

mod batches;
mod cloud;
mod conformance;
mod failures;
mod filters;
mod merging;
mod pool;
mod reads;
mod resending;
mod runtimes;
mod script;

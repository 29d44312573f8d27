//! Tests of the client: against the server of this crate by the conformance suite, and against a
//! server that does as it is told.

mod batches;
mod conformance;
mod filters;
mod merging;
mod told;

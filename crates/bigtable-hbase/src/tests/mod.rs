//! Tests the store over a fake cluster in this process, and over a real one.

mod conformance;
mod cut_answers;
mod fake;
mod lost_answers;
mod on_hbase;
pub(crate) mod proxy;
mod reclaim;
mod tls;
mod versions;

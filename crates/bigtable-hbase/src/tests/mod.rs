//! Tests the store over a fake cluster in this process, and over a real one.

mod conformance;
mod fake;
mod lost_answers;
mod on_hbase;
mod reclaim;
mod tls;
mod versions;

//! Tests the store over a real HBase cluster, which `scripts/hbase.sh` starts.

mod cluster;
mod compactions;
mod conformance;

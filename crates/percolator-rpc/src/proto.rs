//! Includes the code that `cargo run -p protocols` generates from the definitions in `proto/`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the protocol definitions have the documentation"
)]

mod oracle_root {
    include!("generated/oracle/oracle.rs");
}

#[cfg(feature = "etcd")]
mod etcd_root {
    include!("generated/etcd/etcd.rs");
}

#[cfg(feature = "etcd")]
pub(crate) use etcd_root::etcdserverpb as etcd;
pub(crate) use oracle_root::percolator::oracle::v1 as oracle;

//! What `build.rs` made of `proto/`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the protocol definitions have the documentation"
)]

include!(concat!(env!("OUT_DIR"), "/protocols.rs"));

pub(crate) use self::etcdserverpb as etcd;
pub(crate) use self::percolator::oracle::v1 as oracle;

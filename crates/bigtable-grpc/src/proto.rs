//! Includes the generated code of Google's protocol and of this project's extension.
//! `cargo run -p protocols` generates it from the definitions in `proto/`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::unwrap_used,
    rustdoc::all,
    reason = "generated"
)]

include!("generated/google.rs");

pub(crate) use self::percolator::bigtable::v1 as extension;
pub(crate) use google::bigtable::admin::v2 as admin;
pub(crate) use google::bigtable::v2 as data;
pub(crate) use google::{iam, longrunning, rpc};

//! Tests the services over real connections on the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod etcd;
mod health;
mod oracle;
mod refusals;

mod world;

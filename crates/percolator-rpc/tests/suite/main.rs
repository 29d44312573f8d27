//! The services over real connections on the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod oracle;
mod world;

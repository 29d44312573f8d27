//! Tests what operators and their scripts rely on, such as the form of errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "../shell/mod.rs"]
mod shell;

mod backups;
mod cluster;
mod errors;
mod kinds;
mod load;
#[cfg(unix)]
mod modes;
#[cfg(target_os = "linux")]
mod mounts;
mod outage;
mod ports;
#[cfg(target_os = "linux")]
mod read_only;

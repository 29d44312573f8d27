//! What a process says of itself in its client's status.

use std::sync::Mutex;

use bigtable::sync::locked;

/// A process's account of itself. Each name is cut off after 64 bytes.
///
/// See [`Client::publish_status`](crate::Client::publish_status).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its task, such as `worker`.
    pub role: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
}

/// What a client says of its process; `None` until it publishes a status.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Option<ProcessInfo>>);

impl Account {
    /// Keeps what the process says from now on, and returns what it said before.
    pub(crate) fn replace(&self, process: ProcessInfo) -> Option<ProcessInfo> {
        locked(&self.0).replace(process)
    }

    /// What it says.
    pub(crate) fn read(&self) -> ProcessInfo {
        locked(&self.0).clone().unwrap_or_default()
    }
}

//! Stores the `ProcessInfo` that this client writes into its status row (`status.rs`): the
//! role, host, number and program version of its process.

use std::sync::Mutex;

use bigtable::sync::locked;

/// The description of a process. Each name is cut off after 64 bytes.
///
/// See [`Client::publish_status`](crate::Client::publish_status).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The task of the process, such as `worker`.
    pub role: String,
    /// The machine that the process runs on.
    pub host: String,
    /// The number of the process on that machine.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
}

/// The description of a client's process. `None` until the client publishes a status.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Option<ProcessInfo>>);

impl Account {
    /// Replaces the description, and returns the previous one.
    pub(crate) fn replace(&self, process: ProcessInfo) -> Option<ProcessInfo> {
        locked(&self.0).replace(process)
    }

    /// Returns the description. It is empty until a status is published.
    pub(crate) fn read(&self) -> ProcessInfo {
        locked(&self.0).clone().unwrap_or_default()
    }
}

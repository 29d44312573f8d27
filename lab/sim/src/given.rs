//! Defines the record that the simulator keeps of a timestamp that an oracle gave to a client.

use std::time::Duration;

use bigtable::Timestamp;

use crate::executor::ProcessId;

/// A timestamp that reached a client: the virtual times of its request and of its arrival, and
/// the oracle that gave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) timestamp: Timestamp,
    pub(crate) asked: Duration,
    pub(crate) arrived: Duration,
    pub(crate) by: ProcessId,
}

//! Stores the result of the last look at the store's backlog, for `admit.rs`.
//!
//! The record is shared by all callers of a client, so that one look serves all of them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;

use crate::records::schema::Observed;

/// The result of a client's last look at the store's backlog.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    looked: Mutex<Looked>,
    /// The observers whose changes do not count.
    left_out: Mutex<BTreeSet<Observed>>,
}

#[derive(Debug, Default)]
pub(super) struct Looked {
    /// When the next look is due.
    pub(super) next: Duration,
    /// Why no new work is admitted, if the backlog was too long.
    pub(super) full: Option<String>,
}

impl Admission {
    pub(super) fn looked(&self) -> MutexGuard<'_, Looked> {
        locked(&self.looked)
    }

    pub(crate) fn left_out(&self) -> MutexGuard<'_, BTreeSet<Observed>> {
        locked(&self.left_out)
    }
}

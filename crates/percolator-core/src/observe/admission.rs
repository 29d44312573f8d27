//! The memory of admission between two looks at the store.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;

/// A client's knowledge of the store's backlog.
#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<Looked>);

#[derive(Debug, Default)]
pub(super) struct Looked {
    /// When the store is to be looked at again.
    pub(super) next: Duration,
    /// Why nobody is to be admitted.
    pub(super) full: Option<String>,
}

impl Admission {
    pub(super) fn looked(&self) -> MutexGuard<'_, Looked> {
        locked(&self.0)
    }
}

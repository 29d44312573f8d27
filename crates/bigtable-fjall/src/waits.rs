//! Marks the places where a thread of the store may have to wait. It waits for the disk, for
//! time to pass, or for a lock of another thread.
//!
//! No future of the store reaches such a place, because a thread that polls futures has other
//! tasks to run. There is one exception. A future that finds a failed write, or a stopped
//! engine, opens the engine anew and blocks (`failure/reopen.rs`); other futures block until
//! that is done.
//!
//! The committer thread may reach such a place, and so may the thread that gives space back. A
//! caller of a function documented to block may, too, and so may a thread that drops the last
//! handle. Each place calls [`may_wait`]. With the feature `count-waits`, that call records
//! the place for tests.

/// Marks that the current thread may have to wait here.
#[inline]
pub(crate) fn may_wait(place: &'static str) {
    #[cfg(feature = "count-waits")]
    counted::note(place);
    #[cfg(not(feature = "count-waits"))]
    let _ = place;
}

/// For tests: records the places that watched threads have reached.
#[cfg(feature = "count-waits")]
pub mod counted {
    use std::cell::RefCell;

    thread_local! {
        /// The places that this thread has reached, while it is watched.
        static PLACES: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
    }

    /// Runs `work` on this thread, and returns the places that it reached.
    pub fn places(work: impl FnOnce()) -> Vec<&'static str> {
        PLACES.set(Some(Vec::new()));
        work();
        PLACES.take().unwrap_or_default()
    }

    pub(super) fn note(place: &'static str) {
        // The thread-local value is gone while the thread ends; then there is nothing to
        // record.
        let _ = PLACES.try_with(|places| {
            if let Some(places) = &mut *places.borrow_mut() {
                places.push(place);
            }
        });
    }
}

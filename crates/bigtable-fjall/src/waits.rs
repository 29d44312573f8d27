//! Where a thread of the store may have to wait: for the disk, for time to pass, or for a lock that
//! another thread holds meanwhile.
//!
//! No future of the store comes to such a place: a thread that polls futures has other tasks to
//! run. The committer's thread comes there, the thread that gives space back, and callers of
//! functions that say that they block. Each place calls [`may_wait`]; where tests count, it notes
//! the place if a watched thread has come there.

/// The present thread may have to wait here.
#[inline]
pub(crate) fn may_wait(place: &'static str) {
    #[cfg(feature = "count-waits")]
    counted::note(place);
    #[cfg(not(feature = "count-waits"))]
    let _ = place;
}

/// For tests: the places that watched threads have come to.
#[cfg(feature = "count-waits")]
pub mod counted {
    use std::cell::RefCell;

    thread_local! {
        /// Of this thread, while it is watched.
        static PLACES: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
    }

    /// Does something on this thread, and returns the places that it has come to.
    pub fn places(work: impl FnOnce()) -> Vec<&'static str> {
        PLACES.set(Some(Vec::new()));
        work();
        PLACES.take().unwrap_or_default()
    }

    pub(super) fn note(place: &'static str) {
        // A thread that ends may have nothing to look at any more.
        let _ = PLACES.try_with(|places| {
            if let Some(places) = &mut *places.borrow_mut() {
                places.push(place);
            }
        });
    }
}

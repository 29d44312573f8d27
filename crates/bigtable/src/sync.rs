//! Locks mutexes, even after a panic of a holder, and lets futures take turns. The crates of this
//! project share both. One panic does not make every later caller panic as well. One future that
//! nobody polls does not stop all others.

mod turns;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use turns::Turns;

/// Locks a mutex, even one that a panic has poisoned.
///
/// Use `locked` only where a panic leaves the value usable: each change is a single step, or
/// the next holder checks the value.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_mutex_can_be_locked() {
        let mutex = Mutex::new(1);
        let poison = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *locked(&mutex) = 2;
            let _held = locked(&mutex);
            std::panic::resume_unwind(Box::new("poisons the mutex"));
        }));
        assert!(poison.is_err() && mutex.is_poisoned());
        assert_eq!(*locked(&mutex), 2);
    }
}

//! Locks, for the crates of this project alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one that a panic has poisoned.
///
/// Use `locked` where a panic leaves the value whole: where each change of it is one step, or where
/// the next holder checks what is there.
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

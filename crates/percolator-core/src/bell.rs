//! Wakes waiting tasks when something has changed, so that they need not poll for the change.
//!
//! Rule: a task reads [`Bell::rung`] before it looks at the state, and waits with that number.
//! A ring between the look and the wait then ends the wait at once, so no change is missed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bigtable::sync::locked;

/// Counts its rings, and wakes the tasks that wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rung: u64,
    waiting: BTreeMap<u64, Waker>,
    next_id: u64,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    /// How often the bell was rung. Call this before looking at the state that the bell
    /// announces: a change in between then ends the wait.
    pub(crate) fn rung(&self) -> u64 {
        self.state().rung
    }

    pub(crate) fn ring(&self) {
        let waiting = {
            let mut state = self.state();
            state.rung += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Completes once the bell was rung more than `seen` times.
    pub(crate) async fn after(&self, seen: u64) {
        let mut place = Place { bell: self, id: None };
        poll_fn(|cx| {
            let mut state = self.state();
            if state.rung > seen {
                return Poll::Ready(());
            }
            let id = *place.id.get_or_insert_with(|| {
                state.next_id += 1;
                state.next_id
            });
            state.waiting.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Removes the waker of a wait whose future is dropped.
struct Place<'a> {
    bell: &'a Bell,
    id: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.bell.state().waiting.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::{join, select};

    use super::*;

    #[test]
    fn a_waiter_is_woken_and_a_ring_before_the_wait_counts() {
        let bell = Bell::default();
        let seen = bell.rung();
        block_on(join(bell.after(seen), async { bell.ring() }));
        block_on(bell.after(seen));
        assert_eq!(bell.after(bell.rung()).now_or_never(), None);
    }

    #[test]
    fn nothing_is_left_of_a_wait_that_was_given_up() {
        let bell = Bell::default();
        let wait = Box::pin(bell.after(bell.rung()));
        block_on(select(wait, std::future::ready(())));
        assert!(bell.state().waiting.is_empty());
    }
}

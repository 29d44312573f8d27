//! Wakes waiting tasks when something has changed, so that they need not poll for the change.
//!
//! Rule: a task reads [`Bell::rung`] before it looks at the state, and waits with that number.
//! A ring between the look and the wait then ends the wait at once, so no change is missed.

use std::collections::VecDeque;
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
    /// In the order of their numbers. Most leave in that order, too.
    waiting: VecDeque<(u64, Waker)>,
    next_id: u64,
}

impl State {
    fn place_of(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |(id, _)| *id)
    }
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
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
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
            match state.place_of(id) {
                Ok(place) => state.waiting[place].1.clone_from(cx.waker()),
                Err(place) => state.waiting.insert(place, (id, cx.waker().clone())),
            }
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
            let mut state = self.bell.state();
            if let Ok(place) = state.place_of(id) {
                let _ = state.waiting.remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

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
    fn a_ring_wakes_those_who_still_wait_by_their_last_waker() {
        let (bell, wakes) = (Bell::default(), [(), (), ()].map(|()| Arc::new(Wakes::default())));
        let mut waits = [(), (), ()].map(|()| Box::pin(bell.after(0)));
        for (wait, wakes) in waits.iter_mut().zip(&wakes) {
            poll(wait, wakes);
        }
        let [mut first, middle, _last] = waits;
        drop(middle);
        let moved = Arc::new(Wakes::default());
        poll(&mut first, &moved);
        bell.ring();
        let of = |wakes: &Wakes| wakes.0.load(Ordering::Relaxed);
        assert_eq!((of(&moved), wakes.each_ref().map(|wakes| of(wakes))), (1, [0, 0, 1]));
    }

    fn poll(wait: &mut Pin<Box<impl Future>>, wakes: &Arc<Wakes>) {
        let waker = Waker::from(wakes.clone());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_left_of_a_wait_that_was_given_up() {
        let bell = Bell::default();
        let wait = Box::pin(bell.after(bell.rung()));
        block_on(select(wait, std::future::ready(())));
        assert!(bell.state().waiting.is_empty());
    }
}

//! Tests which request a caller joins, and which answer it gets (H09).

use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;

use super::*;
use crate::oracle::batch::Ticket;

/// A caller that has joined.
fn join(queue: &Queue, want: Want) -> Ticket<'_> {
    let mut ticket = Ticket::new(queue, want);
    assert!((&mut ticket).now_or_never().is_none(), "nothing was asked for it yet");
    ticket
}

fn refused(queue: &Queue) -> bool {
    Ticket::new(queue, Want::Timestamp).now_or_never().is_some_and(|given| given.is_err())
}

fn given(first: u64, timestamps: u32) -> Given {
    Given { first, latest: first + u64::from(timestamps) - 1, schema_version: 1 }
}

fn first(ticket: Ticket<'_>) -> Option<u64> {
    ticket.now_or_never().map(|given| given.unwrap().first)
}

/// A reply serves only the callers that asked before its request left.
#[test]
fn h09_who_arrives_while_a_request_is_in_flight_joins_the_next_one() {
    let queue = Queue::new(10);
    let early = join(&queue, Want::Timestamp);
    let flight = queue.take();
    assert_eq!(flight.timestamps, 1);
    let late = join(&queue, Want::Timestamp);
    let looks = join(&queue, Want::Look);
    queue.deliver(flight, given(5, 1));
    assert_eq!(first(early), Some(5));
    let (mut late, mut looks) = (late, looks);
    assert!((&mut late).now_or_never().is_none(), "its request has not left yet");
    assert!((&mut looks).now_or_never().is_none(), "neither may what is looked at be old");
    let flight = queue.take();
    assert_eq!(flight.timestamps, 1);
    queue.deliver(flight, given(9, 1));
    assert_eq!(first(late), Some(9));
    assert_eq!(looks.now_or_never().unwrap().unwrap().latest, 9);
}

/// A failed request takes the callers along that arrived before it is sent again.
#[test]
fn h09_h45_a_request_that_failed_goes_again_with_those_who_came_meanwhile() {
    let queue = Queue::new(10);
    let tickets: Vec<Ticket<'_>> = (0..3).map(|_| join(&queue, Want::Timestamp)).collect();
    let flight = queue.take();
    let raise = join(&queue, Want::Raise(7));
    let late = join(&queue, Want::Timestamp);
    queue.put_back(flight);
    let flight = queue.take();
    assert_eq!((flight.timestamps, flight.raise), (4, 7));
    queue.deliver(flight, given(100, 4));
    let firsts: Vec<_> = tickets.into_iter().map(|ticket| first(ticket).unwrap()).collect();
    assert_eq!(firsts, [100, 101, 102]);
    assert_eq!(first(late), Some(103));
    assert!(raise.now_or_never().unwrap().is_ok());
}

/// If a caller gives up, no other gets two timestamps, or one that is not its own.
#[test]
fn h45_the_timestamp_of_a_caller_that_gave_up_is_nobodys() {
    let queue = Queue::new(100);
    let mut tickets: Vec<_> = (0..64).map(|_| Some(join(&queue, Want::Timestamp))).collect();
    let flight = queue.take();
    tickets.iter_mut().step_by(3).for_each(|ticket| drop(ticket.take()));
    queue.deliver(flight, given(1, 64));
    for (n, ticket) in tickets.into_iter().enumerate() {
        let expected = (n % 3 != 0).then_some(n as u64 + 1);
        assert_eq!(ticket.and_then(first), expected);
    }
    assert_eq!(queue.inner().callers, 0);
}

#[test]
fn one_request_takes_as_many_as_the_oracle_gives_at_once() {
    let queue = Queue::new(usize::MAX);
    let max = TIMESTAMPS_MAX as usize;
    let tickets: Vec<_> = (0..max + 10).map(|_| join(&queue, Want::Timestamp)).collect();
    let flight = queue.take();
    assert_eq!(flight.timestamps, TIMESTAMPS_MAX);
    queue.deliver(flight, given(1, TIMESTAMPS_MAX));
    let flight = queue.take();
    assert_eq!(flight.timestamps, 10);
    queue.deliver(flight, given(max as u64 + 1, 10));
    assert!(tickets.into_iter().map(first).eq((1..=max as u64 + 10).map(Some)));
}

#[test]
fn the_queue_is_bounded_and_an_end_is_reported_to_all() {
    let queue = Queue::new(2);
    let (a, b) = (join(&queue, Want::Look), join(&queue, Want::Timestamp));
    assert!(refused(&queue));
    let flight = queue.take();
    queue.fail(flight, &Error::Oracle("no".to_owned()));
    assert!(a.now_or_never().unwrap().is_err() && b.now_or_never().unwrap().is_err());
    let waiting = join(&queue, Want::Timestamp);
    queue.end(&Error::Oracle("ended".to_owned()));
    assert!(waiting.now_or_never().unwrap().is_err());
    assert!(refused(&queue));
    assert_eq!(queue.awaited().now_or_never(), Some(false));
}

#[test]
fn a_caller_that_waited_too_long_gets_an_error_and_later_ones_wait_on() {
    let queue = Queue::new(9);
    let early = join(&queue, Want::Timestamp);
    queue.expire(Duration::from_secs(100), || unreachable!("nobody has waited for so long"));
    let mut late = join(&queue, Want::Timestamp);
    let since = queue.inner().closed.front().unwrap().since;
    while queue.inner().open.since.duration_since(since) < Duration::from_micros(1) {
        queue.inner().open.since = Instant::now();
    }
    let deadline = since.elapsed();
    queue.inner().open.since = Instant::now() + Duration::from_secs(10);
    queue.expire(deadline, || Error::Oracle("too late".to_owned()));
    assert!(early.now_or_never().unwrap().is_err());
    assert!((&mut late).now_or_never().is_none());
}

/// A caller's future may move to another task between polls. The task that polled last is
/// woken.
#[test]
fn a_caller_that_moved_is_woken_where_it_is() {
    let queue = Queue::new(9);
    let mut ticket = join(&queue, Want::Timestamp);
    let (flag, waker) = woken();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(ticket.poll_unpin(&mut cx).is_pending() && ticket.poll_unpin(&mut cx).is_pending());
    let flight = queue.take();
    assert!(!flag.0.load(Ordering::SeqCst));
    queue.deliver(flight, given(5, 1));
    assert!(flag.0.load(Ordering::SeqCst));
    assert_eq!(first(ticket), Some(5));
}

struct Flag(AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn woken() -> (Arc<Flag>, Waker) {
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    (flag.clone(), Waker::from(flag))
}

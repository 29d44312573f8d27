//! Measures a hand-off: a thread wakes another, and waits until that one wakes it. A hand-off
//! is half of the round.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bigtable::sync::locked;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::processes::{cores, stay_on};
use crate::turns::{Block, Watch, nanos};

/// The shortest rest of both threads between two rounds. Processors and threads go to sleep in
/// this time, as they do between two writes of [`Starts`](super::starts::Starts).
pub(super) const REST_US: std::ops::Range<u64> = 500..1500;

/// The processors on which the threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// On any, as the system decides: usually on the same.
    Anywhere,
    /// Each on its own, if there are two.
    Across,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Caller,
    Partner,
    Over,
}

/// The shared state of the two threads.
#[derive(Debug)]
struct Place {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Place {
    fn hand(&self, to: Turn) {
        *locked(&self.turn) = to;
        self.changed.notify_one();
    }

    /// Waits until the other's turn is over.
    fn await_while(&self, theirs: Turn) -> Turn {
        let turn = locked(&self.turn);
        let waited = self.changed.wait_while(turn, |turn| *turn == theirs);
        *waited.unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct HandOff {
    random: SmallRng,
}

impl HandOff {
    pub(super) fn new(seed: u64) -> Self {
        HandOff { random: SmallRng::seed_from_u64(seed) }
    }

    pub(super) async fn block(&mut self, place: Where, length: Duration) -> anyhow::Result<Block> {
        let random = SmallRng::from_rng(&mut self.random);
        let cores = match (place, cores().as_slice()) {
            (Where::Across, [one, another, ..]) => Some([*one, *another]),
            _ => None,
        };
        // New threads, so that their binding to processors ends with them.
        let (done, block) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // After Ctrl-C, nobody waits for the result.
            let _ = done.send(rounds(random, cores, length));
        });
        Ok(block.await?)
    }
}

fn rounds(mut random: SmallRng, cores: Option<[usize; 2]>, length: Duration) -> Block {
    let place = Arc::new(Place { turn: Mutex::new(Turn::Caller), changed: Condvar::new() });
    let theirs = place.clone();
    if let Some([own, _]) = cores {
        stay_on(own);
    }
    let partner = std::thread::spawn(move || {
        if let Some([_, own]) = cores {
            stay_on(own);
        }
        while theirs.await_while(Turn::Caller) == Turn::Partner {
            theirs.hand(Turn::Caller);
        }
    });
    let mut watch = Watch::start();
    while watch.goes_on(length) {
        std::thread::sleep(Duration::from_micros(random.random_range(REST_US)));
        let since = std::time::Instant::now();
        place.hand(Turn::Partner);
        place.await_while(Turn::Partner);
        watch.note(nanos(since.elapsed() / 2));
    }
    let block = watch.stop();
    place.hand(Turn::Over);
    // The thread cannot panic, and nothing depends on its end.
    let _ = partner.join();
    block
}

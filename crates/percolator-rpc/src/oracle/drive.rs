//! Sends the queue's requests: one at a time, over one connection, to one of the known
//! processes.

use std::time::{Duration, Instant};

use cluster_net::{Dialer, Role};
use percolator_core::Error;
use tokio::time::timeout;

use crate::Address;
use crate::oracle::batch::Given;
use crate::oracle::client::RemoteOracleOptions;
use crate::oracle::link::{Link, Miss};
use crate::oracle::queue::{Flight, Queue};

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Time after a failure of a process during which the client ignores hints that it leads.
const AVOIDED: Duration = Duration::from_secs(1);

/// The state of the sending task.
pub(super) struct Driver {
    queue: std::sync::Arc<Queue>,
    options: RemoteOracleOptions,
    dialer: Dialer,
    targets: Targets,
    link: Option<Link>,
    pause: Duration,
    /// The highest timestamp answered so far, and the process that answered it.
    highest: (u64, Option<Address>),
    /// The last error.
    trouble: String,
    /// The number of failures since the last answer, and the last refusal among them.
    failures: usize,
    refusal: Option<String>,
}

/// The known processes, and the one to ask next.
#[derive(Debug)]
struct Targets {
    addresses: Vec<Address>,
    next: usize,
    /// A process that another one has named as the leader.
    leader: Option<Address>,
    avoided: Option<(Address, Instant)>,
}

impl Targets {
    fn current(&self) -> &Address {
        self.leader.as_ref().unwrap_or(&self.addresses[self.next])
    }

    /// Moves on to the next address of the list.
    fn advance(&mut self) {
        self.avoided = Some((self.current().clone(), Instant::now()));
        if self.leader.take().is_none() {
            self.next = (self.next + 1) % self.addresses.len();
        }
    }

    /// Moves to the process that was named as the leader, unless it failed just now. Returns
    /// true if it moves.
    fn follow(&mut self, leader: Option<Address>) -> bool {
        let Some(leader) = leader.filter(|leader| leader != self.current()) else { return false };
        let avoided = self.avoided.as_ref();
        if avoided.is_some_and(|(address, at)| *address == leader && at.elapsed() < AVOIDED) {
            return false;
        }
        self.avoided = Some((self.current().clone(), Instant::now()));
        match self.addresses.iter().position(|address| *address == leader) {
            Some(index) => (self.leader, self.next) = (None, index),
            None => self.leader = Some(leader),
        }
        true
    }
}

impl Driver {
    pub(super) fn new(
        queue: std::sync::Arc<Queue>,
        addresses: Vec<Address>,
        options: RemoteOracleOptions,
    ) -> Self {
        // All clients begin with the first address, which is as good as any other.
        let targets = Targets { addresses, next: 0, leader: None, avoided: None };
        let trouble = "no oracle process was asked yet".to_owned();
        let dialer = Dialer::to(Role::Oracle, options.tls.clone());
        Driver {
            queue,
            options,
            dialer,
            targets,
            link: None,
            pause: PAUSE_MIN,
            highest: (0, None),
            trouble,
            failures: 0,
            refusal: None,
        }
    }

    /// Sends requests until the queue has ended.
    pub(super) async fn run(mut self) {
        while self.queue.awaited().await {
            let Some(link) = &mut self.link else {
                self.connect().await;
                continue;
            };
            let flight = self.queue.take();
            let asked = link.ask(flight.timestamps, flight.raise);
            let patience = self.options.attempt;
            let answer = timeout(patience, asked).await.unwrap_or_else(|_| {
                // A late reply must serve nobody, so the connection on which it would arrive is
                // dropped (H09).
                Err(Miss::Broken { why: format!("no reply within {patience:?}") })
            });
            match answer {
                Ok(given) => self.deliver(flight, given).await,
                Err(Miss::Never { why }) => {
                    self.queue.fail(flight, &Error::Oracle(why));
                }
                Err(miss) => {
                    self.queue.put_back(flight);
                    self.missed(miss).await;
                }
            }
        }
    }

    async fn connect(&mut self) {
        let open = Link::open(self.targets.current(), &self.dialer);
        let opened = timeout(self.options.attempt, open).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(Miss::Broken { why: format!("no connection within {:?}", self.options.attempt) })
        });
        match opened {
            Ok(link) => self.link = Some(link),
            Err(miss) => self.missed(miss).await,
        }
    }

    async fn deliver(&mut self, flight: Flight, given: Given) {
        let (highest, by) = &self.highest;
        // New timestamps lie above all earlier ones. A look never lies below an earlier one.
        let back = match flight.timestamps {
            0 => given.latest < *highest,
            _ => given.first <= *highest,
        };
        if back {
            let seen = by.as_ref().map(ToString::to_string).unwrap_or_default();
            let why = format!(
                "its timestamps go back, {given:?} after {highest} from {seen}: check that all \
                 oracle processes use the same store"
            );
            self.queue.put_back(flight);
            return self.missed(Miss::Broken { why }).await;
        }
        if given.latest > *highest {
            let last = match flight.timestamps {
                0 => given.latest,
                count => given.first + u64::from(count) - 1,
            };
            if self.highest.1.as_ref() != Some(self.targets.current()) {
                self.highest.1 = Some(self.targets.current().clone());
            }
            self.highest.0 = last;
        }
        self.pause = PAUSE_MIN;
        (self.failures, self.refusal) = (0, None);
        self.queue.deliver(flight, given);
    }

    /// Handles a failure: it fails the callers that have waited too long, and tries another
    /// process.
    async fn missed(&mut self, miss: Miss) {
        let from = self.targets.current().clone();
        let (why, go_on_at_once) = match miss {
            Miss::Elsewhere { why, leader } => {
                self.link = None;
                let follows = self.targets.follow(leader);
                if !follows {
                    self.targets.advance();
                }
                (why, follows)
            }
            // A leader that cannot reach the store cannot know that another process leads, so
            // the client moves on.
            Miss::Broken { why } | Miss::Later { why } | Miss::Never { why } => {
                self.link = None;
                self.targets.advance();
                (why, false)
            }
            Miss::Refused { why } => {
                self.link = None;
                self.targets.advance();
                self.refusal = Some(why.clone());
                (why, false)
            }
        };
        tracing::debug!(oracle = %from, %why, "the oracle did not answer");
        self.trouble = format!("{from}: {why}");
        let (deadline, trouble, tried) =
            (self.options.deadline, &self.trouble, self.targets.addresses.len());
        self.queue.expire(deadline, || {
            Error::Oracle(format!(
                "none of {tried} addresses answered within {deadline:?}; the last error was \
                 {trouble}: check that an oracle process runs there (`percolator serve oracle`)"
            ))
        });
        self.give_up_if_refused();
        if !go_on_at_once {
            // Half to all of the pause, so that the clients of a dead leader do not return
            // together.
            let jitter = 0.5 + rand::random::<f64>() / 2.0;
            tokio::time::sleep(self.pause.mul_f64(jitter)).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fails all callers at once if each address had its turn, and one of the processes refused
    /// this client. The refusal stays until a person acts, so waiting does not help.
    fn give_up_if_refused(&mut self) {
        self.failures += 1;
        if self.failures < self.targets.addresses.len() {
            return;
        }
        self.failures = 0;
        if let Some(why) = self.refusal.take() {
            self.queue.expire(Duration::ZERO, || Error::Refused(why.clone()));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let why = "the runtime of the oracle's client has ended: make a new client".to_owned();
        self.queue.end(&Error::Oracle(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    #[test]
    fn a_leader_that_is_named_is_gone_to_once_and_not_back_and_forth() {
        let addresses = vec![address(1), address(2)];
        let mut targets = Targets { addresses, next: 0, leader: None, avoided: None };
        assert!(targets.follow(Some(address(3))));
        assert_eq!(*targets.current(), address(3));
        assert!(!targets.follow(Some(address(1))), "it sent us here just now");
        targets.advance();
        assert_eq!(*targets.current(), address(1));
        assert!(!targets.follow(Some(address(3))), "it failed just now");
        assert!(!targets.follow(Some(address(1))) && !targets.follow(None));
        targets.advance();
        assert_eq!(*targets.current(), address(2));
        targets.advance();
        assert_eq!(*targets.current(), address(1));
    }
}

//! Implements the market, which executes orders after a delay and announces prices. It lives in
//! the driver's memory, as in the paper, where customers and market were part of the client.
//!
//! Its clock is the number of requests that customers have made: at TPC-E's pace each is worth
//! a fixed number of milliseconds. So a faster run shortens all delays and price changes in
//! proportion, and a test is the same every time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::Scale;
use crate::generate::stream::{Purpose, Stream};
use crate::request::{Accepted, Execution, Feed, Tick};

/// The market's delay, on average and at most.
const COMPLETION_MS: f64 = 1_000.0;
const COMPLETION_MS_MAX: u64 = 5_000;
const TICKS: usize = 20;

/// Most announcements of a security's price for the sake of one pending order. Among several
/// drivers, the one that announces the price triggers the order. After so many announcements
/// without effect, another driver has probably triggered it. If not, a later price of the
/// security will.
const REPORTED_MAX: u32 = 16;

#[derive(Debug, Clone, Copy)]
struct Pending {
    symb: u32,
    /// Number of times that its security's price was announced for its sake.
    told: u32,
}

#[derive(Debug)]
pub(crate) struct Market {
    scale: Scale,
    /// True if there are other drivers.
    is_shared: bool,
    stream: Stream,
    /// Submitted orders by the time of their execution: time, trade, security, quantity.
    submitted: BinaryHeap<Reverse<(u64, u64, u32, i64)>>,
    /// Limit orders that wait for their price, by trade.
    pending: BTreeMap<u64, Pending>,
    /// The pending order whose security's price was announced last.
    told: u64,
    ticks: Vec<Tick>,
    /// True while a Market-Feed runs. Only one runs at a time.
    feeding: bool,
}

impl Market {
    pub(crate) fn new(scale: Scale, seat: u64) -> Self {
        // Stream 0 is that of a single driver, stream 1 that of its open loop's clock.
        let item = if seat == 0 { 0 } else { seat + 1 };
        Market {
            scale,
            is_shared: seat > 0,
            stream: Stream::new(scale.seed, Purpose::Market, item),
            submitted: BinaryHeap::new(),
            pending: BTreeMap::new(),
            told: 0,
            ticks: Vec::new(),
            feeding: false,
        }
    }

    /// Takes an order, or a limit order that a price has triggered.
    pub(crate) fn accept(&mut self, order: Accepted, now: u64) {
        let Accepted { t, symb, qty, at_once } = order;
        if !at_once {
            self.pending.insert(t, Pending { symb, told: 0 });
            return;
        }
        self.pending.remove(&t);
        let delay = -(1.0 - self.stream.unit()).ln() * COMPLETION_MS;
        let due = now + (delay as u64).min(COMPLETION_MS_MAX);
        self.submitted.push(Reverse((due, t, symb, qty)));
    }

    /// The next order that was executed by now.
    pub(crate) fn executed(&mut self, now: u64) -> Option<Execution> {
        let Reverse((due, t, symb, qty)) = *self.submitted.peek()?;
        if due > now {
            return None;
        }
        self.submitted.pop();
        let price = self.scale.price(symb, due);
        self.ticks.push(Tick { symb, price, qty });
        let other = self.other();
        let price = self.scale.price(other, due);
        let qty = *self.stream.pick(&[100, 200, 400, 800]);
        self.ticks.push(Tick { symb: other, price, qty });
        Some(Execution { t, price: self.scale.price(symb, due), now: due })
    }

    /// A security whose price is announced without a trade. Securities with pending orders come
    /// first, in turns: otherwise a short run would end before most limit orders are triggered.
    fn other(&mut self) -> u32 {
        let next = self.pending.range(self.told + 1..).next().or(self.pending.iter().next());
        let Some((t, Pending { symb, told })) = next.map(|(t, pending)| (*t, *pending)) else {
            return self.stream.between(1, u64::from(self.scale.securities())) as u32;
        };
        self.told = t;
        if self.is_shared && told >= REPORTED_MAX {
            self.pending.remove(&t)
        } else {
            self.pending.insert(t, Pending { symb, told: told + 1 })
        };
        symb
    }

    /// The prices of the next Market-Feed; `None` while one runs, or if there are too few.
    pub(crate) fn feed(&mut self, now: u64) -> Option<Feed> {
        if self.feeding || self.ticks.len() < TICKS {
            return None;
        }
        self.feeding = true;
        Some(Feed { ticks: self.ticks.drain(..TICKS).collect(), now })
    }

    pub(crate) fn fed(&mut self) {
        self.feeding = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_executed_once_and_each_makes_two_ticks() {
        let mut market = Market::new(Scale::new(100, 1), 0);
        for t in 0..10 {
            market.accept(Accepted { t, symb: 1, qty: 100, at_once: true }, 1_000);
        }
        market.accept(Accepted { t: 10, symb: 7, qty: 100, at_once: false }, 1_000);
        assert_eq!(market.executed(999), None);
        let mut executed: Vec<u64> = Vec::new();
        while let Some(execution) = market.executed(1_000 + COMPLETION_MS_MAX) {
            executed.push(execution.t);
        }
        executed.sort_unstable();
        assert_eq!(executed, (0..10).collect::<Vec<_>>());
        let feed = market.feed(9_000).unwrap();
        assert_eq!(feed.ticks.len(), TICKS);
        assert_eq!(feed.ticks.iter().filter(|tick| tick.symb == 7).count(), 10);
        market.ticks.extend(feed.ticks);
        assert!(market.feed(9_000).is_none(), "one at a time");
        market.fed();
        assert!(market.feed(9_000).is_some());
    }

    #[test]
    fn orders_that_another_driver_triggered_are_forgotten() {
        let mut shared = Market::new(Scale::new(100, 1), 1);
        let mut alone = Market::new(Scale::new(100, 1), 0);
        for market in [&mut shared, &mut alone] {
            market.accept(Accepted { t: 1, symb: 7, qty: 100, at_once: false }, 1_000);
            for t in 10..60 {
                market.accept(Accepted { t, symb: 1, qty: 100, at_once: true }, 1_000);
            }
            while market.executed(1_000 + COMPLETION_MS_MAX).is_some() {}
        }
        assert!(shared.pending.is_empty());
        assert_eq!(alone.pending[&1].told, 50);
    }
}

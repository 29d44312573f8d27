//! Holds the state that all clients of a run share: the next request, and the results so far.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Scale;
use crate::emulator::Emulator;
use crate::generate::stream::{Purpose, Stream};
use crate::market::Market;
use crate::request::{Answer, Request, TransactionType};
use crate::scale::TRADE_EVERY_MS;

/// Number of requests of each type in a deck. Trade-Result and Market-Feed follow from
/// Trade-Orders. Data-Maintenance comes once a minute.
const DECK: [(TransactionType, usize); 8] = [
    (TransactionType::TradeStatus, 190),
    (TransactionType::MarketWatch, 180),
    (TransactionType::SecurityDetail, 140),
    (TransactionType::CustomerPosition, 130),
    (TransactionType::TradeOrder, 101),
    (TransactionType::TradeLookup, 80),
    (TransactionType::BrokerVolume, 49),
    (TransactionType::TradeUpdate, 20),
];

/// The Trade-Orders of a deck that are not rolled back.
const TRADES_PER_DECK: u64 = 100;
const CARDS: u64 = 890;

/// Market time between two Data-Maintenances.
const MAINTENANCE_MS: u64 = 60_000;

/// The commits that the driver knows of. The checks compare them with the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Trade numbers of accepted orders.
    pub(crate) ordered: BTreeSet<u64>,
    /// Trade numbers of completed trades.
    pub(crate) completed: BTreeSet<u64>,
    /// Sum of the quantities in all acknowledged feeds.
    pub(crate) fed: i64,
    /// Transactions with an unknown end; none if there is only one driver.
    pub(crate) doubt: Doubt,
}

/// Transactions that may have been committed: their driver was killed, or got no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) ordered: BTreeSet<u64>,
    pub(crate) completed: BTreeSet<u64>,
    /// The quantities of each Market-Feed.
    pub(crate) fed: Vec<i64>,
}

#[derive(Debug)]
pub(crate) struct Floor {
    scale: Scale,
    deck: Vec<TransactionType>,
    shuffler: Stream,
    emulator: Emulator,
    market: Market,
    /// Number of requests that customers have made.
    made: u64,
    maintained: u64,
    /// Reserved trade numbers.
    pub(crate) numbers: Range<u64>,
    pub(crate) ledger: Ledger,
}

impl Floor {
    /// Creates the state of a single driver.
    pub(crate) fn new(scale: Scale) -> Self {
        Floor::of_seat(scale, 0, 0)
    }

    /// Creates the state of one of several drivers, whose customers have made `made` requests
    /// before.
    pub(crate) fn of_seat(scale: Scale, seat: u64, made: u64) -> Self {
        let mut floor = Floor {
            scale,
            deck: Vec::new(),
            shuffler: Stream::new(scale.seed, Purpose::Deck, seat),
            emulator: Emulator::new(scale, seat),
            market: Market::new(scale, seat),
            made,
            maintained: 0,
            numbers: 0..0,
            ledger: Ledger::default(),
        };
        floor.maintained = floor.maintenances();
        floor
    }

    /// Number of Data-Maintenances that are due by now.
    fn maintenances(&self) -> u64 {
        (self.now() - self.scale.start_ms()) / MAINTENANCE_MS
    }

    /// Market time. It advances with the customers' requests at TPC-E's pace, not with the wall
    /// clock.
    fn now(&self) -> u64 {
        let per_card = TRADE_EVERY_MS * TRADES_PER_DECK;
        self.scale.start_ms() + self.made * per_card / CARDS / self.scale.customers
    }

    /// The next request: first those of the market, then those of customers. `None` if trade
    /// numbers must be reserved before.
    pub(crate) fn next(&mut self) -> Option<Request> {
        let now = self.now();
        if let Some(execution) = self.market.executed(now) {
            return Some(Request::TradeResult(execution));
        }
        if let Some(feed) = self.market.feed(now) {
            return Some(Request::MarketFeed(feed));
        }
        if self.maintenances() > self.maintained {
            self.maintained += 1;
            return Some(self.emulator.data_maintenance());
        }
        if self.numbers.is_empty() {
            return None;
        }
        if self.deck.is_empty() {
            let cards = DECK.iter().flat_map(|(card, count)| vec![*card; *count]);
            self.deck = cards.collect();
            self.shuffler.shuffle(&mut self.deck);
        }
        let card = self.deck.pop()?;
        self.made += 1;
        let emulator = &mut self.emulator;
        Some(match card {
            TransactionType::TradeOrder => {
                Request::TradeOrder(emulator.trade_order(self.numbers.next()?, now))
            }
            TransactionType::TradeStatus => emulator.trade_status(),
            TransactionType::MarketWatch => emulator.market_watch(),
            TransactionType::SecurityDetail => emulator.security_detail(),
            TransactionType::CustomerPosition => emulator.customer_position(),
            TransactionType::BrokerVolume => emulator.broker_volume(),
            TransactionType::TradeLookup => emulator.trade_lookup(),
            _ => emulator.trade_update(),
        })
    }

    /// Gives up a Market-Feed that may have been committed, because a second attempt might
    /// count its quantities twice. Limit orders that it may have triggered stay submitted.
    pub(crate) fn give_up_feed(&mut self) {
        self.market.fed();
    }

    pub(crate) fn done(&mut self, request: &Request, answer: &Answer) {
        let now = self.now();
        match request {
            Request::TradeOrder(order) if !order.roll_back => {
                self.ledger.ordered.insert(order.t);
            }
            Request::TradeResult(execution) => {
                self.ledger.completed.insert(execution.t);
            }
            Request::MarketFeed(feed) => {
                self.market.fed();
                self.ledger.fed += feed.shares();
            }
            _ => {}
        }
        for accepted in &answer.accepted {
            self.market.accept(*accepted, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::request::Accepted;

    #[test]
    fn the_mix_is_that_of_the_deck() {
        let scale = Scale::new(200, 1);
        let mut floor = Floor::new(scale);
        assert!(floor.next().is_none(), "trade numbers come first");
        floor.numbers = 1..1_000_000;
        let mut counts = BTreeMap::<TransactionType, u64>::new();
        for _ in 0..20_000 {
            let request = floor.next().unwrap();
            *counts.entry(request.kind()).or_default() += 1;
            let mut answer = Answer::default();
            if let Request::TradeOrder(order) = &request
                && !order.roll_back
            {
                let (t, qty) = (order.t, order.qty);
                answer.accepted.push(Accepted { t, symb: 1, qty, at_once: true });
            }
            floor.done(&request, &answer);
        }
        let share = |kind| counts[&kind] as f64 / 20_000.0;
        for (kind, percent) in [
            (TransactionType::TradeStatus, 19.0),
            (TransactionType::MarketWatch, 18.0),
            (TransactionType::TradeOrder, 10.1),
            (TransactionType::TradeResult, 10.0),
            (TransactionType::BrokerVolume, 4.9),
            (TransactionType::MarketFeed, 1.0),
        ] {
            let (is, wanted) = (share(kind) * 100.0, percent);
            assert!((is - wanted).abs() < 0.3, "{}: {is} % instead of {wanted} %", kind.name());
        }
    }

    #[test]
    fn market_time_follows_the_pace_of_the_customers() {
        let mut floor = Floor::new(Scale::new(1_000, 1));
        floor.numbers = 1..1_000_000;
        let begun = floor.now();
        // 1,000 customers order two trades a second.
        let mut orders = 0;
        while floor.now() < begun + 500_000 {
            let request = floor.next().unwrap();
            orders += u64::from(request.kind() == TransactionType::TradeOrder);
        }
        assert!((1_000..=1_020).contains(&orders), "{orders}");
    }
}

//! What all clients of a run share: which request is next, and what has come of those before.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Scale;
use crate::emulator::Emulator;
use crate::generate::stream::{Purpose, Stream};
use crate::market::Market;
use crate::request::{Answer, Request, TransactionType};
use crate::scale::TRADE_EVERY_MS;

/// How many requests of each type a deck has. Trade-Result and Market-Feed follow from
/// Trade-Orders, Data-Maintenance comes once a minute.
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

/// Of a deck, the Trade-Orders that are not rolled back.
const TRADES_PER_DECK: u64 = 100;
const CARDS: u64 = 890;

/// Market time between two Data-Maintenances.
const MAINTENANCE_MS: u64 = 60_000;

/// What the driver knows to be committed; the checks compare it with what the store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Orders that were taken.
    pub(crate) ordered: BTreeSet<u64>,
    /// Trades of these that were completed.
    pub(crate) completed: BTreeSet<u64>,
    /// The quantities of all ticks that were told.
    pub(crate) fed: i64,
    /// What nobody knows; of a driver that is alone, nothing.
    pub(crate) doubt: Doubt,
}

/// What may have been committed, and may not: whoever began it was killed, or was not told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) ordered: BTreeSet<u64>,
    pub(crate) completed: BTreeSet<u64>,
    /// The quantities of each Market-Feed.
    pub(crate) fed: Vec<i64>,
}

/// The floor of the exchange.
#[derive(Debug)]
pub(crate) struct Floor {
    scale: Scale,
    deck: Vec<TransactionType>,
    shuffler: Stream,
    emulator: Emulator,
    market: Market,
    /// How many requests customers have made.
    made: u64,
    maintained: u64,
    /// Trade numbers that were reserved.
    pub(crate) numbers: Range<u64>,
    pub(crate) ledger: Ledger,
}

impl Floor {
    /// The floor of a driver that is alone.
    pub(crate) fn new(scale: Scale) -> Self {
        Floor::of_seat(scale, 0, 0)
    }

    /// The floor of one of several drivers, whose customers have made so many requests before.
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

    /// How many Data-Maintenances are due by now.
    fn maintenances(&self) -> u64 {
        (self.now() - self.scale.start_ms()) / MAINTENANCE_MS
    }

    /// Market time: customers make requests at TPC-E's pace, however long that takes on the wall.
    fn now(&self) -> u64 {
        let per_card = TRADE_EVERY_MS * TRADES_PER_DECK;
        self.scale.start_ms() + self.made * per_card / CARDS / self.scale.customers
    }

    /// The next request: what the market has done first, then what a customer wants. `None` when
    /// trade numbers have to be reserved before.
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

    /// Gives up a Market-Feed that may have been committed: told again, its quantities might count
    /// twice. The orders that it may have triggered stay submitted.
    pub(crate) fn give_up_feed(&mut self) {
        self.market.fed();
    }

    /// Notes what has come of a request.
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
        // 1,000 customers make two trades a second.
        let mut orders = 0;
        while floor.now() < begun + 500_000 {
            let request = floor.next().unwrap();
            orders += u64::from(request.kind() == TransactionType::TradeOrder);
        }
        assert!((1_000..=1_020).contains(&orders), "{orders}");
    }
}

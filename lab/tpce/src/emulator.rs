//! Draws the requests of customers from a seed.

use crate::Scale;
use crate::generate::stream::{Purpose, Stream};
use crate::model::kind;
use crate::request::*;
use crate::scale::{LOAD_UNIT, PRICED_DAYS, names};

/// A limit order's price is one that the price wave reaches within this time. So it waits for
/// seconds instead of a quarter of an hour.
const LIMIT_WITHIN_MS: u64 = 5_000;

#[derive(Debug)]
pub(crate) struct Emulator {
    scale: Scale,
    stream: Stream,
    /// Index of the table that is maintained next.
    maintained: usize,
}

impl Emulator {
    pub(crate) fn new(scale: Scale, seat: u64) -> Self {
        let stream = Stream::new(scale.seed, Purpose::Emulator, seat);
        Emulator { scale, stream, maintained: 0 }
    }

    /// Draws a customer of a random load unit. Tiers 1, 2 and 3 have 10, 60 and 30 percent.
    fn customer(&mut self) -> u64 {
        // The remaining customers belong to the last unit.
        let units = (self.scale.customers / LOAD_UNIT).max(1);
        let unit = self.stream.below(units);
        let first = unit * LOAD_UNIT + 1;
        let last = if unit + 1 == units { self.scale.customers } else { first + LOAD_UNIT - 1 };
        let tier = match self.stream.below(10) {
            0 => 1,
            1..=6 => 2,
            _ => 3,
        };
        loop {
            // At least a fifth of each unit is of each tier, so the loop ends soon.
            let c = self.stream.between(first, last);
            if Scale::tier(c) == tier {
                return c;
            }
        }
    }

    fn account(&mut self) -> u64 {
        let c = self.customer();
        let accounts: Vec<u64> = self.scale.accounts(c).collect();
        *self.stream.pick(&accounts)
    }

    fn security(&mut self) -> u32 {
        self.stream.between(1, u64::from(self.scale.securities())) as u32
    }

    fn day(&mut self) -> u32 {
        self.scale.last_priced_day() - self.stream.below(u64::from(PRICED_DAYS)) as u32
    }

    fn past(&mut self) -> u64 {
        self.stream.below(self.scale.start_ms())
    }

    pub(crate) fn trade_order(&mut self, t: u64, now: u64) -> TradeOrder {
        let ca = self.account();
        let executors = self.scale.executors(ca);
        let stream = &mut self.stream;
        let executor_tax_id = if stream.percent(10) && !executors.is_empty() {
            Some(names::tax_id(*stream.pick(&executors)))
        } else {
            None
        };
        let symb = *stream.pick(&self.scale.securities_of(ca));
        let security = if stream.percent(40) {
            let (co, issue) = self.scale.issue(symb);
            Ordered::Issue { company: names::company(co), issue }
        } else {
            Ordered::Symbol(symb)
        };
        let sell = stream.percent(50);
        let tt = match (stream.percent(60), sell) {
            (true, true) => kind::MARKET_SELL,
            (true, false) => kind::MARKET_BUY,
            (false, false) => kind::LIMIT_BUY,
            (false, true) if stream.percent(50) => kind::LIMIT_SELL,
            (false, true) => kind::STOP_LOSS,
        };
        TradeOrder {
            t,
            ca,
            executor_tax_id,
            security,
            tt,
            qty: *stream.pick(&[100, 200, 400, 800]),
            bid: self.scale.price(symb, now + stream.below(LIMIT_WITHIN_MS)),
            margin: stream.percent(8),
            lifo: stream.percent(35),
            maybe_done: false,
            roll_back: stream.percent(1),
            now,
        }
    }

    pub(crate) fn trade_status(&mut self) -> Request {
        Request::TradeStatus { ca: self.account() }
    }

    pub(crate) fn market_watch(&mut self) -> Request {
        let what = match self.stream.below(100) {
            0..60 => Watched::List { c: self.customer() },
            60..95 => Watched::Account { ca: self.account() },
            _ => Watched::Industry { name: names::industry(self.stream.between(1, 102) as u32) },
        };
        Request::MarketWatch(Watch { what, day: self.day() })
    }

    pub(crate) fn security_detail(&mut self) -> Request {
        let days = self.stream.between(5, 20) as u32;
        let from_day = self.scale.last_priced_day() + 1 - days;
        Request::SecurityDetail { symb: self.security(), from_day, days }
    }

    pub(crate) fn customer_position(&mut self) -> Request {
        let c = self.customer();
        let by_number = self.stream.percent(50);
        let who = if by_number { Who::Number(c) } else { Who::TaxId(names::tax_id(c)) };
        Request::CustomerPosition(Position { who, history: self.stream.percent(50) })
    }

    pub(crate) fn broker_volume(&mut self) -> Request {
        let count = self.stream.between(20, 40);
        let brokers = self.stream.distinct(count, u64::from(self.scale.brokers()));
        let brokers = brokers.into_iter().map(names::broker).collect();
        let sector = names::sector(self.stream.between(1, 12) as u8);
        Request::BrokerVolume { brokers, sector }
    }

    pub(crate) fn trade_lookup(&mut self) -> Request {
        let frame = self.stream.below(10);
        Request::TradeLookup(match frame {
            0..3 => self.listed(),
            3..6 => Lookup::OfAccount { ca: self.account(), until: self.past() },
            6..9 => Lookup::OfSecurity { symb: self.security(), until: self.past() },
            _ => Lookup::FirstOf { ca: self.account() },
        })
    }

    pub(crate) fn trade_update(&mut self) -> Request {
        let frame = self.stream.below(100);
        Request::TradeUpdate(match frame {
            0..33 => self.listed(),
            33..66 => Lookup::OfAccount { ca: self.account(), until: self.past() },
            _ => Lookup::OfSecurity { symb: self.security(), until: self.past() },
        })
    }

    fn listed(&mut self) -> Lookup {
        let trades = self.stream.distinct(LOOKUP_TRADES as u64, self.scale.trades());
        Lookup::Listed(trades.into_iter().map(u64::from).collect())
    }

    pub(crate) fn data_maintenance(&mut self) -> Request {
        let table = Maintained::ALL[self.maintained % Maintained::ALL.len()];
        self.maintained += 1;
        let ca = self.account();
        let stream = &mut self.stream;
        Request::DataMaintenance(Maintenance {
            table,
            c: Scale::owner(ca),
            ca,
            co: stream.between(1, u64::from(self.scale.companies())) as u32,
            symb: stream.between(1, u64::from(self.scale.securities())) as u32,
            day: self.scale.last_priced_day() - stream.below(u64::from(PRICED_DAYS)) as u32,
            tx: stream.between(1, 320) as u32,
            ex: stream.between(1, 4) as u8,
            ni: stream.between(1, u64::from(self.scale.news_items())) as u32,
        })
    }
}

//! Defines the size of the workload, and computes properties of customers, accounts and
//! securities from their numbers.

use crate::generate::stream::{Purpose, Stream};
use crate::model::kind;
use crate::{Error, Result};

/// Most customers. An account's number is ten times its customer's number, plus an index.
pub const CUSTOMERS_MAX: u64 = 1_000_000;
/// Fewest customers: the market needs some securities.
pub const CUSTOMERS_MIN: u64 = 20;

/// Most trades for each customer before the run: the 300 days of TPC-E.
const TRADES_PER_CUSTOMER_MAX: u64 = 17_280;

/// TPC-E's pace: every customer trades once in 500 seconds.
pub(crate) const TRADE_EVERY_MS: u64 = 500_000;
/// The market is open for eight hours.
pub(crate) const DAY_MS: u64 = 8 * 3600 * 1000;
/// Days of prices for each security. TPC-E has 1,305.
pub(crate) const PRICED_DAYS: u32 = 30;
/// The day of the first trade.
const FIRST_DAY: u32 = 13_000;
/// The period of a price's wave, and its bounds.
const WAVE_MS: u64 = 900_000;
const PRICE_MIN: u64 = 2_000;
const PRICE_MAX: u64 = 3_000;
/// Customers of a load unit.
pub(crate) const LOAD_UNIT: u64 = 1_000;

/// The size of the workload. The same scale gives the same data in every store.
///
/// TPC-E starts with 300 days of trades. This workload starts with one, so that it loads in
/// seconds.
///
/// ```
/// let scale = tpce::Scale::new(1_000, 1);
/// assert_eq!(scale.trades(), 58_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Number of the brokerage's customers; everything else is in proportion.
    pub customers: u64,
    /// Average number of trades of each customer before the run.
    pub trades_per_customer: u64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Scale {
    /// A scale with one day's trades for each customer.
    pub fn new(customers: u64, seed: u64) -> Self {
        Scale { customers, trades_per_customer: DAY_MS.div_ceil(TRADE_EVERY_MS), seed }
    }

    /// Checks that such a brokerage is possible.
    ///
    /// # Errors
    /// [`Error::Invalid`] for customers outside of [`CUSTOMERS_MIN`] to [`CUSTOMERS_MAX`], or
    /// for too few or too many trades.
    pub fn check(&self) -> Result<()> {
        if !(CUSTOMERS_MIN..=CUSTOMERS_MAX).contains(&self.customers) {
            return Err(Error::Invalid(format!(
                "{} customers: give {CUSTOMERS_MIN} to {CUSTOMERS_MAX}",
                self.customers
            )));
        }
        if !(1..=TRADES_PER_CUSTOMER_MAX).contains(&self.trades_per_customer) {
            return Err(Error::Invalid(format!(
                "{} trades for each customer: give 1 to {TRADES_PER_CUSTOMER_MAX}",
                self.trades_per_customer
            )));
        }
        Ok(())
    }

    /// Number of trades before the run.
    pub fn trades(&self) -> u64 {
        self.customers * self.trades_per_customer
    }

    pub(crate) fn companies(&self) -> u32 {
        (self.customers / 2).max(10) as u32
    }

    pub(crate) fn securities(&self) -> u32 {
        (self.customers * 685 / 1000).max(u64::from(self.companies())) as u32
    }

    pub(crate) fn brokers(&self) -> u32 {
        (self.customers / 100).max(1) as u32
    }

    pub(crate) fn zip_codes(&self) -> u32 {
        (self.customers * 15).min(14_741) as u32
    }

    pub(crate) fn news_items(&self) -> u32 {
        self.companies() * 2
    }

    /// The market time at which the run begins.
    pub(crate) fn start_ms(&self) -> u64 {
        self.trades_per_customer * TRADE_EVERY_MS
    }

    pub(crate) fn day(&self, ms: u64) -> u32 {
        FIRST_DAY + (ms / DAY_MS) as u32
    }

    /// The last day with a closing price.
    pub(crate) fn last_priced_day(&self) -> u32 {
        self.day(self.start_ms())
    }

    pub(crate) fn tier(c: u64) -> u8 {
        match c % 10 {
            0 | 1 => 1,
            2..=7 => 2,
            _ => 3,
        }
    }

    pub(crate) fn accounts(&self, c: u64) -> impl Iterator<Item = u64> + use<> {
        let (low, high) = match Scale::tier(c) {
            1 => (1, 4),
            2 => (2, 8),
            _ => (5, 10),
        };
        let count = Stream::new(self.seed, Purpose::Customers, c).between(low, high);
        (0..count).map(move |i| c * 10 + i)
    }

    pub(crate) fn owner(ca: u64) -> u64 {
        ca / 10
    }

    pub(crate) fn broker_of(&self, c: u64) -> u32 {
        ((c - 1) / 100 % u64::from(self.brokers())) as u32 + 1
    }

    /// The numbers of other customers who may trade for an account: none, one or two.
    pub(crate) fn executors(&self, ca: u64) -> Vec<u64> {
        let mut stream = Stream::new(self.seed, Purpose::Accounts, ca);
        let count = match stream.below(100) {
            0..60 => 0,
            60..98 => 1,
            _ => 2,
        };
        let mut others: Vec<u64> = (0..count).map(|_| stream.between(1, self.customers)).collect();
        others.retain(|other| *other != Scale::owner(ca));
        others.dedup();
        others
    }

    pub(crate) fn securities_of(&self, ca: u64) -> Vec<u32> {
        let mut stream = Stream::new(self.seed, Purpose::Holdings, ca);
        let (low, high) = match Scale::tier(Scale::owner(ca)) {
            1 => (2, 10),
            2 => (5, 15),
            _ => (6, 18),
        };
        let count = stream.between(low, high);
        stream.distinct(count, u64::from(self.securities()))
    }

    /// The company of a security, and the index of the issue within the company.
    pub(crate) fn issue(&self, symb: u32) -> (u32, u8) {
        let companies = self.companies();
        ((symb - 1) % companies + 1, ((symb - 1) / companies) as u8)
    }

    pub(crate) fn exchange_of(symb: u32) -> u8 {
        (symb % 4) as u8 + 1
    }

    pub(crate) fn industry_of(co: u32) -> u32 {
        (co - 1) % 102 + 1
    }

    pub(crate) fn sector_of(ind: u32) -> u8 {
        ((ind - 1) % 12) as u8 + 1
    }

    /// The price of a security: a triangle wave with a phase of its own.
    pub(crate) fn price(&self, symb: u32, ms: u64) -> i64 {
        let phase = Stream::new(self.seed, Purpose::Securities, u64::from(symb)).below(WAVE_MS);
        let at = (ms + phase) % WAVE_MS;
        let half = WAVE_MS / 2;
        let height = if at < half { at } else { WAVE_MS - at };
        (PRICE_MIN + height * (PRICE_MAX - PRICE_MIN) / half) as i64
    }

    pub(crate) fn charge(tt: u8, tier: u8) -> i64 {
        100 * (i64::from(tt) + 1) + 100 * (3 - i64::from(tier))
    }

    /// The ranges of quantities for commission rates.
    pub(crate) const QUANTITIES: [(u32, u32); 4] =
        [(1, 200), (201, 400), (401, 600), (601, 1_000_000)];

    /// The commission rate, in hundredths of a percent.
    pub(crate) fn commission_rate(tier: u8, tt: u8, ex: u8, from_qty: u32) -> i64 {
        let market = i64::from(kind::is_market(tt));
        60 - 10 * i64::from(tier) + 5 * market + i64::from(ex) - i64::from(from_qty) / 100
    }

    /// A tax rate, in hundredths of a percent. The first half are rates of countries, the
    /// others of divisions.
    pub(crate) fn tax_rate(tx: u32) -> i64 {
        if tx <= 160 { 1_000 + i64::from(tx) * 10 } else { 100 + i64::from(tx) }
    }

    pub(crate) fn tax_rates_of(c: u64) -> [u32; 2] {
        [(c % 160) as u32 + 1, (c * 7 % 160) as u32 + 161]
    }

    /// The tax status: 0 owes no tax, 1 has it withheld, 2 pays it later.
    pub(crate) fn tax_status(&self, ca: u64) -> u8 {
        match Stream::new(self.seed, Purpose::Accounts, !ca).below(10) {
            0 | 1 => 0,
            2..=6 => 1,
            _ => 2,
        }
    }
}

/// Names, by which some transactions look records up.
pub(crate) mod names {
    const FIRST: [&str; 16] = [
        "Ada", "Ben", "Cora", "Dan", "Eve", "Finn", "Gail", "Hugo", "Ida", "Jon", "Kim", "Leo",
        "Mia", "Ned", "Ola", "Pia",
    ];
    const LAST: [&str; 16] = [
        "Abbot", "Baker", "Cooper", "Dyer", "Elder", "Fisher", "Glover", "Hunter", "Ironside",
        "Joiner", "Keeper", "Lorimer", "Mason", "Naylor", "Osler", "Potter",
    ];

    pub(crate) fn first(n: u64) -> &'static str {
        FIRST[(n % 16) as usize]
    }

    pub(crate) fn last(n: u64) -> &'static str {
        LAST[(n / 16 % 16) as usize]
    }

    pub(crate) fn tax_id(c: u64) -> String {
        format!("{:03}-{:02}-{c:07}", c * 37 % 1000, c * 11 % 100)
    }

    pub(crate) fn company(co: u32) -> String {
        format!("{} {} Company {co:06}", last(u64::from(co) * 3), last(u64::from(co) / 5))
    }

    pub(crate) fn broker(b: u32) -> String {
        format!("{} {} {b:05}", first(u64::from(b)), last(u64::from(b) * 5))
    }

    pub(crate) fn industry(ind: u32) -> String {
        format!("Industry {ind:03}")
    }

    pub(crate) fn sector(sc: u8) -> String {
        format!("Sector {sc:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinalities_are_those_of_the_design() {
        let scale = Scale::new(1_000, 1);
        assert_eq!((scale.companies(), scale.securities(), scale.brokers()), (500, 685, 10));
        assert_eq!(scale.zip_codes(), 14_741);
        let accounts: usize = (1..=1_000).map(|c| scale.accounts(c).count()).sum();
        assert!((4_700..5_300).contains(&accounts), "{accounts} accounts");
        let tiers = |tier| (1..=1_000).filter(|c| Scale::tier(*c) == tier).count();
        assert_eq!([tiers(1), tiers(2), tiers(3)], [200, 600, 200]);
        let permissions: usize = (1..=1_000)
            .flat_map(|c| scale.accounts(c))
            .map(|ca| 1 + scale.executors(ca).len())
            .sum();
        assert!((6_600..7_600).contains(&permissions), "{permissions} permissions");
        let positions: usize = (1..=1_000)
            .flat_map(|c| scale.accounts(c))
            .map(|ca| scale.securities_of(ca).len())
            .sum();
        assert!((46_000..55_000).contains(&positions), "{positions} positions");
    }

    #[test]
    fn prices_go_up_and_down_between_their_bounds() {
        let scale = Scale::new(100, 1);
        let prices: Vec<i64> = (0..900).map(|s| scale.price(3, s * 1_000)).collect();
        assert_eq!((prices.iter().min(), prices.iter().max()), (Some(&2_000), Some(&2_999)));
        assert!(prices.windows(2).all(|pair| (pair[0] - pair[1]).abs() <= 3));
        assert_eq!(scale.price(3, 0), scale.price(3, 900_000));
        assert_ne!(scale.price(3, 0), scale.price(4, 0));
    }

    #[test]
    fn all_rates_are_positive() {
        for tier in 1..=3 {
            for tt in 0..5 {
                for ex in 1..=4 {
                    for (from, _) in Scale::QUANTITIES {
                        assert!(Scale::commission_rate(tier, tt, ex, from) > 0);
                    }
                }
                assert!(Scale::charge(tt, tier) > 0);
            }
        }
    }
}

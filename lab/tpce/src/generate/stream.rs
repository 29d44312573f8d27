//! Implements seeded streams of numbers: SplitMix64 (Steele, Lea and Flood, 2014).
//!
//! Each table has a stream of its own, and each item of a table one below it. So the content of
//! a row depends only on seed, table and number, not on the order in which rows are generated.
//! The numbers must not be used for secrets.

/// The distance between two states: 2^64 divided by the golden ratio, as an odd number.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Dimensions = 1,
    Companies,
    Securities,
    Customers,
    Accounts,
    Holdings,
    WatchLists,
    History,
    Deck,
    Emulator,
    Market,
}

#[derive(Debug, Clone)]
pub(crate) struct Stream {
    state: u64,
}

impl Stream {
    /// Creates the stream of one item.
    pub(crate) fn new(seed: u64, purpose: Purpose, item: u64) -> Self {
        let mut stream = Stream { state: seed };
        for word in [purpose as u64, item] {
            stream.state = stream.next() ^ word;
        }
        stream.state = stream.next();
        stream
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The high half of the product. The bias is below 2^-32 for every count here.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Draws a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Like [`between`](Stream::between), for amounts.
    pub(crate) fn amount(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(high.abs_diff(low) + 1) as i64
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws a number from 0, included, to 1, excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    /// Draws this many different numbers from 1 to `most`, or all of them. They are sorted.
    pub(crate) fn distinct(&mut self, count: u64, most: u64) -> Vec<u32> {
        let mut chosen = std::collections::BTreeSet::new();
        // Floyd's algorithm: the number of draws does not depend on chance.
        for end in most.saturating_sub(count) + 1..=most {
            let drawn = self.between(1, end);
            chosen.insert(if chosen.contains(&drawn) { end } else { drawn });
        }
        chosen.into_iter().map(|number| number as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut stream = Stream { state: 1_234_567 };
        let numbers: Vec<u64> = (0..3).map(|_| stream.next()).collect();
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, published);
    }

    #[test]
    fn items_and_purposes_have_streams_of_their_own() {
        let first = |seed, purpose, item| Stream::new(seed, purpose, item).next();
        let one = first(1, Purpose::Customers, 1);
        assert_eq!(one, first(1, Purpose::Customers, 1));
        assert_ne!(one, first(2, Purpose::Customers, 1));
        assert_ne!(one, first(1, Purpose::Accounts, 1));
        assert_ne!(one, first(1, Purpose::Customers, 2));
    }

    #[test]
    fn distinct_numbers_are_distinct() {
        let mut stream = Stream { state: 1 };
        for (count, most) in [(0, 5), (3, 5), (5, 5), (9, 5)] {
            let drawn = stream.distinct(count, most);
            assert_eq!(drawn.len() as u64, count.min(most));
            assert!(drawn.iter().all(|n| (1..=most as u32).contains(n)));
        }
    }
}

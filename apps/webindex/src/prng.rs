//! A small random number generator with a seed: the same seed gives the same numbers,
//! everywhere.
//!
//! Generated sites and recrawls must be reproducible from the seed that a user typed, across
//! versions of this program. No library promises that for its default generator.
//!
//! This is SplitMix64 (Steele, Lea and Flood, 2014). Its state is one counter, so the stream
//! of any item can be computed without the streams before it. Do not use it for secrets.

/// The distance between two states: 2^64 divided by the golden ratio, rounded to an odd
/// number.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers.
///
/// ```
/// use webindex::prng::Prng;
///
/// let mut a = Prng::new(7);
/// let mut b = Prng::new(7);
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Prng { state: seed }
    }

    /// Returns the stream of one item under a seed. It depends on nothing else.
    pub fn for_item(seed: u64, item: u64) -> Self {
        let mut outer = Prng::new(seed);
        let mut inner = Prng::new(outer.next_u64() ^ item);
        Prng::new(inner.next_u64())
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of the product. The bias is below 2^-32 for any list that fits in
        // memory.
        let product = u128::from(self.next_u64()) * end as u128;
        usize::try_from(product >> 64).expect("the high half is below `end`")
    }

    /// Returns true with the probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        // Uses the 53 bits that an f64 holds exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns one of the items. `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len());
        items.get(index)
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut prng = Prng::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| prng.next_u64()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn numbers_stay_in_range_and_fill_it() {
        let mut prng = Prng::new(1);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[prng.below(7)] += 1;
            let unit = prng.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
        assert_eq!((prng.below(0), prng.below(1)), (0, 0));
        assert!(!prng.percent(0) && prng.percent(100));
        assert_eq!(prng.pick::<u8>(&[]), None);
    }

    #[test]
    fn a_shuffle_keeps_the_items() {
        let mut items: Vec<usize> = (0..100).collect();
        Prng::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn items_have_streams_of_their_own() {
        let first = |seed, item| Prng::for_item(seed, item).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        let mut all: Vec<u64> = (0..100).flat_map(|s| (0..100).map(move |i| first(s, i))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }
}

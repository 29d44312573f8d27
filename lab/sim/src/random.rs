//! Generates random numbers and hashes that are the same on every machine and in every build.
//! The module uses integers only, and nothing that depends on addresses or on the word size.

/// A generator whose numbers follow from its seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

/// The denominator of the rates that [`Rng::chance`] takes.
pub(crate) const CHANCE: u64 = 10_000;

impl Rng {
    /// Creates the generator of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring streams.
        Rng(mix(0x70e2_c01a_7012_51b5, seed))
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or zero if `n` is zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // The bias is below 2^-32 for every `n` that occurs here.
        if n == 0 { 0 } else { self.next() % n }
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true at a rate in ten thousand.
    pub(crate) fn chance(&mut self, rate: u64) -> bool {
        rate > 0 && self.below(CHANCE) < rate
    }

    /// Returns a random element.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).ok()?)
    }
}

/// Mixes a number into a hash.
pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed ^ (mixed >> 29)
}

/// Mixes bytes into a hash, eight at a time.
pub(crate) fn mix_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let chunk = chunk.try_into().expect("a chunk has eight bytes");
        hash = mix(hash, u64::from_le_bytes(chunk));
    }
    let mut last = [0; 8];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash, u64::from_le_bytes(last)), bytes.len() as u64)
}

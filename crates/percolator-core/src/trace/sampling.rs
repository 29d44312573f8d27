//! Defines which of a client's transactions its trace keeps.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use bigtable::Timestamp;

/// Selects the transactions that a client traces: none, those of one cascade in N, or all.
///
/// A cascade consists of a transaction that no observer began, and of all transactions that
/// its changes set off. It is kept as a whole or not at all, with few exceptions. For example, a
/// process that meets too many open runs gives up the oldest. The text forms are `off`, `1/16` and
/// `all`.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::watch::Sampling;
/// let sampling: Sampling = "1/16".parse()?;
/// assert_eq!(sampling.to_string(), "1/16");
/// assert_eq!("1/1".parse(), Ok(Sampling::All));
/// assert!("1/0".parse::<Sampling>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sampling {
    /// No trace. The default.
    #[default]
    Off,
    /// One cascade in N.
    OneOf(NonZeroU32),
    /// Every transaction.
    All,
}

impl Sampling {
    /// Whether anything is traced.
    pub(crate) fn is_on(self) -> bool {
        self != Sampling::Off
    }

    /// The N, if one cascade in N is kept.
    pub(crate) fn one_of(self) -> u64 {
        match self {
            Sampling::OneOf(n) => n.get().into(),
            Sampling::Off | Sampling::All => 1,
        }
    }

    /// Whether the cascade whose root committed at `root` is kept. All clients with the same
    /// setting decide alike.
    pub(crate) fn keeps(self, root: Timestamp) -> bool {
        // Timestamps of one client may all be even: the multiplier mixes their bits.
        let mixed = root.as_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.is_on() && mixed.is_multiple_of(self.one_of())
    }
}

impl FromStr for Sampling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one_of = |n: &str| n.parse().ok().map(Sampling::OneOf);
        match text {
            "off" => Ok(Sampling::Off),
            "all" | "1/1" => Ok(Sampling::All),
            text => text.strip_prefix("1/").and_then(one_of).ok_or_else(|| {
                format!(
                    "{text:?} is not a share of transactions to trace: write off, all, or 1/N as \
                     in 1/16"
                )
            }),
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::Off => f.write_str("off"),
            Sampling::OneOf(n) => write!(f, "1/{n}"),
            Sampling::All => f.write_str("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_of_so_many_roots_is_kept_whatever_the_step_of_their_timestamps() {
        let one_of_16: Sampling = "1/16".parse().unwrap();
        for step in [1, 2, 3, 16, 64] {
            let kept = (0..16_000).filter(|n| one_of_16.keeps(Timestamp::new(n * step).unwrap()));
            let kept = kept.count();
            assert!((800..1_200).contains(&kept), "{kept} of 16,000 with step {step}");
        }
        let ts = Timestamp::new(7).unwrap();
        assert!(Sampling::All.keeps(ts) && !Sampling::Off.keeps(ts));
        for wrong in ["", "1/", "1/-2", "2/3", "on", "1/4294967296"] {
            assert!(wrong.parse::<Sampling>().is_err(), "{wrong}");
        }
    }
}

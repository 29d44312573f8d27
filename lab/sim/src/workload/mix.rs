//! Defines the kinds of work, and draws those that a seed's clients mix.

use clap::ValueEnum;

use crate::random::Rng;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// Reads, writes, deletes and scans of few cells.
    Few,
    /// Reads, writes, deletes and scans of many cells.
    Many,
    /// Transfers between accounts of two tables, and audits.
    Bank,
    /// Increments.
    Counter,
    /// Lists that grow.
    Append,
    /// Additions to a set, and scans of it.
    Set,
    /// Two transactions that each read what the other writes.
    Skew,
    /// Readers that pause between reads.
    Reader,
    /// Transactions of many cells.
    Large,
    /// Writers that do not read.
    Blind,
    /// Writers of observed columns.
    Source,
    /// Writers that send weak notifications.
    Notifier,
}

/// The kinds that a seed's clients mix.
#[derive(Debug, Clone)]
pub(crate) struct Mix(Vec<Kind>);

impl Mix {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut kinds = Kind::value_variants().to_vec();
        let keep = rng.between(1, 6) as usize;
        while kinds.len() > keep {
            let out = rng.below(kinds.len() as u64) as usize;
            kinds.remove(out);
        }
        Mix(kinds)
    }

    /// Leaves a kind out; the last kind stays.
    pub(crate) fn leave_out(&mut self, kind: Kind) {
        if self.0.len() > 1 {
            self.0.retain(|other| *other != kind);
        }
    }

    /// Draws one of the kinds.
    pub(super) fn pick(&self, rng: &mut Rng) -> Option<Kind> {
        rng.pick(&self.0).copied()
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// Returns whether any column is observed.
    pub(crate) fn observes(&self) -> bool {
        self.has(Kind::Source) || self.has(Kind::Notifier)
    }
}

//! Finds out which parts of its world a seed's finding needs. It leaves out parts one at a
//! time, and shortens the work, as long as the same finding stays.
//!
//! The result is small, but not always the smallest possible: leaving out a part also changes
//! the rest of the run.

use std::collections::BTreeSet;

use crate::report::Report;
use crate::restrictions::{Part, Restrictions};
use crate::run::run_with;

/// The smallest failing world that was found.
#[derive(Debug)]
pub struct Minimal {
    /// The parts that are left out, and the bounds of the work.
    pub restrictions: Restrictions,
    /// The run with these restrictions.
    pub report: Report,
    /// How many runs the search took.
    pub runs: u64,
}

/// Leaves out of a seed's world everything that the finding does not need. Returns `None` if the
/// seed has no finding. A finding counts as the same if it is of the property that failed first.
pub fn minimise(seed: u64) -> Option<Minimal> {
    let report = run_with(seed, &Restrictions::default(), false);
    let property = report.findings.first()?.property;
    let same = move |report: &Report| report.findings.iter().any(|f| f.property == property);
    Some(minimise_by(seed, same))
}

/// Minimises as [`minimise`] does, for any condition `stays` that holds for the whole world.
fn minimise_by(seed: u64, stays: impl Fn(&Report) -> bool) -> Minimal {
    let report = run_with(seed, &Restrictions::default(), false);
    let mut search = Search {
        seed,
        stays,
        best: Minimal { restrictions: Restrictions::default(), report, runs: 1 },
    };
    // A part may become dispensable once another one is left out, hence the repetition.
    while search.leave_out_parts() {}
    search.cut_short(|restrictions| &mut restrictions.clients_max, 8);
    let begun = search.best.report.totals.transactions;
    search.cut_short(|restrictions| &mut restrictions.transactions_max, begun);
    search.leave_out_parts();
    search.best
}

struct Search<S> {
    seed: u64,
    stays: S,
    best: Minimal,
}

impl<S: Fn(&Report) -> bool> Search<S> {
    /// Returns whether the finding stays with these restrictions. If it does, they are the
    /// best so far.
    fn holds(&mut self, restrictions: Restrictions) -> bool {
        let report = run_with(self.seed, &restrictions, false);
        self.best.runs += 1;
        let stays = (self.stays)(&report);
        if stays {
            self.best = Minimal { restrictions, report, runs: self.best.runs };
        }
        stays
    }

    fn leave_out_parts(&mut self) -> bool {
        let mut any = false;
        let left: BTreeSet<Part> = Part::all().collect();
        for part in left.difference(&self.best.restrictions.without.clone()) {
            let mut less = self.best.restrictions.clone();
            less.without.insert(*part);
            any |= self.holds(less);
        }
        any
    }

    /// Bisects a bound between one and `max`.
    fn cut_short(&mut self, bound: impl Fn(&mut Restrictions) -> &mut Option<u64>, max: u64) {
        let (mut low, mut high) = (1, max);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut less = self.best.restrictions.clone();
            *bound(&mut less) = Some(middle);
            if self.holds(less) { high = middle } else { low = middle + 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Fault;

    #[test]
    fn what_a_finding_needs_is_left() {
        let killed = |report: &Report| report.totals.faults[Fault::Kill as usize] > 0;
        let seed = (0..).find(|seed| killed(&run_with(*seed, &Restrictions::default(), false)));
        let minimal = minimise_by(seed.unwrap(), killed);
        let without = &minimal.restrictions.without;
        assert!(!without.contains(&"kills".parse().unwrap()), "{without:?}");
        assert!(without.contains(&"partitions".parse().unwrap()), "{without:?}");
        assert_eq!(minimal.restrictions.clients_max, Some(1));
        // The printed command shows the same run.
        let again = run_with(minimal.report.seed, &minimal.restrictions, false);
        assert_eq!(again.hash, minimal.report.hash);
        assert!(killed(&again));
    }

    #[test]
    fn a_seed_without_a_finding_has_nothing_to_minimise() {
        assert!(minimise(1).is_none());
    }
}

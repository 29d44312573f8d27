//! Compares the instructions of a few operations with the numbers below, so that no change makes
//! them dearer unnoticed.
//!
//! A change that needs more instructions writes its own numbers here, and its commit says why.
//! Another compiler or another version of a library may also move them. The bound is as wide as
//! such changes mostly are, and much wider than two runs differ.

/// The arms, each with the instructions of one operation.
const INSTRUCTIONS: [(&str, f64); 4] =
    [("tx", 19_900.0), ("observed_set", 40_520.0), ("run", 44_850.0), ("document", 85_950.0)];
/// How many operations are counted. The numbers above hold for this number alone.
pub(super) const OPERATIONS: u64 = 2_000;
/// The largest growth.
const GROWTH_MAX: f64 = 0.02;
/// The file with the numbers, for messages.
const FILE: &str = "lab/bench/src/profile/gate.rs";

/// The names of the arms.
pub(super) fn arms() -> impl Iterator<Item = &'static str> {
    INSTRUCTIONS.into_iter().map(|(arm, _)| arm)
}

/// The comparison of all counted arms with the numbers above.
#[derive(Debug, Default)]
pub(super) struct Gate {
    dearer: Vec<String>,
    cheaper: Vec<String>,
}

impl Gate {
    /// Compares counted arms. Other arms are left out.
    pub(super) fn of<'a>(counted: impl Iterator<Item = (&'a str, f64)>) -> Self {
        Self::against(&INSTRUCTIONS, counted)
    }

    fn against<'a>(numbers: &[(&str, f64)], counted: impl Iterator<Item = (&'a str, f64)>) -> Self {
        let mut gate = Gate::default();
        for (arm, found) in counted {
            let Some((_, known)) = numbers.iter().find(|(known, _)| *known == arm) else {
                continue;
            };
            let growth = found / known - 1.0;
            let told = format!("{arm}: {found:.0}, not {known:.0} ({:+.1} %)", growth * 100.0);
            if growth > GROWTH_MAX {
                gate.dearer.push(told);
            } else if growth < -GROWTH_MAX {
                gate.cheaper.push(told);
            }
        }
        gate
    }

    /// The error and its remedy, if an arm has become dearer.
    pub(super) fn failure(&self) -> Option<(String, String)> {
        let Gate { dearer, .. } = self;
        let what = || format!("more instructions for one operation:\n  {}", dearer.join("\n  "));
        let help = || {
            format!(
                "find the cause with `percolator-bench profile --arm NAME` and callgrind; if the change \
                 is worth it, write the new numbers into {FILE}, and the reason into the commit"
            )
        };
        (!dearer.is_empty()).then(|| (what(), help()))
    }

    /// A note to keep the gains, if arms have become cheaper.
    pub(super) fn note(&self) -> Option<String> {
        let Gate { cheaper, .. } = self;
        let note = || {
            format!(
                "fewer instructions for one operation; write the new numbers into {FILE}:\n  {}",
                cheaper.join("\n  ")
            )
        };
        (!cheaper.is_empty()).then(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_percent_more_are_too_many_and_a_gain_is_noted() {
        let numbers = [("tx", 1000.0), ("run", 500.0)];
        let gate =
            |tx, run| Gate::against(&numbers, [("tx", tx), ("run", run), ("get", 1.0)].into_iter());
        let same = gate(1019.0, 491.0);
        assert_eq!((same.failure(), same.note()), (None, None));
        let dearer = gate(1021.0, 500.0);
        let (what, help) = dearer.failure().unwrap();
        assert!(what.contains("tx: 1021, not 1000 (+2.1 %)") && !what.contains("run"), "{what}");
        assert!(help.contains(FILE), "{help}");
        let cheaper = gate(1000.0, 400.0);
        assert_eq!(cheaper.failure(), None);
        assert!(cheaper.note().unwrap().contains("run: 400, not 500 (-20.0 %)"));
    }

    #[test]
    fn every_arm_has_a_number() {
        assert!(INSTRUCTIONS.iter().all(|(_, number)| *number > 1000.0));
        assert!(arms().all(|arm| super::super::all().any(|known| known == arm)));
    }
}

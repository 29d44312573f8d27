//! Decides which cells a garbage collection rule removes, and which tables may have rules.
//!
//! A rule looks at the versions of one column, newest first. Every kind of rule removes the
//! oldest of them, from some version on:
//!
//! * `max_num_versions`: all but the newest N.
//! * `max_age`: the versions whose time is more than the age before now.
//! * `union`: the versions that any of its rules removes.
//! * `intersection`: the versions that all of its rules remove.
//!
//! A rule without a kind removes nothing, nor does a union or an intersection without rules.
//!
//! The server refuses to set a rule in a table of Percolator, because transactions need old
//! versions. Their times are logical timestamps, which look like January 1970: one rule by age
//! would empty the table. A table may have got a rule before it became a table of Percolator.
//! `collect.rs` does not apply such a rule.

use bigtable::Timestamp;
use prost::Message;
use tonic::Status;

use super::layout;
use super::schema::TableRecord;
use crate::proto::admin::GcRule;
use crate::proto::admin::gc_rule::Rule as Wire;
use crate::time;

/// Names of tables that Percolator keeps for itself begin with this.
const PERCOLATOR_PREFIX: &str = "percolator.";
/// The shortest `max_age`: a millisecond.
const AGE_NANOS_MIN: i128 = 1_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_MICRO: i128 = 1000;

/// A rule that can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Removes nothing.
    Nothing,
    /// Removes all versions but so many.
    Versions(usize),
    /// Removes versions that are older than so many microseconds.
    Age(i64),
    Union(Vec<Rule>),
    Intersection(Vec<Rule>),
}

impl Rule {
    /// Decodes the rule of a family's record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Rule, prost::DecodeError> {
        Ok(Rule::new(&GcRule::decode(bytes)?))
    }

    /// A rule with an invalid bound removes nothing.
    fn new(rule: &GcRule) -> Rule {
        let all = |rules: &[GcRule]| rules.iter().map(Rule::new).collect();
        match &rule.rule {
            None => Rule::Nothing,
            Some(Wire::MaxNumVersions(count)) => match usize::try_from(*count) {
                Ok(count @ 1..) => Rule::Versions(count),
                _ => Rule::Nothing,
            },
            Some(Wire::MaxAge(age)) => match nanos(age) {
                nanos @ AGE_NANOS_MIN.. => {
                    Rule::Age(i64::try_from(nanos / NANOS_PER_MICRO).unwrap_or(i64::MAX))
                }
                _ => Rule::Nothing,
            },
            Some(Wire::Union(union)) => Rule::Union(all(&union.rules)),
            Some(Wire::Intersection(intersection)) => Rule::Intersection(all(&intersection.rules)),
        }
    }

    /// How many versions of a column stay at the time `now`. `times` has the times of all its
    /// versions, newest first; the versions after those that stay are removed.
    pub(crate) fn kept(&self, times: &[Timestamp], now: Timestamp) -> usize {
        let all = times.len();
        match self {
            Rule::Nothing => all,
            Rule::Versions(count) => all.min(*count),
            Rule::Age(micros) => {
                let oldest = time::micros(now).saturating_sub(*micros);
                times.partition_point(|of_cell| time::micros(*of_cell) >= oldest)
            }
            Rule::Union(rules) => {
                rules.iter().map(|rule| rule.kept(times, now)).min().unwrap_or(all)
            }
            Rule::Intersection(rules) => {
                rules.iter().map(|rule| rule.kept(times, now)).max().unwrap_or(all)
            }
        }
    }
}

fn nanos(age: &prost_types::Duration) -> i128 {
    i128::from(age.seconds) * NANOS_PER_SECOND + i128::from(age.nanos)
}

/// Checks the bounds of a new rule, those of its parts too.
///
/// # Errors
/// INVALID_ARGUMENT for fewer than one version, or an age below a millisecond.
pub(crate) fn check(rule: &GcRule) -> Result<(), Status> {
    match &rule.rule {
        Some(Wire::MaxNumVersions(count)) if *count < 1 => Err(Status::invalid_argument(format!(
            "max_num_versions is {count}: keep at least 1 version"
        ))),
        Some(Wire::MaxAge(age)) if nanos(age) < AGE_NANOS_MIN => Err(Status::invalid_argument(
            format!("max_age is {} ns: give at least one millisecond", nanos(age)),
        )),
        Some(Wire::Union(union)) => union.rules.iter().try_for_each(check),
        Some(Wire::Intersection(intersection)) => intersection.rules.iter().try_for_each(check),
        _ => Ok(()),
    }
}

/// True for a table of a Percolator database: one that Percolator keeps for itself, or one with
/// the families of its protocol.
///
/// The database's format record lies in a table of its own, which may come later than others,
/// from a backup for example. The families of a table cannot be apart from it.
pub(crate) fn is_percolators(record: &TableRecord) -> bool {
    let id = record.name.rsplit('/').next().unwrap_or_default();
    belongs_to_percolator(id, |name| record.families.iter().any(|family| family.name == name))
}

/// The same for a table with this id, of which `has` knows the families.
pub(crate) fn belongs_to_percolator(id: &str, has: impl Fn(&str) -> bool) -> bool {
    id.starts_with(PERCOLATOR_PREFIX)
        || layout::PERCOLATOR_FAMILIES.iter().all(|family| has(family.as_str()))
}

/// The error for a rule in a table of Percolator.
pub(crate) fn percolators(record: &TableRecord) -> Status {
    Status::failed_precondition(format!(
        "table {} belongs to a Percolator database, and a garbage collection rule would delete what \
         its transactions need: leave its families without rules, and set Percolator's retention",
        record.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin::gc_rule::{Intersection, Union};

    const HOUR_MS: u64 = 3_600_000;

    fn ts(millis: u64) -> Timestamp {
        Timestamp::new(millis).unwrap()
    }

    fn versions(count: i32) -> GcRule {
        GcRule { rule: Some(Wire::MaxNumVersions(count)) }
    }

    fn age(seconds: i64, nanos: i32) -> GcRule {
        GcRule { rule: Some(Wire::MaxAge(prost_types::Duration { seconds, nanos })) }
    }

    fn union(rules: &[GcRule]) -> GcRule {
        GcRule { rule: Some(Wire::Union(Union { rules: rules.to_vec() })) }
    }

    fn intersection(rules: &[GcRule]) -> GcRule {
        GcRule { rule: Some(Wire::Intersection(Intersection { rules: rules.to_vec() })) }
    }

    /// Applies a rule ten hours after 1970 to versions that are 0, 1, 2, 3 and 4 hours old.
    fn kept(rule: &GcRule) -> usize {
        let times: Vec<_> = (6..=10).rev().map(|hour| ts(hour * HOUR_MS)).collect();
        Rule::decode(&rule.encode_to_vec()).unwrap().kept(&times, ts(10 * HOUR_MS))
    }

    #[test]
    fn versions_and_ages() {
        assert_eq!([1, 2, 5, 9].map(|count| kept(&versions(count))), [1, 2, 5, 5]);
        // A version of exactly the age stays; a microsecond more, and it goes.
        assert_eq!(kept(&age(7200, 0)), 3);
        assert_eq!(kept(&age(7199, 999_999_000)), 2);
        // Ages count in microseconds: a part of one is cut off.
        assert_eq!(kept(&age(7199, 999_999_999)), 2);
        assert_eq!(kept(&age(0, 1_000_000)), 1);
        // Ages from before 1970 remove nothing.
        assert_eq!([36_000, i64::MAX].map(|seconds| kept(&age(seconds, 0))), [5, 5]);
        let future = [ts(11 * HOUR_MS), ts(9 * HOUR_MS)];
        let rule = Rule::new(&age(60, 0));
        assert_eq!(rule.kept(&future, ts(10 * HOUR_MS)), 1, "the future is not old");
        assert_eq!(rule.kept(&[], ts(10 * HOUR_MS)), 0);
    }

    #[test]
    fn unions_remove_what_any_removes_and_intersections_what_all_remove() {
        let (two_hours, four, one) = (age(7200, 0), versions(4), versions(1));
        assert_eq!(kept(&union(&[two_hours.clone(), four.clone()])), 3);
        assert_eq!(kept(&union(&[two_hours.clone(), one.clone()])), 1);
        assert_eq!(kept(&intersection(&[two_hours.clone(), four.clone()])), 4);
        assert_eq!(kept(&intersection(&[two_hours.clone(), one.clone()])), 3);
        let inner = intersection(&[two_hours, one]);
        assert_eq!(kept(&union(&[inner.clone(), four])), 3);
        assert_eq!(kept(&intersection(&[inner, versions(2)])), 3);
    }

    #[test]
    fn what_says_nothing_removes_nothing() {
        let nothing = GcRule::default();
        for rule in [nothing.clone(), union(&[]), intersection(&[]), intersection(&[union(&[])])] {
            assert_eq!(kept(&rule), 5, "{rule:?}");
            check(&rule).unwrap();
        }
        assert_eq!(kept(&union(&[nothing.clone(), versions(2)])), 2);
        assert_eq!(kept(&intersection(&[nothing, versions(2)])), 5);
    }

    #[test]
    fn invalid_bounds_are_refused_and_remove_nothing() {
        for bad in [versions(0), versions(-1), age(0, 999_999), age(-1, 0), age(i64::MIN, -1)] {
            for rule in [bad.clone(), union(&[versions(1), bad.clone()]), intersection(&[bad])] {
                let refused = check(&rule).unwrap_err();
                assert_eq!(refused.code(), tonic::Code::InvalidArgument);
                let sole = !matches!(rule.rule, Some(Wire::Union(_)));
                assert_eq!(kept(&rule), if sole { 5 } else { 1 }, "{rule:?}");
            }
        }
        check(&union(&[versions(1), age(0, 1_000_000)])).unwrap();
    }
}

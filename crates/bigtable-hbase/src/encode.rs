//! Translates names, versions and mutations into HBase's form.
//!
//! * A family keeps its name. A qualifier gets the prefix `q`, because HBase treats an empty
//!   one specially.
//! * A version is HBase's timestamp.
//! * The mutations of one request become their net effect: the cells to set, and the versions
//!   to delete.
//!
//! An effect is **blind** if HBase can apply it although no client has read the row. HBase
//! gives all parts of one request the same sequence number, and among equal numbers a deletion
//! hides a cell. So in two cases an effect is not blind. It must name each deleted version,
//! and the caller first reads the row to find them:
//!
//! * An effect sets a version within a range that it also deletes. The deletion would hide the
//!   version.
//! * An effect deletes a range of several versions that does not begin at zero. HBase's
//!   markers delete one version, or all versions up to one. The same holds if an effect
//!   deletes several ranges of one column, and one of them has more than one version.

use std::collections::BTreeMap;

use bigtable::{Family, Mutation, TimeRange, Timestamp};
use bytes::Bytes;

use crate::proto::{
    self, Action, BytesComparator, ColumnValue, Comparable, Comparator, DELETE,
    DELETE_MULTIPLE_VERSIONS, DELETE_ONE_VERSION, Filter, FilterList, MutationProto, PUT,
    QualifierValue,
};

/// The family of the guard, a cell that every mutation of its row replaces.
pub(crate) const GUARD_FAMILY: &[u8] = b"_guard";
/// The guard's qualifier.
pub(crate) const GUARD_QUALIFIER: &[u8] = b"g";
/// The guard's version, always the same.
const GUARD_TIMESTAMP: u64 = 1;
/// `MutationProto.durability`: acknowledged after all replicas have it in their write-ahead
/// logs.
const SYNC_WAL: i32 = 3;

/// The qualifier in HBase's form.
pub(crate) fn qualifier(qualifier: &[u8]) -> Bytes {
    [b"q", qualifier].concat().into()
}

/// The family's name in HBase's form.
pub(crate) fn family(family: &Family) -> Bytes {
    Bytes::copy_from_slice(family.as_str().as_bytes())
}

/// Compares a value with exactly these bytes.
pub(crate) fn binary_comparator(value: Bytes) -> Comparator {
    comparator("BinaryComparator", value)
}

/// Compares the first bytes of a value.
pub(crate) fn prefix_comparator(prefix: Bytes) -> Comparator {
    comparator("BinaryPrefixComparator", prefix)
}

fn comparator(class: &str, value: Bytes) -> Comparator {
    let inside = BytesComparator { comparable: Comparable { value: Some(value) } };
    Comparator {
        name: format!("org.apache.hadoop.hbase.filter.{class}"),
        serialized_comparator: Some(prost::Message::encode_to_vec(&inside).into()),
    }
}

/// The guard's column.
pub(crate) fn guard_column() -> proto::Column {
    proto::Column {
        family: Bytes::from_static(GUARD_FAMILY),
        qualifier: vec![Bytes::from_static(GUARD_QUALIFIER)],
    }
}

/// The deletion of a row's guard.
pub(crate) fn deleted_guard(row: &Bytes) -> MutationProto {
    let guard = QualifierValue {
        qualifier: Some(Bytes::from_static(GUARD_QUALIFIER)),
        value: None,
        timestamp: Some(GUARD_TIMESTAMP),
        delete_type: Some(DELETE_ONE_VERSION),
    };
    let family = Bytes::from_static(GUARD_FAMILY);
    MutationProto {
        row: Some(row.clone()),
        mutate_type: Some(DELETE),
        column_value: vec![ColumnValue { family, qualifier_value: vec![guard] }],
        durability: Some(SYNC_WAL),
    }
}

/// A filter that passes the first cell of each row, without its value.
pub(crate) fn first_key_alone() -> Filter {
    let first = filter("FirstKeyOnlyFilter", &proto::Nothing {});
    let key = filter("KeyOnlyFilter", &proto::KeyOnlyFilter { len_as_val: false });
    list(proto::MUST_PASS_ALL, vec![first, key])
}

/// A filter of several filters.
pub(crate) fn list(operator: i32, filters: Vec<Filter>) -> Filter {
    filter("FilterList", &FilterList { operator, filters })
}

/// A filter of one of HBase's own classes.
pub(crate) fn filter(class: &str, inside: &impl prost::Message) -> Filter {
    Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}"),
        serialized_filter: Some(inside.encode_to_vec().into()),
    }
}

type Column = (Family, Bytes);

/// The net effect of a request's mutations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    sets: BTreeMap<Column, BTreeMap<Timestamp, Bytes>>,
    deletes: BTreeMap<Column, Vec<TimeRange>>,
}

impl Effect {
    /// Applies the mutations in their order.
    pub(crate) fn of(mutations: &[Mutation]) -> Self {
        let mut effect = Effect::default();
        for mutation in mutations {
            match mutation {
                Mutation::Set { family, qualifier, timestamp, value } => {
                    let column = (family.clone(), qualifier.clone());
                    effect.sets.entry(column).or_default().insert(*timestamp, value.clone());
                }
                Mutation::Delete { time, .. } if time.from > time.to => {}
                Mutation::Delete { family, qualifier, time } => {
                    let column = (family.clone(), qualifier.clone());
                    if let Some(sets) = effect.sets.get_mut(&column) {
                        sets.retain(|at, _| !time.contains(*at));
                    }
                    effect.deletes.entry(column).or_default().push(*time);
                }
            }
        }
        effect.sets.retain(|_, versions| !versions.is_empty());
        effect.deletes.values_mut().for_each(merge);
        effect
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.deletes.is_empty()
    }

    /// True if HBase can apply the effect although nobody has read the row.
    pub(crate) fn is_blind(&self) -> bool {
        self.deletes.iter().all(|(column, ranges)| {
            let single = |range: &TimeRange| range.from == range.to;
            let sound = match &ranges[..] {
                [range] => single(range) || range.from == Timestamp::ZERO,
                ranges => ranges.iter().all(single),
            };
            let sets = self.sets.get(column);
            let meets = |range: &TimeRange| {
                sets.is_some_and(|sets| sets.range(range.from..=range.to).next().is_some())
            };
            sound && !ranges.iter().any(meets)
        })
    }

    /// The columns with deleted versions, and the deleted ranges of each.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = (&Family, &Bytes, &[TimeRange])> {
        self.deletes.iter().map(|((family, qualifier), ranges)| (family, qualifier, &ranges[..]))
    }

    /// The same effect with each deleted version named. These are the versions among `there`
    /// that the effect deletes and does not set.
    pub(crate) fn exact(&self, there: &[bigtable::Cell]) -> Self {
        let mut deletes: BTreeMap<Column, Vec<TimeRange>> = BTreeMap::new();
        for cell in there {
            let column = (cell.family.clone(), cell.qualifier.clone());
            let gone = self.deletes.get(&column).into_iter().flatten();
            let gone = gone.clone().any(|range| range.contains(cell.timestamp));
            let set = self.sets.get(&column).is_some_and(|s| s.contains_key(&cell.timestamp));
            if gone && !set {
                deletes.entry(column).or_default().push(TimeRange::at(cell.timestamp));
            }
        }
        Effect { sets: self.sets.clone(), deletes }
    }

    /// The effect as actions on one row, with the row's new guard.
    pub(crate) fn actions(&self, row: &Bytes, guard: &[u8; 16]) -> Vec<Action> {
        let mut puts: BTreeMap<Bytes, Vec<QualifierValue>> = BTreeMap::new();
        for ((of, name), versions) in &self.sets {
            let values = versions.iter().map(|(at, value)| QualifierValue {
                qualifier: Some(qualifier(name)),
                value: Some(value.clone()),
                timestamp: Some(at.as_u64()),
                delete_type: None,
            });
            puts.entry(family(of)).or_default().extend(values);
        }
        puts.insert(
            Bytes::from_static(GUARD_FAMILY),
            vec![QualifierValue {
                qualifier: Some(Bytes::from_static(GUARD_QUALIFIER)),
                value: Some(Bytes::copy_from_slice(guard)),
                timestamp: Some(GUARD_TIMESTAMP),
                delete_type: None,
            }],
        );
        let mut deletes: BTreeMap<Bytes, Vec<QualifierValue>> = BTreeMap::new();
        for ((of, name), ranges) in &self.deletes {
            let markers = ranges.iter().map(|range| QualifierValue {
                qualifier: Some(qualifier(name)),
                value: None,
                timestamp: Some(range.to.as_u64()),
                delete_type: Some(if range.from == range.to {
                    DELETE_ONE_VERSION
                } else {
                    DELETE_MULTIPLE_VERSIONS
                }),
            });
            deletes.entry(family(of)).or_default().extend(markers);
        }
        let mutation = |index, kind, columns: BTreeMap<Bytes, Vec<QualifierValue>>| Action {
            index: Some(index),
            mutation: Some(MutationProto {
                row: Some(row.clone()),
                mutate_type: Some(kind),
                column_value: columns
                    .into_iter()
                    .map(|(family, qualifier_value)| ColumnValue { family, qualifier_value })
                    .collect(),
                durability: Some(SYNC_WAL),
            }),
            get: None,
        };
        let mut actions = vec![mutation(0, PUT, puts)];
        // A deletion without columns would delete the whole row.
        if !deletes.is_empty() {
            actions.push(mutation(1, DELETE, deletes));
        }
        actions
    }
}

/// Joins ranges that overlap or touch.
fn merge(ranges: &mut Vec<TimeRange>) {
    ranges.sort_unstable_by_key(|range| range.from);
    let mut merged: Vec<TimeRange> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match merged.last_mut().filter(|last| range.from <= last.to.next()) {
            Some(last) => last.to = last.to.max(range.to),
            None => merged.push(range),
        }
    }
    *ranges = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Family = Family::from_static("data");

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    fn set(at: u64) -> Mutation {
        Mutation::set(DATA, "q", ts(at), "v")
    }

    fn delete(from: u64, to: u64) -> Mutation {
        Mutation::delete(DATA, "q", TimeRange { from: ts(from), to: ts(to) })
    }

    #[test]
    fn what_can_be_sent_without_a_look() {
        let blind = |mutations: &[Mutation]| Effect::of(mutations).is_blind();
        assert!(blind(&[set(3), delete(5, 5), delete(9, 9)]));
        assert!(blind(&[set(6), delete(0, 5)]));
        assert!(blind(&[set(3), delete(0, 5)]), "the set is deleted, so it is not sent");
        assert!(blind(&[delete(0, 5), delete(3, 9)]), "the ranges are one");
        assert!(!blind(&[delete(0, 5), set(3)]), "the marker would hide what is set");
        assert!(!blind(&[delete(2, 5)]), "HBase has no marker for that");
        assert!(!blind(&[delete(0, 2), delete(5, 5)]));
        assert!(Effect::of(&[delete(7, 3)]).is_empty());
    }

    #[test]
    fn an_exact_effect_deletes_what_is_there_and_is_not_set() {
        let cell = |at| bigtable::Cell {
            family: DATA,
            qualifier: "q".into(),
            timestamp: ts(at),
            value: "v".into(),
        };
        let effect = Effect::of(&[delete(2, 5), set(3)]);
        let exact = effect.exact(&[cell(1), cell(3), cell(4)]);
        assert!(exact.is_blind());
        let deleted: Vec<TimeRange> =
            exact.deleted().flat_map(|(_, _, ranges)| ranges.to_vec()).collect();
        assert_eq!(deleted, [TimeRange::at(ts(4))]);
    }
}

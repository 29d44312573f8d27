//! Changes columns of groups with the layout `NewestFirst`: the pack under the column's own
//! key, and the packs in the history. A pack holds several versions (`layout/pack.rs`).
//!
//! A newer version is put before the others under the column's own key. If the pack has no
//! room, it moves to the history, and the newer version starts a new pack. So a
//! write costs one insert, and one more for each full pack. Every other change decodes packs
//! and encodes them again. Such changes are rare, or they delete many versions at once.
//!
//! Invariants: those of `history.rs`.

use bigtable::{TimeRange, Timestamp};
use fjall::Slice;

use super::{Draft, Space};
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::pack::{Pack, TimedValue, TimedValues};
use crate::read::column::timestamp_of;

/// A change to the history: the key, and its new pack, or `None` to remove it.
type Change = (Slice, Option<Slice>);

/// The two spaces of a group that keeps the newest versions first.
fn spaces(group: &Group) -> (Space<'_>, Space<'_>) {
    (Space { group, history: false }, Space { group, history: true })
}

impl<'a> Draft<'a, '_> {
    /// Sets a version. `current` is the pack under the column's own key.
    pub(super) fn set_newest_first(
        &mut self,
        group: &'a Group,
        column: &Key,
        current: Option<Pack>,
        timestamp: Timestamp,
        value: &[u8],
    ) -> Result<(), Fault> {
        let (own, history) = spaces(group);
        let key = Slice::new(column);
        let Some(current) = current else {
            self.put(own, key, Some(Pack::encode(&[(timestamp, value)], false)));
            return Ok(());
        };
        let (count, oldest) = current.extent()?;
        if timestamp < oldest && current.older() {
            return self.set_in_history(group, column, timestamp, value);
        }
        if timestamp <= current.newest() {
            let mut versions = current.versions()?;
            set_among(&mut versions, timestamp, value);
            self.replace_own(group, column, &versions, current.older());
        } else if current.has_room(group.bounds, count, value) {
            self.replace(own, key, current.with_newer(timestamp, value));
        } else {
            let superseded = current.into_superseded(timestamp)?;
            self.put(history, Slice::new(&column.at(oldest)), Some(superseded));
            self.replace(own, key, Pack::encode(&[(timestamp, value)], true));
        }
        Ok(())
    }

    /// Sets a version that is older than those under the column's own key.
    fn set_in_history(
        &mut self,
        group: &'a Group,
        column: &Key,
        timestamp: Timestamp,
        value: &[u8],
    ) -> Result<(), Fault> {
        let (_, history) = spaces(group);
        let at = column.at(timestamp);
        let found = self.range(history, &at, &column.at(Timestamp::ZERO)).next(|_| true)?;
        if let Some((key, stored)) = found {
            let pack = decode(&key, stored)?;
            if pack.newest() >= timestamp {
                let mut versions = pack.versions()?;
                set_among(&mut versions, timestamp, value);
                self.put_packs(group, column, &versions, Some(&key));
                return Ok(());
            }
        }
        self.put_packs(group, column, &[(timestamp, value)], None);
        Ok(())
    }

    /// Puts the versions under the column's own key. If they do not fit, all but the newest
    /// move to the history.
    fn replace_own(
        &mut self,
        group: &'a Group,
        column: &Key,
        versions: &[TimedValue<'_>],
        mut older: bool,
    ) {
        let (own, _) = spaces(group);
        let mut kept = versions;
        if !group.bounds.fit(versions) {
            self.put_packs(group, column, &versions[1..], None);
            (kept, older) = (&versions[..1], true);
        }
        self.replace(own, Slice::new(column), Pack::encode(kept, older));
    }

    /// Puts the versions into the history. `replaced` is the key of the pack that they came
    /// from.
    fn put_packs(
        &mut self,
        group: &'a Group,
        column: &Key,
        versions: &[TimedValue<'_>],
        replaced: Option<&Slice>,
    ) {
        let (_, history) = spaces(group);
        self.rewrites = true;
        group.bounds.split(versions, &mut |part| {
            let Some((oldest, _)) = part.last() else { return };
            let (key, pack) = (Slice::new(&column.at(*oldest)), Pack::encode(part, false));
            if replaced == Some(&key) {
                self.replace(history, key, pack)
            } else {
                self.put(history, key, Some(pack))
            }
        });
    }

    /// Deletes versions. `current` is the pack under the column's own key. If none of its
    /// versions is left, the next older pack takes its place.
    pub(super) fn delete_newest_first(
        &mut self,
        group: &'a Group,
        column: &Key,
        current: Option<Pack>,
        time: TimeRange,
    ) -> Result<(), Fault> {
        let (own, history) = spaces(group);
        let Some(current) = current.filter(|_| time.from <= time.to) else { return Ok(()) };
        let versions = current.versions()?;
        let oldest = versions.last().map_or(current.newest(), |(oldest, _)| *oldest);
        let mut older = current.older();
        if older && time.from < oldest {
            let to = time.to.min(oldest.previous());
            for (key, pack) in self.without(history, column, TimeRange { to, ..time })? {
                self.rewrites = true;
                self.put(history, key, pack);
            }
            older = time.from > Timestamp::ZERO || to < oldest.previous();
        }
        let left = outside(&versions, time);
        if !left.is_empty() {
            // A pack is not rewritten merely to say that its history is empty. Reads of old
            // versions then look there in vain.
            if left.len() < versions.len() {
                self.replace(own, Slice::new(column), Pack::encode(&left, older));
            }
            return Ok(());
        }
        let mut next = None;
        if older {
            let mut entries =
                self.range(history, &column.at(Timestamp::MAX), &column.at(Timestamp::ZERO));
            next = entries.next(|_| true)?;
            older = entries.next(|_| false)?.is_some();
        }
        match next {
            None => self.put(own, Slice::new(column), None),
            Some((key, stored)) => {
                let pack = decode(&key, stored)?;
                self.replace(own, Slice::new(column), Pack::encode(&pack.versions()?, older));
                self.put(history, key, None);
                self.rewrites = true;
            }
        }
        Ok(())
    }

    /// Returns the changes that delete the versions in `time` from a column's history. Only
    /// the first and the last pack can also hold other versions, so only those two are read.
    fn without(
        &self,
        history: Space<'a>,
        column: &Key,
        time: TimeRange,
    ) -> Result<Vec<Change>, Fault> {
        let mut changes = Vec::new();
        let mut entries = self.range(history, &column.at(time.to), &column.at(Timestamp::ZERO));
        let reaches_below = column.at(time.from);
        let mut first = true;
        while let Some((key, stored)) = entries.next(|key| first || *key > *reaches_below)? {
            let last = *key >= *reaches_below;
            if first || *key > *reaches_below {
                let pack = decode(&key, stored)?;
                let versions = pack.versions()?;
                let left = outside(&versions, time);
                if left.len() < versions.len() {
                    let put = left.last().map(|(oldest, _)| Slice::new(&column.at(*oldest)));
                    if put.as_ref() != Some(&key) {
                        changes.push((key, None));
                    }
                    if let Some(put) = put {
                        let by = pack.superseded_by()?;
                        changes.push((put, Some(Pack::encode_old(&left, by)?)));
                    }
                }
            } else {
                changes.push((key, None));
            }
            if last {
                break;
            }
            first = false;
        }
        Ok(changes)
    }
}

/// The pack under a key of the history.
fn decode(key: &[u8], stored: Option<Slice>) -> Result<Pack, Fault> {
    let pack = Pack::decode(stored.ok_or(Fault::Damaged("a pack has no value"))?)?;
    if pack.extent()?.1 == timestamp_of(key)? {
        Ok(pack)
    } else {
        Err(Fault::Damaged("a pack's key does not have the timestamp of its oldest version"))
    }
}

/// The versions that do not lie in `time`.
fn outside<'v>(versions: &TimedValues<'v>, time: TimeRange) -> TimedValues<'v> {
    versions.iter().filter(|(timestamp, _)| !time.contains(*timestamp)).copied().collect()
}

/// Inserts a version at its place, or replaces the version with the same timestamp.
fn set_among<'v>(versions: &mut TimedValues<'v>, timestamp: Timestamp, value: &'v [u8]) {
    let place = versions.partition_point(|(other, _)| *other > timestamp);
    match versions.get_mut(place) {
        Some((other, old)) if *other == timestamp => *old = value,
        _ => versions.insert(place, (timestamp, value)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use futures::executor::block_on;

    use super::*;
    use crate::{FjallStore, Options};

    /// Writes `versions` ever newer versions of a column. Returns the entries put under its
    /// own key and into the history, and how many of each count as replaced.
    fn entries(versions: u64, value_bytes: usize, versions_max: usize) -> [u64; 4] {
        let family = Family::from_static("newest");
        let dir = tempfile::tempdir().unwrap();
        let options = Options { pack_versions_max: versions_max, ..Options::default() };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let group = LocalityGroup::on_disk("newest", Layout::NewestFirst);
        let schema = TableSchema { groups: vec![group] };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        for version in 1..=versions {
            let timestamp = Timestamp::new(version).unwrap();
            let set = Mutation::set(family.clone(), "q", timestamp, vec![0; value_bytes]);
            block_on(table.mutate_row(RowMutation::new("r").mutation(set))).unwrap();
        }
        let group = table.opened().0.wait_to_lead().unwrap().groups[0].clone();
        let replaced = group.removed.each_ref().map(|count| count.load(Ordering::Relaxed));
        let written = [false, true].map(|history| group.keyspace(history).approximate_len() as u64);
        [written[0], written[1], replaced[0], replaced[1]]
    }

    #[test]
    fn a_newer_version_is_one_insert_and_one_more_for_each_pack() {
        assert_eq!(entries(801, 20, 8), [801, 100, 800, 0]);
        assert_eq!(entries(801, 20, 4), [801, 200, 800, 0]);
        // Four values of this size fill a pack.
        assert_eq!(entries(801, 110, 8), [801, 200, 800, 0]);
        // A value of this size has a pack of its own.
        assert_eq!(entries(101, 2000, 8), [101, 100, 100, 0]);
        assert_eq!(entries(101, 20, 1), [101, 100, 100, 0]);
    }
}

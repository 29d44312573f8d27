//! The draft of one request: the keys its mutations would write, in one row or in several, worked out
//! under the commit lock.
//!
//! Mutations apply in order, so a later one must see what an earlier one of the same request has
//! done; the draft lies over the published state for that. It ends with at most one write for each
//! key, because the engine gives all writes of a batch the same number.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bigtable::{Error, Mutation, Result, RowKey, TimeRange, Timestamp};
use fjall::{Keyspace, OwnedWriteBatch, Slice};
use smallvec::SmallVec;

use crate::column::Newest;
use crate::engine::{FamilyInfo, TableInfo, View};
use crate::fault::Fault;
use crate::group::{Cells, Group, Stored};
use crate::key::Key;
use crate::memory::MemoryChange;

/// The writes of one request.
pub(crate) struct Draft<'a> {
    view: View<'a>,
    /// For each space that is written to.
    writes: SmallVec<[(Space<'a>, Writes); 4]>,
}

/// A keyspace: that of a group, or its history.
#[derive(Clone, Copy)]
struct Space<'a> {
    group: &'a Group,
    history: bool,
}

impl PartialEq for Space<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.group, other.group) && self.history == other.history
    }
}

/// What is put under each key, or `None` to remove it.
#[derive(Debug, Default)]
struct Writes(BTreeMap<Slice, Option<Slice>>);

/// What the requests of a group commit come to.
pub(crate) struct Batch {
    pub(crate) writes: OwnedWriteBatch,
    pub(crate) memory: Vec<MemoryChange>,
    /// What the batch puts under columns' own keys, in groups that keep the newest apart.
    pub(crate) newest: Vec<(Slice, Option<Slice>)>,
    /// By how many cells the batch so far changes each in-memory group.
    added: SmallVec<[(usize, isize); 4]>,
}

impl Batch {
    pub(crate) fn new(writes: OwnedWriteBatch) -> Self {
        Batch { writes, memory: Vec::new(), newest: Vec::new(), added: SmallVec::new() }
    }

    fn added(&mut self, group: usize) -> &mut isize {
        let position = self.added.iter().position(|(known, _)| *known == group);
        let position = position.unwrap_or_else(|| {
            self.added.push((group, 0));
            self.added.len() - 1
        });
        &mut self.added[position].1
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(view: View<'a>) -> Self {
        Draft { view, writes: SmallVec::new() }
    }

    pub(crate) fn apply(
        &mut self,
        table: &'a TableInfo,
        row: &RowKey,
        mutation: &Mutation,
    ) -> std::result::Result<(), Fault> {
        let (Mutation::Set { family, qualifier, .. } | Mutation::Delete { family, qualifier, .. }) =
            mutation;
        let FamilyInfo { number, group, .. } = *table.family(family);
        let column = Key::column(table.id, row.as_bytes(), number, qualifier);
        let group = &*table.groups[group];
        let apart = group.history.is_some();
        match mutation {
            Mutation::Set { timestamp, value, .. } if apart => {
                self.set_newest(group, &column, *timestamp, value)
            }
            Mutation::Set { timestamp, value, .. } => {
                let key = Slice::new(&column.at(*timestamp));
                self.put(Space { group, history: false }, key, Some(Slice::new(value)));
                Ok(())
            }
            Mutation::Delete { time, .. } if time.from > time.to => Ok(()),
            Mutation::Delete { time, .. } if apart => self.delete_newest(group, &column, *time),
            Mutation::Delete { time, .. } => {
                self.delete_versions(Space { group, history: false }, &column, *time)
            }
        }
    }

    fn delete_versions(
        &mut self,
        space: Space<'a>,
        column: &Key,
        time: TimeRange,
    ) -> std::result::Result<(), Fault> {
        if time.from == time.to {
            // Blind: whoever deletes one exact version has mostly written it before.
            self.put(space, Slice::new(&column.at(time.from)), None);
            return Ok(());
        }
        let (from, to) = (column.at(time.to), column.at(time.from));
        let doomed = self.range(space, &from, &to, usize::MAX, false)?;
        for (key, _) in doomed {
            self.put(space, key, None);
        }
        Ok(())
    }

    /// Sets a version in a group that keeps the newest apart: the newest one stays in, or moves to,
    /// its place under the column's own key.
    fn set_newest(
        &mut self,
        group: &'a Group,
        column: &Key,
        timestamp: Timestamp,
        value: &[u8],
    ) -> std::result::Result<(), Fault> {
        let (newest, history) = spaces(group);
        let own = Slice::new(column);
        let Some(current) = self.get(newest, column)?.map(Newest::decode).transpose()? else {
            self.put(newest, own, Some(Newest::encode(timestamp, false, value)));
            return Ok(());
        };
        if timestamp >= current.timestamp {
            let replaces = timestamp == current.timestamp;
            if !replaces {
                let key = Slice::new(&column.at(current.timestamp));
                self.put(history, key, Some(Slice::new(current.value())));
            }
            let older = current.older || !replaces;
            self.put(newest, own, Some(Newest::encode(timestamp, older, value)));
        } else {
            self.put(history, Slice::new(&column.at(timestamp)), Some(Slice::new(value)));
            if !current.older {
                let marked = Newest::encode(current.timestamp, true, current.value());
                self.put(newest, own, Some(marked));
            }
        }
        Ok(())
    }

    /// Deletes versions in a group that keeps the newest apart; if the newest goes, the next older
    /// one takes its place.
    fn delete_newest(
        &mut self,
        group: &'a Group,
        column: &Key,
        time: TimeRange,
    ) -> std::result::Result<(), Fault> {
        let (newest, history) = spaces(group);
        let Some(current) = self.get(newest, column)?.map(Newest::decode).transpose()? else {
            return Ok(());
        };
        if current.older && time.from < current.timestamp {
            let below = time.to.min(current.timestamp.previous());
            self.delete_versions(history, column, TimeRange { from: time.from, to: below })?;
        }
        let own = Slice::new(column);
        if !time.contains(current.timestamp) {
            let all = time.from == Timestamp::ZERO && time.to >= current.timestamp.previous();
            if current.older && all {
                // No reader need look into the history any more.
                let alone = Newest::encode(current.timestamp, false, current.value());
                self.put(newest, own, Some(alone));
            }
            return Ok(());
        }
        let mut left = Vec::new();
        if current.older {
            let (from, to) = (column.at(current.timestamp), column.at(Timestamp::ZERO));
            left = self.range(history, &from, &to, 2, true)?;
        }
        let more = left.len() > 1;
        match left.into_iter().next() {
            None => self.put(newest, own, None),
            Some((key, value)) => {
                let timestamp = crate::column::timestamp_of(&key)?;
                let value = value.ok_or(Fault::Damaged("a version without its value"))?;
                self.put(newest, own, Some(Newest::encode(timestamp, more, &value)));
                self.put(history, key, None);
            }
        }
        Ok(())
    }

    fn cells(&self, space: Space<'a>) -> Cells<'a> {
        match self.view.stored(space.group) {
            Stored::Versions(cells) => cells,
            Stored::NewestApart(_, history) if space.history => history,
            Stored::NewestApart(newest, _) => newest,
        }
    }

    fn written(&self, space: Space<'a>) -> Option<&Writes> {
        self.writes.iter().find(|(known, _)| *known == space).map(|(_, writes)| writes)
    }

    fn get(&self, space: Space<'a>, key: &[u8]) -> std::result::Result<Option<Slice>, Fault> {
        match self.written(space).and_then(|writes| writes.0.get(key)) {
            Some(written) => Ok(written.clone()),
            None => Ok(self.cells(space).get(key)?),
        }
    }

    fn put(&mut self, space: Space<'a>, key: Slice, value: Option<Slice>) {
        let position = self.writes.iter().position(|(known, _)| *known == space);
        let position = position.unwrap_or_else(|| {
            self.writes.push((space, Writes::default()));
            self.writes.len() - 1
        });
        self.writes[position].1.0.insert(key, value);
    }

    /// The first `limit` entries from `from` to `to`, both included, as the draft leaves them.
    fn range(
        &self,
        space: Space<'a>,
        from: &Key,
        to: &Key,
        limit: usize,
        with_values: bool,
    ) -> std::result::Result<Vec<(Slice, Option<Slice>)>, Fault> {
        let (from, to) = (Bound::Included(&**from), Bound::Included(&**to));
        let written = self.written(space);
        let mut found = BTreeMap::new();
        let mut entries = self.cells(space).range(from, to);
        while found.len() < limit {
            let Some((key, value)) = entries.next(|_| with_values)? else { break };
            if written.is_none_or(|written| !written.0.contains_key(&key)) {
                found.insert(key, value);
            }
        }
        for (key, value) in written.iter().flat_map(|w| w.0.range::<[u8], _>((from, to))) {
            if value.is_some() {
                found.insert(key.clone(), value.clone());
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// Adds the draft's writes to the batch, unless a group that refuses would exceed its bound.
    pub(crate) fn finish(self, batch: &mut Batch) -> std::result::Result<Result<()>, Fault> {
        let mut changes = Vec::new();
        let mut counted: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (space, writes) in &self.writes {
            let group = space.group;
            let Some(memory) = group.memory else { continue };
            let mut added = 0;
            for (key, value) in &writes.0 {
                let (here, spilled) = self.presence(group, memory, key)?;
                added += isize::from(value.is_some()) - isize::from(here || spilled);
                if value.is_some() || here || spilled {
                    let (key, value) = (key.clone(), value.clone());
                    changes.push((
                        group,
                        MemoryChange { group: memory, key, value, was_spilled: spilled },
                    ));
                }
            }
            let total = *batch.added(memory) + added;
            let refused = self.view.memory.group(memory).refuses(total);
            if let Some(cells_max) = refused.filter(|_| added > 0) {
                let group = group.schema.name.clone();
                return Ok(Err(Error::Overloaded { group, cells_max }));
            }
            counted.push((memory, added));
        }
        for (memory, added) in counted {
            *batch.added(memory) += added;
        }
        for (space, writes) in self.writes {
            let group = space.group;
            if group.history.is_some() && !space.history {
                let put = writes.0.iter().map(|(key, value)| (key.clone(), value.clone()));
                batch.newest.extend(put);
            }
            let removed = writes.0.values().filter(|value| value.is_none()).count() as u64;
            group.removed[usize::from(space.history)].fetch_add(removed, Ordering::Relaxed);
            if space.history {
                // What moved into the history was overwritten under the column's own key.
                let moved = writes.0.len() as u64 - removed;
                group.removed[0].fetch_add(moved, Ordering::Relaxed);
            }
            if group.memory.is_none() {
                write(&mut batch.writes, group.keyspace(space.history), writes);
            }
        }
        for (group, change) in changes {
            match &change.value {
                Some(value) => batch.writes.insert(&group.cells, change.key.clone(), value.clone()),
                None => batch.writes.remove(&group.cells, change.key.clone()),
            }
            batch.memory.push(change);
        }
        Ok(Ok(()))
    }

    /// Whether a cell is in the group's map, and whether it is in the keyspace only.
    fn presence(
        &self,
        group: &Group,
        memory: usize,
        key: &[u8],
    ) -> std::result::Result<(bool, bool), Fault> {
        let memory = self.view.memory.group(memory);
        let here = memory.has(key);
        let spilled = !here && memory.whole().is_none() && group.cells.contains_key(key)?;
        Ok((here, spilled))
    }
}

fn write(batch: &mut OwnedWriteBatch, keyspace: &Keyspace, writes: Writes) {
    for (key, value) in writes.0 {
        match value {
            Some(value) => batch.insert(keyspace, key, value),
            None => batch.remove(keyspace, key),
        }
    }
}

/// The two spaces of a group that keeps the newest version apart.
fn spaces(group: &Group) -> (Space<'_>, Space<'_>) {
    (Space { group, history: false }, Space { group, history: true })
}

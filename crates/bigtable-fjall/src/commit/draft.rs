//! Works out the draft of one request under the commit lock: the keys that its mutations
//! write, in one row or in several.
//!
//! Mutations apply in order, so a later one must see the effect of an earlier one of the same
//! request. The draft therefore overlays the published state. A draft ends with at most one
//! write per key, because the engine gives all writes of a batch the same number.

mod newest_first;
mod ordered;

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bigtable::{Error, Mutation, RowKey, TimeRange};
use fjall::Slice;
use smallvec::SmallVec;

use crate::commit::puts::Puts;
use crate::commit::view::View;
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::memory::MemoryChange;
use crate::layout::table_info::{FamilyInfo, TableInfo};
use crate::layout::tuning::bytes_of;
use crate::read::cells::{Cells, Entries, Stored};

use ordered::Ordered;

/// The writes of one request.
pub(crate) struct Draft<'a> {
    view: View<'a>,
    /// The writes to each space that the request changes.
    writes: SmallVec<[(Space<'a>, Writes); 4]>,
}

/// A keyspace of a group: its own, or its history.
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

/// The writes to one space.
#[derive(Debug, Default)]
struct Writes {
    /// The value to put under each key, or `None` to remove the key.
    puts: Ordered,
    /// The number of puts that are known to replace a value.
    replaced: u64,
}

impl Writes {
    /// The bytes that these writes put into a write buffer.
    fn bytes(&self) -> u64 {
        self.puts.iter().map(|(key, value)| bytes_of(key, value.as_deref())).sum()
    }
}

/// The reason why a request does not become part of the batch.
pub(crate) enum Refused {
    /// The request itself is refused, for example because a group is full.
    Request(Error),
    /// A file could not be read.
    Fault(Fault),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Request(error)
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Refused::Fault(fault)
    }
}

/// The combined writes of a group commit.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) writes: Puts,
    pub(crate) memory: Vec<MemoryChange>,
    /// The puts under columns' own keys, in groups with the layout `NewestFirst`. They update
    /// `recent.rs`.
    pub(crate) newest: SmallVec<[(Slice, Option<Slice>); 1]>,
    /// The bytes that the batch puts into write buffers.
    pub(crate) bytes: u64,
    /// Whether a large part of a write buffer is superseded.
    pub(crate) churned: bool,
    /// The number of cells that the batch adds to each in-memory group so far.
    added: SmallVec<[(usize, isize); 4]>,
}

impl From<Puts> for Batch {
    fn from(writes: Puts) -> Self {
        Batch { writes, ..Batch::default() }
    }
}

impl Batch {
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
    ) -> Result<(), Fault> {
        let (Mutation::Set { family, qualifier, .. } | Mutation::Delete { family, qualifier, .. }) =
            mutation;
        let FamilyInfo { number, group, .. } = *table.family(family);
        let column = Key::column(table.id, row.as_bytes(), number, qualifier);
        let group = &*table.groups[group];
        let newest_first = group.history.is_some();
        match mutation {
            Mutation::Set { timestamp, value, .. } if newest_first => {
                self.set_newest_first(group, &column, *timestamp, value)
            }
            Mutation::Set { timestamp, value, .. } => {
                let key = Slice::new(&column.at(*timestamp));
                self.put(Space { group, history: false }, key, Some(Slice::new(value)));
                Ok(())
            }
            Mutation::Delete { time, .. } if time.from > time.to => Ok(()),
            Mutation::Delete { time, .. } if newest_first => {
                self.delete_newest_first(group, &column, *time)
            }
            Mutation::Delete { time, .. } => self.delete_versions(group, &column, *time),
        }
    }

    fn delete_versions(
        &mut self,
        group: &'a Group,
        column: &Key,
        time: TimeRange,
    ) -> Result<(), Fault> {
        let space = Space { group, history: false };
        if time.from == time.to {
            // Delete without reading: callers name an exact version only if they wrote it.
            self.put(space, Slice::new(&column.at(time.from)), None);
            return Ok(());
        }
        let mut removed = Vec::new();
        let mut entries = self.range(space, &column.at(time.to), &column.at(time.from));
        while let Some((key, _)) = entries.next(|_| false)? {
            removed.push(key);
        }
        for key in removed {
            self.put(space, key, None);
        }
        Ok(())
    }

    fn cells(&self, space: Space<'a>) -> Cells<'a> {
        match self.view.stored(space.group) {
            Stored::Versions(cells) => cells,
            Stored::NewestFirst(_, history) if space.history => history,
            Stored::NewestFirst(newest, _) => newest,
        }
    }

    fn written(&self, space: Space<'a>) -> Option<&Writes> {
        self.writes.iter().find(|(known, _)| *known == space).map(|(_, writes)| writes)
    }

    fn get(&self, space: Space<'a>, key: &[u8]) -> Result<Option<Slice>, Fault> {
        match self.written(space).and_then(|writes| writes.puts.get(key)) {
            Some(written) => Ok(written.clone()),
            None => Ok(self.cells(space).get(key)?),
        }
    }

    fn put(&mut self, space: Space<'a>, key: Slice, value: Option<Slice>) {
        self.writes(space).puts.insert(key, value);
    }

    /// Like [`Draft::put`], for a key that has a value.
    fn replace(&mut self, space: Space<'a>, key: Slice, value: Slice) {
        let writes = self.writes(space);
        let again = writes.puts.insert(key, Some(value));
        writes.replaced += u64::from(!again);
    }

    fn writes(&mut self, space: Space<'a>) -> &mut Writes {
        let position = self.writes.iter().position(|(known, _)| *known == space);
        let position = position.unwrap_or_else(|| {
            self.writes.push((space, Writes::default()));
            self.writes.len() - 1
        });
        &mut self.writes[position].1
    }

    /// The entries from `from` to `to`, both included, as the draft leaves them.
    fn range(&self, space: Space<'a>, from: &Key, to: &Key) -> Merged<'_> {
        let entries = self.cells(space).range(Bound::Included(from), Bound::Included(to));
        let written = self.written(space).map(|writes| writes.puts.range(from, to).peekable());
        Merged { entries: Some(entries), ahead: None, written }
    }

    /// Adds the draft's writes to the batch. Refuses if a bounded group would exceed its
    /// limit.
    pub(crate) fn finish(self, batch: &mut Batch) -> Result<(), Refused> {
        let mut changes = Vec::new();
        let mut counted: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (space, writes) in &self.writes {
            let group = space.group;
            let Some(memory) = group.memory else { continue };
            let mut added = 0;
            for (key, value) in writes.puts.iter() {
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
                return Err(Error::Overloaded { group, cells_max }.into());
            }
            counted.push((memory, added));
        }
        for (memory, added) in counted {
            *batch.added(memory) += added;
        }
        batch.writes.reserve(self.writes.iter().map(|(_, writes)| writes.puts.len()).sum());
        for (space, writes) in self.writes {
            let group = space.group;
            if group.history.is_some() && !space.history {
                let put = writes.puts.iter().map(|(key, value)| (key.clone(), value.clone()));
                batch.newest.extend(put);
            }
            let removed = writes.puts.iter().filter(|(_, value)| value.is_none()).count() as u64;
            let removed = removed + writes.replaced;
            batch.bytes += writes.bytes();
            group.removed[usize::from(space.history)].fetch_add(removed, Ordering::Relaxed);
            if let Some(mut churn) = group.churn() {
                writes.puts.iter().for_each(|(key, _)| churn.count(key));
                batch.churned |= churn.much().is_some();
            }
            if group.memory.is_none() {
                let keyspace = group.keyspace(space.history);
                writes.puts.take(|key, value| batch.writes.put(keyspace, key, value));
            }
        }
        for (group, change) in changes {
            batch.writes.put(&group.cells, change.key.clone(), change.value.clone());
            batch.memory.push(change);
        }
        Ok(())
    }

    /// Returns whether a cell is in the group's map, and whether it is only in the keyspace.
    fn presence(&self, group: &Group, memory: usize, key: &[u8]) -> Result<(bool, bool), Fault> {
        let memory = self.view.memory.group(memory);
        let here = memory.has(key);
        let spilled = !here && memory.whole().is_none() && group.cells.contains_key(key)?;
        Ok((here, spilled))
    }
}

/// Iterates over stored entries, overlaid with a draft's writes.
struct Merged<'d> {
    /// The stored entries; `None` after the last one.
    entries: Option<Entries<'d>>,
    /// The stored entry that comes next.
    ahead: Option<(Slice, Option<Slice>)>,
    written: Option<Peekable<ordered::Iter<'d>>>,
}

impl Merged<'_> {
    /// Returns the next entry. The value may be missing if `wants` returns false for the key.
    fn next(
        &mut self,
        mut wants: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<(Slice, Option<Slice>)>, Fault> {
        loop {
            if let (None, Some(entries)) = (&self.ahead, &mut self.entries) {
                self.ahead = entries.next(&mut wants)?;
                if self.ahead.is_none() {
                    self.entries = None;
                }
            }
            let written = self.written.as_mut().and_then(|written| written.peek());
            let Some((key, value)) = written.copied() else { return Ok(self.ahead.take()) };
            if self.ahead.as_ref().is_some_and(|(stored, _)| stored < key) {
                return Ok(self.ahead.take());
            }
            self.ahead.take_if(|(stored, _)| stored == key);
            self.written.as_mut().and_then(Iterator::next);
            if value.is_some() {
                return Ok(Some((key.clone(), value.clone())));
            }
        }
    }
}

//! Works out the draft of one request under the commit lock: the keys that its mutations
//! write, in one row or in several.
//!
//! Mutations apply in order, so a later one must see the effect of an earlier one of the same
//! request. The draft therefore overlays the published state. A draft ends with at most one
//! write per key, because the engine gives all writes of a batch the same number.

mod newest_first;
mod ordered;

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bigtable::sync::locked;
use bigtable::{Error, Mutation, TimeRange};
use fjall::Slice;
use smallvec::SmallVec;

use crate::commit::puts::Puts;
use crate::commit::view::{Packs, RowAt, View};
use crate::failure::fault::Fault;
use crate::layout::group::Group;
use crate::layout::key::Key;
use crate::layout::memory::{MemoryChange, MemoryGroup};
use crate::layout::pack::Pack;
use crate::layout::table_info::FamilyInfo;
use crate::layout::tuning::bytes_of;
use crate::read::cells::{Cells, Entries, Stored};
use crate::read::seen::Seen;

use ordered::{Before, Ordered, Written};

/// The writes of one request.
pub(crate) struct Draft<'a, 'p> {
    view: View<'a>,
    /// Packs that the request's predicate has read.
    packs: &'a mut Packs<'p>,
    /// Packs that a scan has read before.
    seen: Option<&'a Seen>,
    /// Histories that include that of the current mutation's column.
    histories: Option<&'a BTreeMap<Slice, Slice>>,
    /// Whether a history changes otherwise than by a pack that moves into it.
    rewrites: bool,
    /// The spaces that the request changes. A space's position is its number in `puts`.
    spaces: SmallVec<[Space<'a>; 4]>,
    puts: Ordered,
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
    pub(crate) memory: SmallVec<[MemoryChange; 2]>,
    /// The puts under columns' own keys, in groups with the layout `NewestFirst`. They update
    /// `recent.rs`.
    pub(crate) newest: SmallVec<[(Slice, Option<Slice>); 2]>,
    /// The bytes that the batch puts into write buffers.
    pub(crate) bytes: u64,
    /// Whether a large part of a write buffer is superseded.
    pub(crate) churned: bool,
    /// Whether the batch rewrites the history of a column.
    pub(crate) rewrites: bool,
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

impl<'a, 'p> Draft<'a, 'p> {
    pub(crate) fn new(view: View<'a>, packs: &'a mut Packs<'p>, seen: Option<&'a Seen>) -> Self {
        let (spaces, puts) = (SmallVec::new(), Ordered::default());
        Draft { view, packs, seen, histories: None, rewrites: false, spaces, puts }
    }

    /// Adds a mutation of the row.
    pub(crate) fn apply(&mut self, row: &mut RowAt<'a>, mutation: &Mutation) -> Result<(), Fault> {
        let (Mutation::Set { family, qualifier, .. } | Mutation::Delete { family, qualifier, .. }) =
            mutation;
        let FamilyInfo { number, group, .. } = *row.table.family(family);
        let column = row.keys.column(number, qualifier);
        let group = &*row.table.groups[group];
        if group.history.is_some() {
            let known = || (row.index, number, &**qualifier);
            let current = self.newest(group, column, known)?;
            return match mutation {
                Mutation::Set { timestamp, value, .. } => {
                    self.set_newest_first(group, column, current, *timestamp, value)
                }
                Mutation::Delete { time, .. } => {
                    let histories = |seen: &'a Seen| seen.history(column, current.as_ref(), *time);
                    self.histories = self.seen.and_then(histories);
                    let deleted = self.delete_newest_first(group, column, current, *time);
                    self.histories = None;
                    deleted
                }
            };
        }
        match mutation {
            Mutation::Set { timestamp, value, .. } => {
                let key = Slice::new(&column.at(*timestamp));
                self.put(Space { group, history: false }, key, Some(Slice::new(value)));
                Ok(())
            }
            Mutation::Delete { time, .. } => self.delete_versions(group, column, *time),
        }
    }

    /// The pack under a column's own key, as the draft leaves it. `known` names the column.
    fn newest<'n>(
        &mut self,
        group: &'a Group,
        column: &Key,
        known: impl FnOnce() -> (usize, u8, &'n [u8]),
    ) -> Result<Option<Pack>, Fault> {
        let own = Space { group, history: false };
        if let Some(written) = self.numbered(own).and_then(|number| self.puts.get(number, column)) {
            return written.clone().map(Pack::decode).transpose();
        }
        let (row, family, qualifier) = known();
        match self.packs.take(row, family, qualifier) {
            Some(pack) => Ok(pack),
            None => {
                let seen = |seen: &Seen| seen.newest(&mut locked(self.view.recent), column);
                let pack = match self.seen.and_then(seen) {
                    Some(pack) => Some(pack),
                    None => self.cells(own).get(column)?,
                };
                pack.map(Pack::decode).transpose()
            }
        }
    }

    fn delete_versions(
        &mut self,
        group: &'a Group,
        column: &Key,
        time: TimeRange,
    ) -> Result<(), Fault> {
        let space = Space { group, history: false };
        if time.from > time.to {
            return Ok(());
        }
        if time.from == time.to {
            // Delete without reading: callers name an exact version only if they wrote it.
            self.put(space, Slice::new(&column.at(time.from)), None);
            return Ok(());
        }
        let cells = self.cells(space);
        let number = self.number(space);
        let (from, to) = (column.at(time.to), column.at(time.from));
        self.puts.remove_range(number, &from, &to);
        if let Cells::Map(map) = cells {
            // With both bounds the tree would be searched for each of them.
            let entries = map.range::<[u8], _>((Bound::Included(&*from), Bound::Unbounded));
            for (key, _) in entries.take_while(|(key, _)| ***key <= *to) {
                self.puts.insert(number, key.clone(), None, Before::There);
            }
            return Ok(());
        }
        let mut entries = cells.range(Bound::Included(&from), Bound::Included(&to));
        while let Some((key, _)) = entries.next(|_| false)? {
            self.puts.insert(number, key, None, Before::Unknown);
        }
        Ok(())
    }

    fn cells(&self, space: Space<'a>) -> Cells<'a> {
        match self.view.stored(space.group) {
            Stored::Versions(cells) => cells,
            Stored::NewestFirst(_, history) if space.history => {
                self.histories.map_or(history, Cells::Map)
            }
            Stored::NewestFirst(newest, _) => newest,
        }
    }

    /// The number of a space, unless the request has not changed the space yet.
    fn numbered(&self, space: Space<'a>) -> Option<usize> {
        self.spaces.iter().position(|known| *known == space)
    }

    /// The number of a space.
    fn number(&mut self, space: Space<'a>) -> usize {
        self.numbered(space).unwrap_or_else(|| {
            self.spaces.push(space);
            self.spaces.len() - 1
        })
    }

    fn put(&mut self, space: Space<'a>, key: Slice, value: Option<Slice>) {
        let number = self.number(space);
        self.puts.insert(number, key, value, Before::Unknown);
    }

    /// Like [`Draft::put`], for a key that has a value.
    fn replace(&mut self, space: Space<'a>, key: Slice, value: Slice) {
        let number = self.number(space);
        self.puts.insert(number, key, Some(value), Before::There);
    }

    /// The entries from `from` to `to`, both included, as the draft leaves them.
    fn range(&self, space: Space<'a>, from: &Key, to: &Key) -> Merged<'_> {
        let entries = self.cells(space).range(Bound::Included(from), Bound::Included(to));
        let number = self.numbered(space);
        let written = number.map(|number| self.puts.range(number, from, to).peekable());
        Merged { entries: Some(entries), ahead: None, written }
    }

    /// Adds the draft's writes to the batch. Refuses if a bounded group would exceed its
    /// limit.
    pub(crate) fn finish(mut self, batch: &mut Batch) -> Result<(), Refused> {
        if self.spaces.iter().any(|space| space.group.memory.is_some()) {
            self.count_in_memory(batch)?;
        }
        batch.writes.reserve(self.puts.len());
        batch.rewrites |= self.rewrites;
        let Draft { spaces, puts, .. } = self;
        puts.take(|space, key, Written { value, before }| {
            let Space { group, history } = spaces[space];
            if let Some(memory) = group.memory {
                if value.is_none() && before == Before::Absent {
                    return;
                }
                let (key, value, was_spilled) =
                    (key.clone(), value.clone(), before == Before::Spilled);
                batch.memory.push(MemoryChange { group: memory, key, value, was_spilled });
            }
            batch.bytes += bytes_of(&key, value.as_deref());
            if value.is_none() || before == Before::There {
                group.removed[usize::from(history)].fetch_add(1, Ordering::Relaxed);
            }
            if let Some(mut churn) = group.churn() {
                churn.count(&key);
                batch.churned |= churn.much().is_some();
            }
            if group.history.is_some() && !history {
                batch.newest.push((key.clone(), value.clone()));
            }
            batch.writes.put(group.keyspace(history), key, value);
        });
        Ok(())
    }

    /// Finds out which cells of in-memory groups are there already, as far as it matters. Counts
    /// the cells that are added to groups with a bound.
    fn count_in_memory(&mut self, batch: &mut Batch) -> Result<(), Refused> {
        let Draft { view, spaces, puts, .. } = self;
        let mut added: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        puts.try_for_each(|space, key, written| {
            let group = spaces[space].group;
            let Some(position) = group.memory else { return Ok(()) };
            let memory = view.memory.group(position);
            let set = written.value.is_some();
            if written.before == Before::Unknown && !(set && memory.takes_unseen()) {
                written.before = presence(group, memory, key)?;
            }
            if memory.is_bounded() {
                let was = matches!(written.before, Before::There | Before::Spilled);
                let change = isize::from(set) - isize::from(was);
                match added.last_mut() {
                    Some((last, sum)) if *last == space => *sum += change,
                    _ => added.push((space, change)),
                }
            }
            Ok::<_, Fault>(())
        })?;
        for (space, added) in &added {
            let group = spaces[*space].group;
            let Some(position) = group.memory else { continue };
            let total = *batch.added(position) + added;
            let refused = view.memory.group(position).refuses(total);
            if let Some(cells_max) = refused.filter(|_| *added > 0) {
                let group = group.schema.name.clone();
                return Err(Error::Overloaded { group, cells_max }.into());
            }
        }
        for (space, added) in added {
            let position = spaces[space].group.memory;
            position.into_iter().for_each(|position| *batch.added(position) += added);
        }
        Ok(())
    }
}

/// Whether a cell is in the group's map, or only in its keyspace.
fn presence(group: &Group, memory: &MemoryGroup, key: &[u8]) -> Result<Before, Fault> {
    if memory.has(key) {
        Ok(Before::There)
    } else if memory.whole().is_none() && group.cells.contains_key(key)? {
        Ok(Before::Spilled)
    } else {
        Ok(Before::Absent)
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

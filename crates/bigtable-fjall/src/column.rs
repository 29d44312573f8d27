//! Reading the versions of one column, whatever its group's layout.
//!
//! A value in a [`NewestApart`](bigtable::Layout::NewestApart) group's main keyspace begins with
//! eight bytes, big-endian: the version's timestamp, and in the highest bit whether older versions
//! may be in the history. Timestamps stay below 2^53, so the bit is free; it spares a column that
//! was written once every look into the history.
//!
//! Invariant: a column has a history only if it has a newest version, and all versions in its
//! history are older than that.

use std::ops::{Bound, ControlFlow};

use bigtable::{Bytes, TimeRange, Timestamp};
use fjall::Slice;
use smallvec::SmallVec;

use crate::fault::Fault;
use crate::group::{Cells, Entries, Stored};
use crate::key::{Key, Shape};

/// Values above this size are handed out without a copy; smaller ones are copied, because a small
/// value must not keep the block that it came in alive.
const VALUE_SHARED_BYTES_MIN: usize = 2 * 1024;
const STAMP_BYTES: usize = 8;
const OLDER_BIT: u64 = 1 << 63;
/// A stamped value up to this length is put together without allocating twice.
const STAMPED_BYTES_INLINE: usize = 256;

/// One version, as it was found.
pub(crate) struct Version<'a> {
    pub(crate) timestamp: Timestamp,
    stored: &'a Slice,
    /// Where the value begins in `stored`.
    start: usize,
}

impl<'a> Version<'a> {
    /// A version whose value is all that was stored.
    pub(crate) fn whole(timestamp: Timestamp, stored: &'a Slice) -> Self {
        Version { timestamp, stored, start: 0 }
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.stored[self.start..]
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let value = self.value();
        if value.len() < VALUE_SHARED_BYTES_MIN {
            return Bytes::copy_from_slice(value);
        }
        Bytes::from_owner(self.stored.clone()).slice(self.start..)
    }
}

/// The newest version of a column in a group that keeps it apart.
pub(crate) struct Newest {
    pub(crate) timestamp: Timestamp,
    /// Whether there may be older versions in the history.
    pub(crate) older: bool,
    stored: Slice,
}

impl Newest {
    pub(crate) fn decode(stored: Slice) -> Result<Self, Fault> {
        let stamp = stored.first_chunk::<STAMP_BYTES>().copied().map(u64::from_be_bytes);
        let stamp = stamp.ok_or(Fault::Damaged("a newest version without its timestamp"))?;
        let timestamp = Timestamp::new(stamp & !OLDER_BIT);
        let timestamp = timestamp.ok_or(Fault::Damaged("a newest version from beyond time"))?;
        Ok(Newest { timestamp, older: stamp & OLDER_BIT != 0, stored })
    }

    pub(crate) fn encode(timestamp: Timestamp, older: bool, value: &[u8]) -> Slice {
        let stamp = timestamp.as_u64() | if older { OLDER_BIT } else { 0 };
        let mut stamped: SmallVec<[u8; STAMPED_BYTES_INLINE]> =
            SmallVec::with_capacity(STAMP_BYTES + value.len());
        stamped.extend_from_slice(&stamp.to_be_bytes());
        stamped.extend_from_slice(value);
        Slice::new(&stamped)
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.stored[STAMP_BYTES..]
    }

    fn version(&self) -> Version<'_> {
        Version { timestamp: self.timestamp, stored: &self.stored, start: STAMP_BYTES }
    }
}

/// Shows `see` the versions of a column that lie in `time`, newest first, at most `versions_max` of
/// them.
pub(crate) fn visit(
    stored: Stored<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    if versions_max == 0 || time.from > time.to {
        return Ok(());
    }
    match stored {
        Stored::Versions(cells) => visit_versions(cells, column, time, versions_max, see),
        Stored::NewestApart(newest, history) => {
            let Some(newest) = newest.get(column)? else { return Ok(()) };
            let newest = Newest::decode(newest)?;
            let left = visit_newest(&newest, time, versions_max, &mut see);
            if left > 0 { visit_versions(history, column, time, left, see) } else { Ok(()) }
        }
    }
}

/// As [`visit`], but of the newest version only; returns how many are still to be looked for in the
/// history.
pub(crate) fn visit_newest(
    newest: &Newest,
    time: TimeRange,
    versions_max: u32,
    see: &mut impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> u32 {
    let mut left = versions_max;
    if time.contains(newest.timestamp) {
        left -= 1;
        if see(newest.version()).is_break() {
            return 0;
        }
    }
    if newest.older && time.from < newest.timestamp { left } else { 0 }
}

fn visit_versions(
    cells: Cells<'_>,
    column: &Key,
    time: TimeRange,
    versions_max: u32,
    mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    if time.from == time.to {
        if let Some(stored) = cells.get(&column.at(time.to))? {
            let _ = see(Version::whole(time.to, &stored));
        }
        return Ok(());
    }
    let (from, to) = (column.at(time.to), column.at(time.from));
    let mut entries = cells.range(Bound::Included(&from), Bound::Included(&to));
    for _ in 0..versions_max {
        let Some((key, Some(stored))) = entries.next(|_| true)? else { break };
        let timestamp = timestamp_of(&key)?;
        if see(Version::whole(timestamp, &stored)).is_break() {
            break;
        }
    }
    Ok(())
}

/// The version that a key names.
pub(crate) fn timestamp_of(key: &[u8]) -> Result<Timestamp, Fault> {
    let timestamp = Shape::of(key).and_then(|shape| shape.timestamp);
    timestamp.ok_or(Fault::Damaged("a version under a key that is none"))
}

/// A cursor over the history of many columns, for scans: it walks from one to the next where they
/// are near, and seeks where they are far.
pub(crate) struct History<'a> {
    cells: Cells<'a>,
    /// Where the scan ends.
    end: Key,
    entries: Option<Entries<'a>>,
    /// The entry the cursor stands before.
    ahead: Option<(Slice, Slice)>,
}

/// Entries to walk over before a seek is cheaper.
const HISTORY_STEPS_MAX: usize = 48;

impl<'a> History<'a> {
    pub(crate) fn new(cells: Cells<'a>, end: Key) -> Self {
        History { cells, end, entries: None, ahead: None }
    }

    /// As [`visit`], of the versions in the history. Columns, and time ranges within a column, are
    /// best asked for in the order of their keys.
    pub(crate) fn visit(
        &mut self,
        column: &Key,
        time: TimeRange,
        versions_max: u32,
        mut see: impl FnMut(Version<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let (from, to) = (column.at(time.to), column.at(time.from));
        self.move_to(&from)?;
        for _ in 0..versions_max {
            let Some((key, stored)) = &self.ahead else { break };
            if **key > *to {
                break;
            }
            let timestamp = timestamp_of(key)?;
            let seen = see(Version::whole(timestamp, stored));
            self.step()?;
            if seen.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Stands the cursor before the first entry at or above `from`.
    fn move_to(&mut self, from: &Key) -> Result<(), Fault> {
        let passed = |ahead: &Option<(Slice, Slice)>| {
            // Without an entry ahead the cursor is at the end, or was never opened.
            ahead.as_ref().is_none_or(|(key, _)| **key >= **from)
        };
        if !passed(&self.ahead) {
            for _ in 0..HISTORY_STEPS_MAX {
                self.step()?;
                if passed(&self.ahead) {
                    return Ok(());
                }
            }
        }
        self.ahead = None;
        self.entries = None;
        if **from < *self.end {
            let (from, end) = (Bound::Included(&**from), Bound::Excluded(&*self.end));
            self.entries = Some(self.cells.range(from, end));
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        self.ahead = match &mut self.entries {
            Some(entries) => entries.next(|_| true)?.and_then(|(k, v)| Some((k, v?))),
            None => None,
        };
        Ok(())
    }
}

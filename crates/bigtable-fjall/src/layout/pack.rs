//! Encodes packs: several versions of one column as one value, newest first.
//!
//! In a group with the layout `NewestFirst`, the value under a column's own key is a pack.
//! Every entry of the group's history is also a pack. For each version, a pack has a stamp of
//! eight bytes (big-endian), followed by the value:
//!
//! | bits of the stamp | content |
//! |---|---|
//! | 0 to 52 | the timestamp |
//! | 53 to 62 | the length of the value plus one; zero for a long value, the last in its pack |
//! | 63 | in the first stamp, under a column's own key: the history may hold older versions |
//!
//! A pack that moved to the history ends with a stamp that has no value: the timestamp of the
//! version that superseded the pack. Merges drop such packs (`upkeep/superseded.rs`). A pack whose
//! last value is long has no such stamp. Packs of format 4 and before have none either, nor those
//! that were written out of order.
//!
//! The layout has three advantages. The newest version is read without parsing the others. A
//! newer version is put in front without decoding the others. A column whose versions always fitted
//! into one pack needs no lookup in the history.
//!
//! Invariants:
//! * A pack holds at least one version, and each version is older than the one before it.
//! * A pack of several versions is within the [`Bounds`] it was made with, so that no change
//!   copies much. A version that exceeds the bounds has a pack of its own.
//!
//! ADR-14 says what this design costs, and what would change it.

use std::ops::ControlFlow;

use bigtable::{Bytes, TimeRange, Timestamp};
use fjall::Slice;
use smallvec::SmallVec;
use tinyvec::TinyVec;

use crate::failure::fault::Fault;
use crate::options::Options;

/// Values of at least this size are returned without a copy. Smaller values are copied,
/// because a small value must not keep its whole block in memory.
const VALUE_SHARED_BYTES_MIN: usize = 2 * 1024;
const STAMP_BYTES: usize = 8;
const OLDER_BIT: u64 = 1 << 63;
const LENGTH_SHIFT: u32 = 53;
const LENGTH_MASK: u64 = (1 << 10) - 1;
/// The longest value that another version can follow in a pack.
const VALUE_BYTES_MAX: usize = LENGTH_MASK as usize - 1;
/// The longest value that another version, or a last stamp, can follow is what callers may rely on.
const _: () = assert!(bigtable::SUPERSEDED_BYTES_MAX <= VALUE_BYTES_MAX);
/// A pack up to this length is built without an extra allocation.
const BYTES_INLINE: usize = 512;
/// The usual number of versions in a pack, with room to spare.
const VERSIONS_INLINE: usize = 12;

/// One version, as stored.
pub(crate) struct Version<'a> {
    pub(crate) timestamp: Timestamp,
    stored: &'a Slice,
    /// The start of the value in `stored`.
    start: usize,
    end: usize,
}

impl<'a> Version<'a> {
    /// A version whose value is the whole stored value.
    pub(crate) fn whole(timestamp: Timestamp, stored: &'a Slice) -> Self {
        Version { timestamp, stored, start: 0, end: stored.len() }
    }

    pub(crate) fn value(&self) -> &'a [u8] {
        &self.stored[self.start..self.end]
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let value = self.value();
        if value.len() < VALUE_SHARED_BYTES_MIN {
            return Bytes::copy_from_slice(value);
        }
        Bytes::from_owner(self.stored.clone()).slice(self.start..self.end)
    }
}

/// A version: its timestamp and its value.
pub(crate) type TimedValue<'a> = (Timestamp, &'a [u8]);

/// A pack that is being encoded.
type Encoded = TinyVec<[u8; BYTES_INLINE]>;

/// Versions of one column, newest first.
pub(crate) type TimedValues<'a> = SmallVec<[TimedValue<'a>; VERSIONS_INLINE]>;

/// The most versions and bytes in a pack of more than one version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    versions_max: usize,
    bytes_max: usize,
}

impl Bounds {
    pub(crate) fn new(options: &Options) -> Self {
        let bytes_max = options.pack_bytes_max.min(VALUE_BYTES_MAX);
        Bounds { versions_max: options.pack_versions_max, bytes_max }
    }

    /// Whether these versions may be in one pack.
    pub(crate) fn fit(self, versions: &[TimedValue<'_>]) -> bool {
        let bytes = |(_, value): &TimedValue<'_>| STAMP_BYTES + value.len();
        let within = || versions.iter().map(bytes).sum::<usize>() <= self.bytes_max;
        versions.len() <= 1 || versions.len() <= self.versions_max && within()
    }

    /// Splits the versions into parts that fit, and passes each part to `each`.
    pub(crate) fn split(
        self,
        versions: &[TimedValue<'_>],
        each: &mut impl FnMut(&[TimedValue<'_>]),
    ) {
        if self.fit(versions) {
            return each(versions);
        }
        let (newer, older) = versions.split_at(versions.len() / 2);
        self.split(newer, each);
        self.split(older, each);
    }
}

/// A pack whose first version is parsed.
pub(crate) struct Pack {
    stored: Slice,
    newest: Place,
}

/// The place of a version in its pack.
#[derive(Clone, Copy)]
struct Place {
    timestamp: Timestamp,
    start: usize,
    end: usize,
    /// Whether the value extends to the end of the pack, whatever its length.
    long: bool,
}

impl Place {
    /// Parses the version whose stamp begins at `at`.
    fn at(stored: &[u8], at: usize) -> Result<Self, Fault> {
        let stamp = stored.get(at..).and_then(<[u8]>::first_chunk::<STAMP_BYTES>);
        let stamp = stamp.copied().map(u64::from_be_bytes);
        let stamp = stamp.ok_or(Fault::Damaged("a version in a pack has no timestamp"))?;
        let start = at + STAMP_BYTES;
        let length = (stamp >> LENGTH_SHIFT) & LENGTH_MASK;
        let long = length == 0;
        let end = if long { stored.len() } else { start + length as usize - 1 };
        match Timestamp::new(stamp & Timestamp::MAX.as_u64()) {
            Some(timestamp) if end <= stored.len() => Ok(Place { timestamp, start, end, long }),
            _ => Err(Fault::Damaged("a version reaches beyond the end of its pack")),
        }
    }
}

impl Pack {
    pub(crate) fn decode(stored: Slice) -> Result<Self, Fault> {
        let newest = Place::at(&stored, 0)?;
        Ok(Pack { stored, newest })
    }

    /// The newest timestamp of a stored pack.
    pub(crate) fn newest_of(stored: &Slice) -> Result<Timestamp, Fault> {
        Ok(Place::at(stored, 0)?.timestamp)
    }

    /// Encodes a pack of these versions, of which there is at least one.
    pub(crate) fn encode(versions: &[TimedValue<'_>], older: bool) -> Slice {
        let mut bytes = Encoded::new();
        let mut older = older;
        for (timestamp, value) in versions {
            push(&mut bytes, *timestamp, value, std::mem::take(&mut older));
        }
        Slice::new(&bytes)
    }

    /// The pack with a newer version in front.
    pub(crate) fn with_newer(&self, timestamp: Timestamp, value: &[u8]) -> Slice {
        let mut bytes = Encoded::with_capacity(STAMP_BYTES + value.len() + self.stored.len());
        push(&mut bytes, timestamp, value, self.older());
        let first = bytes.len();
        bytes.extend_from_slice(&self.stored);
        // Only the first stamp of a pack carries this bit.
        bytes[first] &= !first_byte(OLDER_BIT);
        Slice::new(&bytes)
    }

    /// Whether the pack has room for a newer version, too.
    pub(crate) fn has_room(&self, bounds: Bounds, versions: usize, value: &[u8]) -> bool {
        versions < bounds.versions_max
            && STAMP_BYTES + value.len() + self.stored.len() <= bounds.bytes_max
    }

    pub(crate) fn newest(&self) -> Timestamp {
        self.newest.timestamp
    }

    /// Whether the history may hold older versions. Meaningful only under a column's own key.
    pub(crate) fn older(&self) -> bool {
        self.stored[0] & first_byte(OLDER_BIT) != 0
    }

    pub(crate) fn stored(&self) -> &Slice {
        &self.stored
    }

    /// Encodes a pack of the history. `by` is the timestamp of the version that superseded it, if
    /// that is known.
    pub(crate) fn encode_old(
        versions: &[TimedValue<'_>],
        by: Option<Timestamp>,
    ) -> Result<Slice, Fault> {
        let stored = Pack::encode(versions, false);
        match by {
            None => Ok(stored),
            Some(by) => Pack::decode(stored)?.into_superseded(by),
        }
    }

    /// The pack as an entry of the history, superseded by the version of this timestamp.
    pub(crate) fn into_superseded(self, by: Timestamp) -> Result<Slice, Fault> {
        if self.walk()?.1.long {
            return Ok(self.stored);
        }
        let mut bytes = Encoded::with_capacity(self.stored.len() + STAMP_BYTES);
        bytes.extend_from_slice(&self.stored);
        bytes.extend_from_slice(&by.as_u64().to_be_bytes());
        Ok(Slice::new(&bytes))
    }

    /// The timestamp of the version that superseded the pack, if the pack names it.
    pub(crate) fn superseded_by(&self) -> Result<Option<Timestamp>, Fault> {
        match self.walk()?.1.end {
            end if end == self.stored.len() => Ok(None),
            end => match Place::at(&self.stored, end)?.timestamp {
                by if by > self.newest.timestamp => Ok(Some(by)),
                _ => Err(Fault::Damaged("a pack was superseded by an older version")),
            },
        }
    }

    /// The number of versions, and the place of the oldest.
    fn walk(&self) -> Result<(usize, Place), Fault> {
        let (mut place, mut count) = (self.newest, 1);
        while let Some(next) = self.after(place)? {
            (place, count) = (next, count + 1);
        }
        Ok((count, place))
    }

    /// Whether the column has more versions than the newest, or may have. Meaningful only under
    /// a column's own key.
    pub(crate) fn has_several(&self) -> Result<bool, Fault> {
        Ok(self.older() || self.after(self.newest)?.is_some())
    }

    /// The number of versions, and the timestamp of the oldest.
    pub(crate) fn extent(&self) -> Result<(usize, Timestamp), Fault> {
        self.walk().map(|(count, oldest)| (count, oldest.timestamp))
    }

    /// All versions.
    pub(crate) fn versions(&self) -> Result<TimedValues<'_>, Fault> {
        let mut versions = SmallVec::new();
        let mut next = Some(self.newest);
        while let Some(place) = next {
            versions.push((place.timestamp, &self.stored[place.start..place.end]));
            next = self.after(place)?;
        }
        Ok(versions)
    }

    /// Passes the versions in `time` to `see`, at most `versions_max` of them, which is at
    /// least 1. Returns how many more versions may be needed from older packs.
    pub(crate) fn visit(
        &self,
        time: TimeRange,
        versions_max: u32,
        see: &mut impl FnMut(Version<'_>) -> ControlFlow<()>,
    ) -> Result<u32, Fault> {
        let mut left = versions_max;
        let mut next = Some(self.newest);
        while let Some(place) = next {
            let Place { timestamp, start, end, .. } = place;
            if time.contains(timestamp) {
                left -= 1;
                let seen = see(Version { timestamp, stored: &self.stored, start, end });
                if seen.is_break() || left == 0 {
                    return Ok(0);
                }
            }
            if timestamp <= time.from {
                return Ok(0);
            }
            next = self.after(place)?;
        }
        Ok(left)
    }

    fn after(&self, place: Place) -> Result<Option<Place>, Fault> {
        if place.end == self.stored.len() {
            return Ok(None);
        }
        let next = Place::at(&self.stored, place.end)?;
        // A long value is never empty: this is the stamp of the superseding version.
        if next.long && next.start == next.end {
            return Ok(None);
        }
        if next.timestamp >= place.timestamp {
            return Err(Fault::Damaged("the versions of a pack are out of order"));
        }
        Ok(Some(next))
    }
}

fn push(bytes: &mut Encoded, timestamp: Timestamp, value: &[u8], older: bool) {
    let length = if value.len() > VALUE_BYTES_MAX { 0 } else { value.len() as u64 + 1 };
    let older = if older { OLDER_BIT } else { 0 };
    let stamp = timestamp.as_u64() | length << LENGTH_SHIFT | older;
    bytes.extend_from_slice(&stamp.to_be_bytes());
    bytes.extend_from_slice(value);
}

const fn first_byte(bits: u64) -> u8 {
    bits.to_be_bytes()[0]
}

/// For fuzzers: checks that any bytes are either a pack or refused. Also checks that a pack
/// returns the versions it was built from.
///
/// # Panics
/// If one of these does not hold.
pub fn check(bytes: &[u8]) {
    let Ok(pack) = Pack::decode(Slice::new(bytes)) else { return };
    let mut seen = 0;
    let visited = pack.visit(TimeRange::ALL, u32::MAX, &mut |version| {
        assert!(version.to_bytes() == *version.value());
        seen += 1;
        ControlFlow::Continue(())
    });
    let Ok(versions) = pack.versions() else { return };
    let (count, oldest) = pack.extent().expect("it was walked over before");
    // No version is older than timestamp zero.
    let left = if oldest == Timestamp::ZERO { 0 } else { u32::MAX - seen };
    assert_eq!(visited.expect("it was walked over"), left);
    assert_eq!((count, count), (versions.len(), seen as usize));
    assert_eq!(versions.last().map(|(timestamp, _)| *timestamp), Some(oldest));
    let encoded = Pack::encode(&versions, pack.older());
    let again = Pack::decode(encoded).expect("what was built as a pack is one");
    let same = again.versions().expect("its versions are in order")[..] == versions[..];
    assert!(same, "a version did not come out again");
    assert_eq!(again.older(), pack.older());
    // The stamp behind a pack changes none of its versions.
    let by = Timestamp::MAX;
    let newest = pack.newest();
    let Ok(stamped) = again.into_superseded(by).and_then(Pack::decode) else { return };
    let same = stamped.versions().expect("its versions are in order")[..] == versions[..];
    assert!(same && stamped.newest() == newest, "the stamp became a version");
    if newest < by && !stamped.walk().expect("it was walked over").1.long {
        assert_eq!(stamped.superseded_by().expect("it is newer"), Some(by));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn ts(number: u64) -> Timestamp {
        Timestamp::new(number).unwrap()
    }

    /// Values near the longest that another version can follow.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let lengths = [0..3, 100..101, VALUE_BYTES_MAX - 1..VALUE_BYTES_MAX + 3];
        (any::<u8>(), proptest::sample::select(lengths.to_vec()).prop_flat_map(|range| range))
            .prop_map(|(byte, length)| vec![byte; length])
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in vec(any::<u8>(), 0..60)) {
            check(&bytes);
        }

        #[test]
        fn damaged_packs_parse_or_are_refused(
            times in vec(0..1u64 << 53, 1..9), at in any::<prop::sample::Index>(), bit in 0..8u32
        ) {
            let mut times = times;
            times.sort_by_key(|time| std::cmp::Reverse(*time));
            let versions: Vec<_> = times.iter().map(|time| (ts(*time), &b"value"[..])).collect();
            let mut bytes = Pack::encode(&versions, false).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            check(&bytes);
            check(&bytes[..at]);
        }

        #[test]
        fn versions_come_out_as_they_were_put_in(
            values in vec(value(), 1..12), older in any::<bool>(), versions_max in 0..9usize
        ) {
            let bounds = Bounds { versions_max, bytes_max: 300 };
            let versions: TimedValues<'_> =
                (1..100).rev().zip(&values).map(|(time, value)| (ts(time), &value[..])).collect();
            let mut seen = Vec::new();
            bounds.split(&versions, &mut |part| {
                assert!(bounds.fit(part) && !part.is_empty());
                let pack = Pack::decode(Pack::encode(part, older)).unwrap();
                assert_eq!(pack.older(), older);
                assert_eq!(pack.newest(), part[0].0);
                assert_eq!(pack.extent().unwrap(), (part.len(), part[part.len() - 1].0));
                seen.extend(pack.versions().unwrap().iter().map(|(at, v)| (*at, v.to_vec())));
            });
            let put: Vec<_> = versions.iter().map(|(at, v)| (*at, v.to_vec())).collect();
            prop_assert_eq!(seen, put);
        }

        #[test]
        fn a_newer_version_comes_before_the_others(
            lengths in vec(0..200usize, 1..20), older in any::<bool>(), versions_max in 1..9usize
        ) {
            let bounds = Bounds { versions_max, bytes_max: 512 };
            let mut put = vec![(ts(1), vec![1; lengths[0]])];
            let first = Pack::encode(&[(ts(1), &put[0].1)], older);
            let mut pack = Pack::decode(first).unwrap();
            for (time, length) in (2..).zip(&lengths[1..]) {
                let value = vec![time as u8; *length];
                if pack.has_room(bounds, pack.extent().unwrap().0, &value) {
                    pack = Pack::decode(pack.with_newer(ts(time), &value)).unwrap();
                    put.insert(0, (ts(time), value));
                }
                prop_assert_eq!(pack.older(), older);
                prop_assert!(bounds.fit(&pack.versions().unwrap()));
            }
            let versions = pack.versions().unwrap();
            let found: Vec<_> = versions.iter().map(|(at, v)| (*at, v.to_vec())).collect();
            prop_assert_eq!(found, put);
        }
    }

    #[test]
    fn a_pack_of_the_beginning_of_time_is_one() {
        check(&[0; STAMP_BYTES]);
        check(&Pack::encode(&[(ts(1), b"x"), (ts(0), b"")], true));
    }

    #[test]
    fn a_pack_of_the_history_names_what_superseded_it() {
        let versions = [(ts(5), &b"x"[..]), (ts(3), b"")];
        let pack = |by| Pack::decode(Pack::encode_old(&versions, by).unwrap()).unwrap();
        assert_eq!(pack(None).superseded_by().unwrap(), None);
        let named = pack(Some(ts(8)));
        assert_eq!(named.superseded_by().unwrap(), Some(ts(8)));
        assert_eq!(named.versions().unwrap()[..], versions);
        check(named.stored());
        assert!(pack(Some(ts(5))).superseded_by().is_err(), "it supersedes nothing");
        let long = vec![7; VALUE_BYTES_MAX + 1];
        let long = Pack::encode_old(&[(ts(5), &long)], Some(ts(8))).unwrap();
        assert_eq!(Pack::decode(long).unwrap().superseded_by().unwrap(), None, "it has no place");
    }

    #[test]
    fn versions_out_of_order_are_damage() {
        let first = (ts(5), &b"x"[..]);
        for second in [5, 6] {
            let pack = Pack::decode(Pack::encode(&[first, (ts(second), b"")], false)).unwrap();
            assert!(pack.versions().is_err() && pack.extent().is_err());
            let visited = pack.visit(TimeRange::ALL, 2, &mut |_| ControlFlow::Continue(()));
            assert!(visited.is_err());
        }
    }
}

//! Defines the requests to store, oracle and lock service, and their replies.

use std::time::Duration;

use bigtable::{
    ConditionalMutation, Page, PageLimit, Row, RowKey, RowMutation, RowRange, Selection, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};
use percolator_core::{Holder, Incarnation, Stamp};

use super::{Wire, wire_enum, wire_struct};

/// A request to the store; the first field names the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreRequest {
    Read(Bytes, RowRead),
    ReadMany(Bytes, Vec<RowRead>),
    Scan(Bytes, RowRange, Selection, PageLimit),
    Mutate(Bytes, RowMutation),
    Check(Bytes, ConditionalMutation),
    CheckMany(Bytes, Vec<ConditionalMutation>),
    Tablets(Bytes),
    RaiseFloor(Timestamp),
    /// Commits several rows in one step. The number identifies the `AtCommit` that the client
    /// left with the store, because that one cannot be encoded.
    CommitRows(u64, Timestamp, Vec<RowPart>),
}

/// A read of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowRead {
    pub(crate) row: RowKey,
    pub(crate) select: Selection,
}

/// One row of a one-step commit, with its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowPart {
    pub(crate) table: Bytes,
    pub(crate) request: ConditionalMutation,
}

/// A reply of the store: one variant for each kind of request, or an error.
#[derive(Debug, Clone)]
pub(crate) enum StoreReply {
    Row(Row),
    Rows(Vec<Result<Row, bigtable::Error>>),
    Page(Page),
    Done,
    Checked(bool),
    CheckedMany(Vec<Result<bool, bigtable::Error>>),
    Tablets(Vec<RowRange>),
    Failed(bigtable::Error),
    Committed(Timestamp),
    Rejected(u64),
    NoTimestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OracleRequest {
    Timestamp,
    Peek,
    SchemaVersion,
    RaiseSchemaVersion(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OracleReply {
    Stamp(Stamp),
    Latest(Timestamp),
    SchemaVersion(u64),
    Done,
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockRequest {
    Register(Incarnation),
    Unregister(Incarnation),
    IsAlive(Incarnation),
    TryLock(Bytes, Holder, Duration),
    Renew(Bytes, Holder, Duration),
    Unlock(Bytes, Holder),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockReply {
    Done,
    Answer(bool),
}

impl Wire for Incarnation {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        u128::take(input).map(Incarnation)
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut BytesMut) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        u64::take(input).map(Duration::from_nanos)
    }
}

wire_struct!(Holder { owner, work });
wire_struct!(Stamp { timestamp, schema_version });
wire_struct!(RowRead { row, select });
wire_struct!(RowPart { table, request });

wire_enum!(StoreRequest {
    0 => Read(table, read),
    1 => Scan(table, range, select, limit),
    2 => Mutate(table, request),
    3 => Check(table, request),
    4 => CheckMany(table, requests),
    5 => Tablets(table),
    6 => RaiseFloor(floor),
    7 => CommitRows(number, above, rows),
    8 => ReadMany(table, reads),
});

wire_enum!(StoreReply {
    0 => Row(row),
    1 => Page(page),
    2 => Done,
    3 => Checked(matched),
    4 => CheckedMany(results),
    5 => Tablets(ranges),
    6 => Failed(error),
    7 => Committed(commit_ts),
    8 => Rejected(row),
    9 => NoTimestamp,
    10 => Rows(rows),
});

wire_enum!(OracleRequest {
    0 => Timestamp,
    1 => Peek,
    2 => SchemaVersion,
    3 => RaiseSchemaVersion(version),
});

wire_enum!(OracleReply {
    0 => Stamp(stamp),
    1 => Latest(timestamp),
    2 => SchemaVersion(version),
    3 => Done,
    4 => Failed(why),
});

wire_enum!(LockRequest {
    0 => Register(owner),
    1 => Unregister(owner),
    2 => IsAlive(owner),
    3 => TryLock(name, holder, lifetime),
    4 => Unlock(name, holder),
    5 => Renew(name, holder, lifetime),
});

wire_enum!(LockReply { 0 => Done, 1 => Answer(yes) });

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_asked_of_the_services_arrives(
            name in proptest::collection::vec(any::<u8>(), 0..20),
            owner in any::<u128>(),
            number in 0..=Timestamp::MAX.as_u64(),
        ) {
            let (name, owner) = (Bytes::from(name), Incarnation(owner));
            let holder = Holder { owner, work: number };
            let lock = LockRequest::TryLock(name.clone(), holder, Duration::from_nanos(number));
            prop_assert_eq!(decode(encode(&lock)), Some(lock));
            let renew = LockRequest::Renew(name.clone(), holder, Duration::from_nanos(number));
            prop_assert_eq!(decode(encode(&renew)), Some(renew));
            let raise = OracleRequest::RaiseSchemaVersion(number);
            prop_assert_eq!(decode(encode(&raise)), Some(raise));
            let timestamp = Timestamp::new(number).unwrap();
            let stamp = OracleReply::Stamp(Stamp { timestamp, schema_version: 3 });
            prop_assert_eq!(decode(encode(&stamp)), Some(stamp));
            let read = RowRead { row: RowKey::from("r"), select: Selection::default() };
            let reads = StoreRequest::ReadMany(name.clone(), vec![read.clone(); 2]);
            prop_assert_eq!(decode(encode(&reads)), Some(reads));
            let read = StoreRequest::Read(name, read);
            prop_assert_eq!(decode(encode(&read)), Some(read));
            prop_assert_eq!(decode(encode(&LockReply::Answer(true))), Some(LockReply::Answer(true)));
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(
            input in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let input = Bytes::from(input);
            let _ = decode::<StoreRequest>(input.clone());
            let _ = decode::<StoreReply>(input.clone());
            let _ = decode::<OracleReply>(input.clone());
            let _ = decode::<LockRequest>(input);
        }
    }
}

//! Defines the requests to store, oracle and lock service, and their replies.

use std::time::Duration;

use bigtable::{
    ConditionalMutation, Page, PageLimit, Row, RowKey, RowMutation, RowRange, Selection, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};
use percolator_core::{Holder, Incarnation, Stamp};

use super::{Wire, wire_as, wire_enum, wire_struct};

/// Declares requests and replies, and encodes them.
macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $tag:literal => $variant:ident $(($($field:ident: $type:ty),*))?,)*
    })*) => {$(
        $(#[$meta])*
        pub(crate) enum $name { $($(#[$doc])* $variant $(($($type),*))?,)* }

        wire_enum!($name { $($tag => $variant $(($($field),*))?),* });
    )*};
}

messages! {
    /// A request to the store; the first field names the table.
    #[derive(Debug, Clone, PartialEq, Eq)]
    StoreRequest {
        0 => Read(table: Bytes, read: RowRead),
        1 => Scan(table: Bytes, range: RowRange, select: Selection, limit: PageLimit),
        2 => Mutate(table: Bytes, request: RowMutation),
        3 => Check(table: Bytes, request: ConditionalMutation),
        4 => CheckMany(table: Bytes, requests: Vec<ConditionalMutation>),
        5 => Tablets(table: Bytes),
        6 => RaiseFloor(floor: Timestamp),
        /// Commits several rows in one step. The number identifies the `AtCommit` that the client
        /// left with the store, because that one cannot be encoded.
        7 => CommitRows(number: u64, above: Timestamp, rows: Vec<RowPart>),
        8 => ReadMany(table: Bytes, reads: Vec<RowRead>),
    }

    /// A reply of the store: one variant for each kind of request, or an error.
    #[derive(Debug, Clone)]
    StoreReply {
        0 => Row(row: Row),
        1 => Page(page: Page),
        2 => Done,
        3 => Checked(matched: bool),
        4 => CheckedMany(results: Vec<Result<bool, bigtable::Error>>),
        5 => Tablets(ranges: Vec<RowRange>),
        6 => Failed(error: bigtable::Error),
        7 => Committed(commit_ts: Timestamp),
        8 => Rejected(row: u64),
        9 => NoTimestamp,
        10 => Rows(rows: Vec<Result<Row, bigtable::Error>>),
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    OracleRequest {
        0 => Timestamp,
        1 => Peek,
        2 => SchemaVersion,
        3 => RaiseSchemaVersion(version: u64),
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    OracleReply {
        0 => Stamp(stamp: Stamp),
        1 => Latest(timestamp: Timestamp),
        2 => SchemaVersion(version: u64),
        3 => Done,
        4 => Failed(why: String),
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    LockRequest {
        0 => Register(owner: Incarnation),
        1 => Unregister(owner: Incarnation),
        2 => IsAlive(owner: Incarnation),
        3 => TryLock(name: Bytes, holder: Holder, lifetime: Duration),
        4 => Unlock(name: Bytes, holder: Holder),
        5 => Renew(name: Bytes, holder: Holder, lifetime: Duration),
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    LockReply {
        0 => Done,
        1 => Answer(yes: bool),
    }
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

wire_as! {
    Incarnation as u128: |it| it.0, |number| Some(Incarnation(number));
    Duration as u64: |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX), |nanos| {
        Some(Duration::from_nanos(nanos))
    };
}

wire_struct! {
    Holder { owner, work }
    Stamp { timestamp, schema_version }
    RowRead { row, select }
    RowPart { table, request }
}

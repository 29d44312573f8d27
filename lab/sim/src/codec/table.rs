//! Encodes and decodes the store's own types: selections, mutations, rows, pages and errors.

use std::ops::Bound;

use bigtable::{
    Cell, ColumnSelect, ConditionalMutation, Error, Family, Mutation, Page, PageLimit, Probe,
    Qualifiers, Row, RowKey, RowMutation, RowRange, Selection, Syncing, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use super::{Wire, wire_as, wire_enum, wire_struct};

/// Known families are sent as a number, so that a name takes one byte and decoding allocates
/// nothing.
const FAMILIES: [&str; 7] = ["data", "lock", "write", "rollback", "notify", "failed", "system"];
const NAMED: u8 = u8::MAX;

impl Wire for Family {
    fn put(&self, out: &mut BytesMut) {
        match FAMILIES.iter().position(|name| *name == self.as_str()) {
            Some(index) => (index as u8).put(out),
            None => {
                NAMED.put(out);
                self.as_str().to_owned().put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        match u8::take(input)? {
            NAMED => String::take(input).map(Family::from),
            index => FAMILIES.get(usize::from(index)).map(|name| Family::from_static(name)),
        }
    }
}

wire_as! {
    Timestamp as u64: |it| it.as_u64(), Timestamp::new;
    RowKey as Bytes: |it| it.to_bytes(), |bytes| Some(RowKey::from(bytes));
}

/// An end of a range.
type Edge = Bound<RowKey>;

wire_enum!(Edge { 0 => Unbounded, 1 => Included(key), 2 => Excluded(key) });

wire_enum!(Qualifiers { 0 => All, 1 => Is(qualifier) });

wire_enum!(Syncing { 0 => AsStore, 1 => Always, 2 => MayBeLost });

wire_enum!(Mutation {
    0 => Set { family, qualifier, timestamp, value },
    1 => Delete { family, qualifier, time },
});

wire_struct! {
    PageLimit { rows_max, bytes_max }
    TimeRange { from, to }
    ColumnSelect { family, qualifiers, time, versions_max }
    Selection { columns, above }
    RowRange { start, end }
    RowMutation { row, mutations, sync }
    Probe { family, qualifiers, time, value_prefix }
    ConditionalMutation { row, predicate, then, otherwise, above, sync }
    Cell { family, qualifier, timestamp, value }
    Row { key, cells }
    Page { rows, resume }
}

// A client cannot act on details of a server's files, so those errors arrive as `Unavailable`.
wire_enum!(Error {
    0 => TooOld { asked, floor },
    1 => Overloaded { group, cells_max },
    2 => Unavailable { why },
    3 => Unknown { why },
    4 => InvalidRequest(what),
    else other => Error::Unavailable { why: other.to_string() },
});

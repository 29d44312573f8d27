//! Encodes and decodes the store's own types: selections, mutations, rows, pages and errors.

use std::ops::Bound;

use bigtable::{
    Cell, ColumnSelect, ConditionalMutation, Error, Family, Mutation, Page, PageLimit, Probe,
    Qualifiers, Row, RowKey, RowMutation, RowRange, Selection, Syncing, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use super::{Wire, wire_enum, wire_struct};

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

impl Wire for Timestamp {
    fn put(&self, out: &mut BytesMut) {
        self.as_u64().put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        Timestamp::new(u64::take(input)?)
    }
}

impl Wire for RowKey {
    fn put(&self, out: &mut BytesMut) {
        self.to_bytes().put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        <Bytes as Wire>::take(input).map(RowKey::from)
    }
}

impl Wire for Bound<RowKey> {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Bound::Unbounded => out.put_u8(0),
            Bound::Included(key) => {
                out.put_u8(1);
                key.put(out);
            }
            Bound::Excluded(key) => {
                out.put_u8(2);
                key.put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        match u8::take(input)? {
            0 => Some(Bound::Unbounded),
            1 => RowKey::take(input).map(Bound::Included),
            2 => RowKey::take(input).map(Bound::Excluded),
            _ => None,
        }
    }
}

impl Wire for PageLimit {
    fn put(&self, out: &mut BytesMut) {
        (self.rows_max as u64).put(out);
        (self.bytes_max as u64).put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        let rows_max = usize::try_from(u64::take(input)?).ok()?;
        let bytes_max = usize::try_from(u64::take(input)?).ok()?;
        Some(PageLimit { rows_max, bytes_max })
    }
}

wire_enum!(Qualifiers { 0 => All, 1 => Is(qualifier) });

wire_enum!(Syncing { 0 => AsStore, 1 => Always, 2 => MayBeLost });

wire_enum!(Mutation {
    0 => Set { family, qualifier, timestamp, value },
    1 => Delete { family, qualifier, time },
});

wire_struct! {
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

impl Wire for Error {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Error::TooOld { asked, floor } => {
                out.put_u8(0);
                asked.put(out);
                floor.put(out);
            }
            Error::Overloaded { group, cells_max } => {
                out.put_u8(1);
                group.put(out);
                (*cells_max as u64).put(out);
            }
            Error::Unavailable { why } => {
                out.put_u8(2);
                why.put(out);
            }
            Error::Unknown { why } => {
                out.put_u8(3);
                why.put(out);
            }
            Error::InvalidRequest(what) => {
                out.put_u8(4);
                what.put(out);
            }
            // A client cannot act on details of a server's files, so those errors arrive as
            // `Unavailable`.
            other => {
                out.put_u8(2);
                other.to_string().put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        Some(match u8::take(input)? {
            0 => Error::TooOld { asked: Wire::take(input)?, floor: Wire::take(input)? },
            1 => {
                let group = String::take(input)?;
                let cells_max = usize::try_from(u64::take(input)?).ok()?;
                Error::Overloaded { group, cells_max }
            }
            2 => Error::Unavailable { why: Wire::take(input)? },
            3 => Error::Unknown { why: Wire::take(input)? },
            4 => Error::InvalidRequest(Wire::take(input)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn bytes() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..12).prop_map(Bytes::from)
    }

    fn timestamp() -> impl Strategy<Value = Timestamp> {
        (0..=Timestamp::MAX.as_u64()).prop_map(|n| Timestamp::new(n).unwrap())
    }

    fn time() -> impl Strategy<Value = TimeRange> {
        (timestamp(), timestamp()).prop_map(|(from, to)| TimeRange { from, to })
    }

    fn family() -> impl Strategy<Value = Family> {
        prop_oneof![
            (0..FAMILIES.len()).prop_map(|n| Family::from_static(FAMILIES[n])),
            "[a-z]{1,9}".prop_map(Family::from),
        ]
    }

    fn bound() -> impl Strategy<Value = Bound<RowKey>> {
        prop_oneof![
            Just(Bound::Unbounded),
            bytes().prop_map(|key| Bound::Included(key.into())),
            bytes().prop_map(|key| Bound::Excluded(key.into())),
        ]
    }

    fn mutation() -> impl Strategy<Value = Mutation> {
        let set = (family(), bytes(), timestamp(), bytes());
        let delete = (family(), bytes(), time());
        prop_oneof![
            set.prop_map(|(family, qualifier, timestamp, value)| Mutation::Set {
                family,
                qualifier,
                timestamp,
                value
            }),
            delete.prop_map(|(family, qualifier, time)| Mutation::Delete {
                family,
                qualifier,
                time
            }),
        ]
    }

    fn syncing() -> impl Strategy<Value = Syncing> {
        select(vec![Syncing::AsStore, Syncing::Always, Syncing::MayBeLost])
    }

    fn conditional() -> impl Strategy<Value = ConditionalMutation> {
        let qualifiers =
            option::of(bytes()).prop_map(|named| named.map_or(Qualifiers::All, Qualifiers::Is));
        let probe = (family(), qualifiers, time(), option::of(bytes())).prop_map(
            |(family, qualifiers, time, value_prefix)| Probe {
                family,
                qualifiers,
                time,
                value_prefix,
            },
        );
        let lists = (vec(probe, 0..4), vec(mutation(), 0..4), vec(mutation(), 0..4));
        (bytes(), lists, option::of(timestamp()), syncing()).prop_map(
            |(row, (predicate, then, otherwise), above, sync)| ConditionalMutation {
                row: row.into(),
                predicate,
                then,
                otherwise,
                above,
                sync,
            },
        )
    }

    fn selection() -> impl Strategy<Value = Selection> {
        let column = (family(), option::of(bytes()), time(), any::<u32>()).prop_map(
            |(family, qualifier, time, versions_max)| ColumnSelect {
                family,
                qualifiers: qualifier.map_or(Qualifiers::All, Qualifiers::Is),
                time,
                versions_max,
            },
        );
        (vec(column, 0..4), option::of(timestamp()))
            .prop_map(|(columns, above)| Selection { columns, above })
    }

    fn page() -> impl Strategy<Value = Page> {
        let cell = (family(), bytes(), timestamp(), bytes()).prop_map(
            |(family, qualifier, timestamp, value)| Cell { family, qualifier, timestamp, value },
        );
        let row =
            (bytes(), vec(cell, 0..4)).prop_map(|(key, cells)| Row { key: key.into(), cells });
        let range = (bound(), bound()).prop_map(|(start, end)| RowRange { start, end });
        (vec(row, 0..4), option::of(range)).prop_map(|(rows, resume)| Page { rows, resume })
    }

    proptest! {
        #[test]
        fn what_is_sent_arrives(
            request in conditional(), select in selection(), page in page(), rest in bytes(),
        ) {
            prop_assert_eq!(decode(encode(&request)), Some(request.clone()));
            prop_assert_eq!(decode(encode(&select)), Some(select));
            prop_assert_eq!(decode(encode(&page)), Some(page));
            // The encoding with any byte appended does not decode.
            let mut longer = encode(&request).to_vec();
            longer.extend_from_slice(&rest);
            let decoded = decode::<ConditionalMutation>(Bytes::from(longer));
            prop_assert_eq!(decoded.is_some(), rest.is_empty());
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(input in vec(any::<u8>(), 0..80)) {
            let input = Bytes::from(input);
            let _ = decode::<ConditionalMutation>(input.clone());
            let _ = decode::<Result<Page, Error>>(input.clone());
            let _ = decode::<Selection>(input);
        }
    }

    #[test]
    fn errors_arrive_as_what_they_are() {
        let ts = |n| Timestamp::new(n).unwrap();
        let errors = [
            Error::TooOld { asked: ts(1), floor: ts(2) },
            Error::Overloaded { group: "lock".into(), cells_max: 7 },
            Error::Unavailable { why: "down".into() },
            Error::Unknown { why: "lost".into() },
            Error::InvalidRequest("no".into()),
        ];
        for error in errors {
            let arrived: Error = decode(encode(&error)).unwrap();
            assert_eq!(format!("{arrived:?}"), format!("{error:?}"));
        }
    }
}

//! The oracle's record in the store: who serves, and up to where timestamps are reserved.
//!
//! ```text
//!   epoch | limit | schema version | holder            an oracle that is alone
//!   ...   | ...   | ...            | ... | attempt | resigned | address      one that leads
//! ```
//!
//! Invariant: no two writes of one holder that leads have the same bytes, whatever became of the
//! first. So a record that is seen unchanged was not renewed in between, and a lease that began with a
//! later write has not begun yet (H41).

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Reader, put_bytes16};
use crate::layout::SYSTEM;
use crate::lock::Incarnation;
use crate::{Error, Result};

const ROW: &str = "oracle";
const QUALIFIER: &str = "window";

/// Longest address that a record holds, in bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 255;

/// The record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: u64,
    /// Everything below it may have been handed out.
    pub(super) limit: u64,
    pub(super) schema_version: u64,
    pub(super) holder: Incarnation,
    /// `None` when no other process can serve the store.
    pub(super) lead: Option<Lead>,
}

/// What an oracle that leads adds to its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lead {
    /// Differs in each attempt to write the record.
    pub(super) attempt: u64,
    /// Whether the holder has stopped serving.
    pub(super) resigned: bool,
    /// Where the holder can be reached; may be empty.
    pub(super) address: String,
}

impl Record {
    /// Whether its holder has said that it serves no more.
    pub(super) fn resigned(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.resigned)
    }

    /// Where its holder can be reached, if it says so.
    pub(super) fn address(&self) -> Option<String> {
        let lead = self.lead.as_ref().filter(|lead| !lead.resigned && !lead.address.is_empty());
        lead.map(|lead| lead.address.clone())
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_u64(self.epoch);
        out.put_u64(self.limit);
        out.put_u64(self.schema_version);
        out.put_u128(self.holder.0);
        if let Some(lead) = &self.lead {
            out.put_u64(lead.attempt);
            out.put_u8(u8::from(lead.resigned));
            put_bytes16(&mut out, lead.address.as_bytes());
        }
        out.freeze()
    }

    fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            let (epoch, limit, schema_version) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let holder = Incarnation(reader.u128()?);
            let lead = if reader.is_empty() {
                None
            } else {
                let (attempt, resigned) = (reader.u64()?, reader.u8()? != 0);
                Some(Lead { attempt, resigned, address: reader.string16()? })
            };
            Some(Record { epoch, limit, schema_version, holder, lead })
        };
        let possible = |record: &Record| (1..=Timestamp::MAX.as_u64()).contains(&record.limit);
        parse()
            .filter(possible)
            .ok_or_else(|| Error::Corrupt { record: "oracle", bytes: value.clone() })
    }
}

/// The stored record.
pub(super) async fn read(table: &dyn Table) -> Result<Option<Record>> {
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let row = table.read_row(&RowKey::from(ROW), &select).await?;
    row.newest(&SYSTEM, QUALIFIER.as_bytes()).map(|cell| Record::decode(&cell.value)).transpose()
}

/// Replaces the stored record `old` by `new`; `false` when another one is stored. A lost reply is settled
/// by reading: the record names its holder, so a write of one's own is recognised (H43).
pub(super) async fn replace(table: &dyn Table, old: Option<&Record>, new: &Record) -> Result<bool> {
    let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
    let write = vec![Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, new.encode())];
    let request = ConditionalMutation { sync: true, ..ConditionalMutation::new(ROW) };
    let (request, wanted) = match old {
        Some(old) => {
            let predicate = vec![probe.with_value_prefix(old.encode())];
            (ConditionalMutation { predicate, then: write, ..request }, true)
        }
        None => {
            (ConditionalMutation { predicate: vec![probe], otherwise: write, ..request }, false)
        }
    };
    match table.check_and_mutate_row(request).await {
        Ok(matched) if matched == wanted => Ok(true),
        Ok(_) => Ok(read(table).await?.as_ref() == Some(new)),
        Err(bigtable::Error::Unknown { .. }) if read(table).await?.as_ref() == Some(new) => {
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lead: Option<Lead>) -> Record {
        Record { epoch: 3, limit: 77, schema_version: 2, holder: Incarnation(9), lead }
    }

    #[test]
    fn records_with_and_without_a_leader_round_trip() {
        let lead = Lead { attempt: 4, resigned: true, address: "10.0.0.1:7070".to_owned() };
        for record in [record(None), record(Some(lead))] {
            assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        }
    }

    #[test]
    fn what_was_cut_off_does_not_decode() {
        let lead = Lead { attempt: 4, resigned: false, address: "a".to_owned() };
        let whole = record(Some(lead)).encode();
        for len in (0..whole.len()).filter(|len| *len != 40) {
            assert!(Record::decode(&whole.slice(..len)).is_err(), "{len}");
        }
    }

    #[test]
    fn who_resigned_has_no_address() {
        let lead = |resigned| Some(Lead { attempt: 1, resigned, address: "a:1".to_owned() });
        assert_eq!(record(lead(false)).address().as_deref(), Some("a:1"));
        assert_eq!(record(lead(true)).address(), None);
        assert_eq!(record(None).address(), None);
    }
}

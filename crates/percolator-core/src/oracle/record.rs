//! Reads and writes the oracle's record in the store: which oracle serves, and up to where
//! timestamps are reserved.
//!
//! ```text
//! epoch | limit | schema version | holder            an oracle that serves alone
//! ...   | ...   | ...            | ... | attempt | resigned | address      one that leads
//! ```
//!
//! Invariant: no two writes of one leading holder have the same bytes, whatever the outcome of
//! the first. So a record that is seen unchanged was not renewed in between, and no lease has
//! begun with a later write (H41).
//!
//! A write that only renews a lease may be lost if the store's machine loses power
//! ([`Syncing::MayBeLost`]). The store then shows an earlier record of the same holder. A
//! standby that saw that earlier record unchanged for long might take over while the holder's
//! lease still holds. Therefore a store that loses such a write answers no request for the
//! length of a lease after the machine has started again.
//!
//! Every other write is synced first. A window that went back would repeat timestamps, and a
//! schema version that went back would hide changes from new observers (H71).

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Syncing, Table, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::mutants::{self, off};
use crate::records::branch;
use crate::records::codec::{Reader, put_bytes16};
use crate::records::layout::SYSTEM;
use crate::records::lock::Incarnation;
use crate::{Error, Result};

const ROW: &str = "oracle";
const QUALIFIER: &str = "window";
/// The record's only version. A store finds one exact version without reading earlier writes.
/// For a range of versions it would step over each earlier renewal.
const VERSION: Timestamp = Timestamp::ZERO;
const ONE_CELL: TimeRange = TimeRange { from: VERSION, to: VERSION };

/// The longest address that a record can hold, in bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 255;

/// The oracle's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: u64,
    /// Every timestamp below the limit may have been issued.
    pub(super) limit: u64,
    pub(super) schema_version: u64,
    pub(super) holder: Incarnation,
    /// `None` when no other process can serve the store.
    pub(super) lead: Option<Lead>,
}

/// The part of the record that only a leading oracle writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lead {
    /// Differs in each attempt to write the record.
    pub(super) attempt: u64,
    /// Whether the holder has stopped serving.
    pub(super) resigned: bool,
    /// The address at which clients reach the holder. May be empty.
    pub(super) address: String,
}

impl Record {
    /// Whether the holder has declared that it no longer serves.
    pub(super) fn resigned(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.resigned)
    }

    /// The holder's address, if it serves and has given one.
    pub(super) fn address(&self) -> Option<String> {
        let lead = self.lead.as_ref().filter(|lead| !lead.resigned && !lead.address.is_empty());
        lead.map(|lead| lead.address.clone())
    }

    /// Whether replacing `old` by this record only renews a lease.
    fn only_renews(&self, old: &Record) -> bool {
        let without_attempt = |record: &Record| {
            let lead = record.lead.as_ref().map(|lead| Lead { attempt: 0, ..lead.clone() });
            Record { lead, ..record.clone() }
        };
        let window = off(mutants::WINDOW_MAY_BE_LOST);
        let limit = if window { self.limit } else { old.limit };
        without_attempt(self) == without_attempt(&Record { limit, ..old.clone() })
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

/// Reads the stored record.
pub(super) async fn read(table: &dyn Table) -> Result<Option<Record>> {
    let select = Selection::default().column(SYSTEM, QUALIFIER, ONE_CELL, 1);
    let row = table.read_row(&RowKey::from(ROW), &select).await?;
    row.newest(&SYSTEM, QUALIFIER.as_bytes()).map(|cell| Record::decode(&cell.value)).transpose()
}

/// Replaces the stored record `old` by `new`. Returns `false` if another record is stored.
/// After a lost reply the record is read: it names its holder, so an own write is recognised
/// (H43).
pub(super) async fn replace(table: &dyn Table, old: Option<&Record>, new: &Record) -> Result<bool> {
    let probe = Probe::new(SYSTEM, QUALIFIER, ONE_CELL);
    let write = vec![Mutation::set(SYSTEM, QUALIFIER, VERSION, new.encode())];
    let sync = match old {
        Some(old) if new.only_renews(old) => Syncing::MayBeLost,
        _ => Syncing::Always,
    };
    let request = ConditionalMutation { sync, ..ConditionalMutation::new(ROW) };
    match branch::replace(table, request, probe, old.map(Record::encode), write).await {
        Ok(true) => Ok(true),
        Ok(false) => Ok(read(table).await?.as_ref() == Some(new)),
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
    fn h71_nothing_but_the_renewal_of_a_lease_may_be_lost() {
        mutants::switch_off_named_mutant();
        let lead = |attempt| Lead { attempt, resigned: false, address: "a:1".to_owned() };
        let old = record(Some(lead(4)));
        let renewed = Record { lead: Some(lead(5)), ..old.clone() };
        assert!(renewed.only_renews(&old));
        let resigned = Some(Lead { resigned: true, ..lead(5) });
        let moved = Some(Lead { address: "b:1".to_owned(), ..lead(5) });
        let others = [
            Record { limit: old.limit + 1, ..renewed.clone() },
            Record { epoch: old.epoch + 1, ..renewed.clone() },
            Record { schema_version: old.schema_version + 1, ..renewed.clone() },
            Record { holder: Incarnation(10), ..renewed.clone() },
            Record { lead: resigned, ..renewed.clone() },
            Record { lead: moved, ..renewed.clone() },
            Record { lead: None, ..renewed },
        ];
        for other in others {
            assert!(!other.only_renews(&old), "{other:?}");
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

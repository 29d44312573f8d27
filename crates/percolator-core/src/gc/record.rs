//! Reads and writes garbage collection's records, which are named cells in one row of the
//! system table.
//!
//! Every write is conditional on the value that was read, so no client overwrites another's
//! record unseen.

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};
use bytes::Bytes;

use crate::records::branch;
use crate::records::codec::Reader;
use crate::records::layout::SYSTEM;
use crate::{Error, Result};

pub(super) const ROW: &str = "gc";
/// How often a write is tried while other clients write the same record.
const WRITES_MAX: usize = 8;

/// Reads a timestamp that is stored under a name. Returns zero if there is none.
pub(super) async fn read_record(system: &dyn Table, name: &'static str) -> Result<Timestamp> {
    stored_timestamp(read(system, name).await?)
}

fn stored_timestamp(value: Option<Bytes>) -> Result<Timestamp> {
    let Some(value) = value else { return Ok(Timestamp::ZERO) };
    let ts = Reader::new(&value).u64().and_then(Timestamp::new);
    ts.ok_or_else(|| Error::Corrupt { record: "gc", bytes: value.clone() })
}

/// Stores a timestamp under a name, unless a higher one is stored already. So it never goes
/// back.
pub(super) async fn raise_record(
    system: &dyn Table,
    name: &'static str,
    ts: Timestamp,
) -> Result<()> {
    for _ in 0..WRITES_MAX {
        let old = read(system, name).await?;
        if stored_timestamp(old.clone())? >= ts {
            return Ok(());
        }
        let new = Bytes::copy_from_slice(&ts.as_u64().to_be_bytes());
        if replace(system, name, &old.unwrap_or_default(), new).await? {
            return Ok(());
        }
    }
    let why = format!("other clients kept changing the record of the {name}");
    Err(Error::Store(bigtable::Error::Unavailable { why }))
}

pub(super) async fn read(system: &dyn Table, qualifier: &'static str) -> Result<Option<Bytes>> {
    let select = Selection::default().column(SYSTEM, qualifier, TimeRange::ALL, 1);
    let row = system.read_row(&RowKey::from(ROW), &select).await?;
    Ok(row.cells.first().map(|cell| cell.value.clone()))
}

/// Replaces a stored value; an empty `old` means that there is none. Returns `false` if
/// another value is stored.
pub(super) async fn replace(
    system: &dyn Table,
    qualifier: &'static str,
    old: &Bytes,
    new: Bytes,
) -> Result<bool> {
    let probe = Probe::new(SYSTEM, qualifier, TimeRange::ALL);
    let write = vec![Mutation::set(SYSTEM, qualifier, Timestamp::ZERO, new)];
    let old = (!old.is_empty()).then(|| old.clone());
    Ok(branch::replace(system, ConditionalMutation::new(ROW), probe, old, write).await?)
}

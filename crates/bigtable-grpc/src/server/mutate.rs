//! Implements MutateRow and MutateRows, by translating mutations of the API into edits of the
//! engine.
//!
//! The server checks the mutations of a row completely before it applies any, so that a failed
//! request changes nothing.

use std::collections::BTreeSet;
use std::time::SystemTime;

use bigtable::{Bytes, Family, Mutation, Row, Selection, Syncing, TimeRange, Timestamp};
use bigtable_fjall::RowEdit;
use tonic::{Code, Status};

use super::deadline::Deadline;
use super::schema::{FamilyRecord, Schema};
use super::status::of_engine;
use super::tables::Tables;
use super::{layout, limits};
use crate::proto::data::mutate_rows_response::Entry;
use crate::proto::data::mutation::Mutation as Wire;
use crate::proto::data::{
    MutateRowRequest, MutateRowsRequest, TimestampRange, mutate_rows_request,
};
use crate::proto::{data, rpc};
use crate::time;

/// The time by which a client asks for the server's time.
const SERVER_TIME: i64 = -1;

/// The current time, as a cell's time.
pub(crate) fn now() -> Timestamp {
    // A clock before 1970 counts as 1970.
    time::now(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// The checked mutations of one row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes(Vec<Change>);

#[derive(Debug, Clone)]
enum Change {
    /// A mutation that needs no read.
    Blind(Mutation),
    /// Deletes one family of the API, by its number, in the engine's family.
    DeleteFamily(Family, u32),
    /// Deletes the whole row.
    DeleteRow,
}

impl Changes {
    /// Checks the mutations of one request against the table's families.
    pub(crate) fn new(schema: &Schema, mutations: &[data::Mutation]) -> Result<Self, Status> {
        let now = now();
        mutations
            .iter()
            .map(|mutation| change(schema, mutation, now))
            .collect::<Result<_, _>>()
            .map(Changes)
    }

    /// Selects the part of the row that the changes depend on.
    pub(crate) fn select(&self) -> Selection {
        let blind = self.0.iter().all(|change| matches!(change, Change::Blind(_)));
        if blind { Selection::default() } else { layout::everything() }
    }

    /// Computes the engine's mutations for a row. A deletion also covers cells that an earlier
    /// mutation of the same request set.
    pub(crate) fn on(&self, row: &Row) -> Vec<Mutation> {
        let mut there: BTreeSet<(&Family, &Bytes, Timestamp)> = BTreeSet::new();
        there.extend(row.cells.iter().map(|c| (&c.family, &c.qualifier, c.timestamp)));
        let mut mutations = Vec::with_capacity(self.0.len());
        for change in &self.0 {
            match change {
                Change::Blind(mutation) => {
                    if let Mutation::Set { family, qualifier, timestamp, .. } = mutation {
                        there.insert((family, qualifier, *timestamp));
                    }
                    mutations.push(mutation.clone());
                }
                Change::DeleteFamily(engine, number) => {
                    let of_family = |(family, qualifier, _): &(&Family, &Bytes, Timestamp)| {
                        let split = layout::split_qualifier(qualifier);
                        *family == engine && split.is_some_and(|(n, _)| n == *number)
                    };
                    delete(&mut there, of_family, &mut mutations);
                }
                Change::DeleteRow => delete(&mut there, |_| true, &mut mutations),
            }
        }
        mutations
    }

    /// Turns the changes into an edit of a row.
    pub(crate) fn edit(self, row: &Bytes) -> RowEdit {
        let bytes = self.bytes();
        RowEdit::new(row.clone(), self.select(), move |row| self.on(&row)).holding(bytes)
    }

    /// Bytes of the names and values in the changes.
    pub(crate) fn bytes(&self) -> usize {
        let of = |change: &Change| match change {
            Change::Blind(Mutation::Set { qualifier, value, .. }) => qualifier.len() + value.len(),
            Change::Blind(Mutation::Delete { qualifier, .. }) => qualifier.len(),
            Change::DeleteFamily(..) | Change::DeleteRow => 0,
        };
        self.0.iter().map(of).sum()
    }
}

/// Deletes the cells that `goes` accepts, and removes them from `there`.
fn delete<'a>(
    there: &mut BTreeSet<(&'a Family, &'a Bytes, Timestamp)>,
    goes: impl Fn(&(&'a Family, &'a Bytes, Timestamp)) -> bool,
    mutations: &mut Vec<Mutation>,
) {
    let mut whole = None;
    there.retain(|cell| {
        if !goes(cell) {
            return true;
        }
        let (family, qualifier, timestamp) = *cell;
        let mut time = TimeRange::at(timestamp);
        if layout::deletes_whole_columns(family) {
            if whole.replace((family, qualifier)) == Some((family, qualifier)) {
                return false;
            }
            time = TimeRange::ALL;
        }
        mutations.push(Mutation::delete(family.clone(), qualifier.clone(), time));
        false
    });
}

/// Finds the family of a mutation.
pub(crate) fn family<'a>(schema: &'a Schema, name: &str) -> Result<&'a FamilyRecord, Status> {
    schema.family(name).ok_or_else(|| {
        Status::not_found(format!("table {} has no family {name:?}", schema.record.name))
    })
}

fn change(schema: &Schema, mutation: &data::Mutation, now: Timestamp) -> Result<Change, Status> {
    let missing = || Status::invalid_argument("a mutation has no kind");
    match mutation.mutation.as_ref().ok_or_else(missing)? {
        Wire::SetCell(set) => {
            let family = family(schema, &set.family_name)?;
            limits::check_qualifier(&set.column_qualifier)?;
            limits::check_value(&set.value)?;
            let timestamp = match set.timestamp_micros {
                SERVER_TIME => now,
                micros => time::timestamp(micros).ok_or_else(|| bad_time(micros))?,
            };
            let qualifier = layout::engine_qualifier(family, &set.column_qualifier);
            let engine = layout::engine_family(&family.name);
            Ok(Change::Blind(Mutation::set(engine, qualifier, timestamp, set.value.clone())))
        }
        Wire::DeleteFromColumn(delete) => {
            let family = family(schema, &delete.family_name)?;
            limits::check_qualifier(&delete.column_qualifier)?;
            let time = delete_times(delete.time_range.as_ref())?;
            let qualifier = layout::engine_qualifier(family, &delete.column_qualifier);
            let engine = layout::engine_family(&family.name);
            Ok(Change::Blind(Mutation::delete(engine, qualifier, time)))
        }
        Wire::DeleteFromFamily(delete) => {
            let family = family(schema, &delete.family_name)?;
            Ok(Change::DeleteFamily(layout::engine_family(&family.name), family.number))
        }
        Wire::DeleteFromRow(_) => Ok(Change::DeleteRow),
        Wire::AddToCell(_) | Wire::MergeToCell(_) => Err(Status::unimplemented(
            "aggregate families are not supported: use ReadModifyWriteRow to count",
        )),
    }
}

fn bad_time(micros: i64) -> Status {
    Status::invalid_argument(format!(
        "timestamp {micros} is not a multiple of 1000 between 0 and {}, nor -1 for the server's time",
        time::MICROS_MAX
    ))
}

fn delete_times(range: Option<&TimestampRange>) -> Result<TimeRange, Status> {
    let Some(range) = range else { return Ok(TimeRange::ALL) };
    let (start, end) = (range.start_timestamp_micros, range.end_timestamp_micros);
    let millis = |micros: i64| micros >= 0 && micros % 1000 == 0;
    if !millis(start) || !millis(end) {
        return Err(Status::invalid_argument(format!(
            "the bounds of the time range {start}..{end} are not multiples of 1000 from 0 on"
        )));
    }
    if end != 0 && start >= end {
        return Err(Status::invalid_argument(format!(
            "the time range {start}..{end} ends before it starts"
        )));
    }
    Ok(time::range(start, end))
}

/// Answers MutateRow.
pub(crate) async fn row(
    tables: &Tables,
    request: MutateRowRequest,
    deadline: Deadline,
    sync: Syncing,
) -> Result<(), Status> {
    let table = tables.table(&request.table_name).await?;
    limits::check_row_key(&request.row_key)?;
    limits::check_mutations(request.mutations.len())?;
    let held = table.hold_schema().await?;
    let changes = Changes::new(&held, &request.mutations)?;
    let edit = deadline.of_edit(changes.edit(&request.row_key));
    table.engine.edit_row(edit.sync(sync)).await.map_err(of_engine)
}

/// Answers MutateRows: each entry has its own outcome.
pub(crate) async fn rows(
    tables: &Tables,
    request: MutateRowsRequest,
    deadline: Deadline,
) -> Result<Vec<Entry>, Status> {
    let table = tables.table(&request.table_name).await?;
    for entry in &request.entries {
        limits::check_mutations(entry.mutations.len())?;
    }
    limits::check_mutations(request.entries.iter().map(|entry| entry.mutations.len()).sum())?;
    let held = table.hold_schema().await?;
    let check = |entry: &mutate_rows_request::Entry| {
        limits::check_row_key(&entry.row_key)?;
        Ok::<_, Status>(Changes::new(&held, &entry.mutations)?.edit(&entry.row_key))
    };
    let mut outcomes = Vec::with_capacity(request.entries.len());
    let mut edits = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        outcomes.push(match check(entry) {
            Ok(edit) => {
                edits.push(deadline.of_edit(edit));
                None
            }
            Err(status) => Some(status),
        });
    }
    let mut results = table.engine.edit_rows(edits).await.into_iter();
    let entries = outcomes.into_iter().enumerate().map(|(index, refused)| {
        let status = match refused {
            Some(status) => Err(status),
            None => results.next().unwrap_or(Ok(())).map_err(of_engine),
        };
        Entry { index: index as i64, status: Some(rpc_status(status.err())) }
    });
    Ok(entries.collect())
}

/// Converts a status for use within a message.
pub(crate) fn rpc_status(status: Option<Status>) -> rpc::Status {
    let (code, message) = match status {
        Some(status) => (status.code(), status.message().to_owned()),
        None => (Code::Ok, String::new()),
    };
    rpc::Status { code: code as i32, message, details: Vec::new() }
}

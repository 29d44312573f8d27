//! Sends a request to one of the servers, and normalizes its answer for comparison.

use tonic::{Code, Request as Sent, Status};

use super::super::*;
use crate::proto::admin::{
    CheckConsistencyRequest, CreateTableRequest, DeleteTableRequest, DropRowRangeRequest,
    GenerateConsistencyTokenRequest, GetTableRequest, ListTablesRequest,
    ModifyColumnFamiliesRequest,
};
use crate::proto::data::{
    CheckAndMutateRowRequest, MutateRowsRequest, ReadModifyWriteRowRequest, SampleRowKeysRequest,
};

/// Times from 2001 to 2100 are the server's own; the drawn fixed times lie outside.
const NOW: std::ops::Range<i64> = 1_000_000_000_000_000..super::draw::FUTURE;

/// A request. It names tables without their instance, which is the run's.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Read(ReadRowsRequest),
    /// A read with an invalid filter.
    Wrong(ReadRowsRequest),
    Sample(SampleRowKeysRequest),
    Mutate(MutateRowRequest),
    MutateMany(MutateRowsRequest),
    Check(CheckAndMutateRowRequest),
    Modify(ReadModifyWriteRowRequest),
    Create(CreateTableRequest),
    Families(ModifyColumnFamiliesRequest),
    Describe(GetTableRequest),
    List(ListTablesRequest),
    Drop(DropRowRangeRequest),
    Delete(DeleteTableRequest),
    /// A request for a consistency token, and the check of that token.
    Consistency(String),
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done(Vec<String>),
    Refused(Code, String),
}

impl Request {
    /// The name of the request's kind, for counting.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Request::Read(_) | Request::Wrong(_) => "ReadRows",
            Request::Sample(_) => "SampleRowKeys",
            Request::Mutate(_) => "MutateRow",
            Request::MutateMany(_) => "MutateRows",
            Request::Check(_) => "CheckAndMutateRow",
            Request::Modify(_) => "ReadModifyWriteRow",
            Request::Create(_) => "CreateTable",
            Request::Families(_) => "ModifyColumnFamilies",
            Request::Describe(_) => "GetTable",
            Request::List(_) => "ListTables",
            Request::Drop(_) => "DropRowRange",
            Request::Delete(_) => "DeleteTable",
            Request::Consistency(_) => "CheckConsistency",
        }
    }

    /// True if both servers refuse such a request with the same code (exclusion `codes`).
    pub(super) fn has_codes(&self) -> bool {
        match self {
            Request::Read(_)
            | Request::Wrong(_)
            | Request::Sample(_)
            | Request::Create(_)
            | Request::Describe(_)
            | Request::List(_)
            | Request::Delete(_)
            | Request::Consistency(_) => true,
            Request::Mutate(_)
            | Request::MutateMany(_)
            | Request::Check(_)
            | Request::Modify(_)
            | Request::Families(_)
            | Request::Drop(_) => false,
        }
    }

    /// True if a cell may get the server's time, so that the next request must come later.
    pub(super) fn asks_for_now(&self) -> bool {
        let now = |mutation: &Mutation| matches!(&mutation.mutation, Some(Wire::SetCell(set)) if set.timestamp_micros == -1);
        match self {
            Request::Modify(_) => true,
            Request::Mutate(request) => request.mutations.iter().any(now),
            _ => false,
        }
    }
}

impl Answer {
    /// True if the answer contains cells, or reports that a condition held.
    pub(super) fn tells(&self) -> bool {
        matches!(self, Answer::Done(lines) if lines.iter().any(|line| line.contains(" = ") || line == "true"))
    }

    fn of(result: Result<Vec<String>, Status>) -> Answer {
        match result {
            Ok(lines) => Answer::Done(lines),
            Err(status) => Answer::Refused(status.code(), status.message().to_owned()),
        }
    }
}

/// Completes a table's name.
fn full(instance: &str, table: &mut String) {
    *table = format!("{instance}/tables/{table}");
}

/// Sends a request, and waits for the whole answer.
pub(super) async fn ask(world: &mut World, instance: &str, request: &Request) -> Answer {
    let mut request = request.clone();
    match &mut request {
        Request::Read(ReadRowsRequest { table_name, .. })
        | Request::Wrong(ReadRowsRequest { table_name, .. })
        | Request::Sample(SampleRowKeysRequest { table_name, .. })
        | Request::Mutate(MutateRowRequest { table_name, .. })
        | Request::MutateMany(MutateRowsRequest { table_name, .. })
        | Request::Check(CheckAndMutateRowRequest { table_name, .. })
        | Request::Modify(ReadModifyWriteRowRequest { table_name, .. })
        | Request::Families(ModifyColumnFamiliesRequest { name: table_name, .. })
        | Request::Describe(GetTableRequest { name: table_name, .. })
        | Request::Drop(DropRowRangeRequest { name: table_name, .. })
        | Request::Delete(DeleteTableRequest { name: table_name })
        | Request::Consistency(table_name) => full(instance, table_name),
        Request::Create(CreateTableRequest { parent, .. })
        | Request::List(ListTablesRequest { parent, .. }) => *parent = instance.to_owned(),
    }
    Answer::of(match request {
        Request::Read(request) | Request::Wrong(request) => read(world, request).await,
        Request::Sample(request) => sample(world, request).await,
        Request::Mutate(request) => world.data.mutate_row(request).await.map(|_| Vec::new()),
        Request::MutateMany(request) => mutate_many(world, request).await,
        Request::Check(request) => {
            let answer = world.data.check_and_mutate_row(request).await;
            answer.map(|answer| vec![format!("{}", answer.into_inner().predicate_matched)])
        }
        Request::Modify(request) => modify(world, request).await,
        request => admin(world, request).await,
    })
}

async fn admin(world: &mut World, request: Request) -> Result<Vec<String>, Status> {
    let admin = &mut world.admin;
    Ok(match request {
        Request::Create(request) => described(&admin.create_table(request).await?.into_inner()),
        Request::Families(request) => {
            described(&admin.modify_column_families(request).await?.into_inner())
        }
        Request::Describe(request) => described(&admin.get_table(request).await?.into_inner()),
        Request::List(request) => {
            let tables = admin.list_tables(request).await?.into_inner().tables;
            let mut names: Vec<_> = tables.iter().map(|table| own_part(&table.name)).collect();
            names.sort();
            names
        }
        Request::Drop(request) => {
            admin.drop_row_range(request).await?;
            Vec::new()
        }
        Request::Delete(request) => {
            admin.delete_table(request).await?;
            Vec::new()
        }
        Request::Consistency(name) => {
            let request = GenerateConsistencyTokenRequest { name: name.clone() };
            let token = admin.generate_consistency_token(request).await?.into_inner();
            let consistency_token = token.consistency_token;
            let request = CheckConsistencyRequest { name, consistency_token, ..Default::default() };
            vec![format!("{}", admin.check_consistency(request).await?.into_inner().consistent)]
        }
        request => panic!("{request:?} is no request of the admin API"),
    })
}

fn own_part(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().to_owned()
}

fn described(table: &Table) -> Vec<String> {
    let mut lines: Vec<_> = table
        .column_families
        .iter()
        .map(|entry| format!("{}: {:?}", entry.key, entry.value.as_ref().map(|v| &v.gc_rule)))
        .collect();
    lines.sort();
    lines.insert(0, own_part(&table.name));
    lines
}

async fn read(world: &mut World, request: ReadRowsRequest) -> Result<Vec<String>, Status> {
    let mut request = Sent::new(request);
    // Sets reverse_scans and last_scanned_row_responses, as `cbt` encodes them.
    request.metadata_mut().insert("bigtable-features", "CAEgAQ==".parse().unwrap());
    let mut stream = world.data.read_rows(request).await?.into_inner();
    let mut chunks = Vec::new();
    while let Some(message) = stream.message().await? {
        chunks.extend(message.chunks);
    }
    let mut cells = cells(&chunks);
    // Exclusion `families`: their order is not promised. Neither is the order of cells with
    // equal times, which an interleave produces.
    let mut rest = &mut cells[..];
    while let Some(first) = rest.first() {
        let row = first.row.clone();
        let end = rest.iter().position(|cell| cell.row != row).unwrap_or(rest.len());
        let (of_row, others) = rest.split_at_mut(end);
        of_row.sort_by(|a, b| a.family.cmp(&b.family));
        for same in of_row.chunk_by_mut(|a, b| {
            (&a.family, &a.qualifier, a.micros) == (&b.family, &b.qualifier, b.micros)
        }) {
            same.sort_by(|a, b| (&a.labels, &a.value).cmp(&(&b.labels, &b.value)));
        }
        rest = others;
    }
    Ok(cells.iter().map(timeless).collect())
}

/// A cell, with the server's own time replaced.
fn timeless(cell: &Shown) -> String {
    let at = if NOW.contains(&cell.micros) { "now".to_owned() } else { cell.micros.to_string() };
    let Shown { row, family, qualifier, labels, value, .. } = cell;
    format!("{row}/{family}:{qualifier}@{at} {labels:?} = {}", value.escape_ascii())
}

/// Exclusion `samples`: the server chooses the samples. The last one is the end of the table.
async fn sample(world: &mut World, request: SampleRowKeysRequest) -> Result<Vec<String>, Status> {
    let mut stream = world.data.sample_row_keys(request).await?.into_inner();
    let mut samples = Vec::new();
    while let Some(sample) = stream.message().await? {
        samples.push((sample.row_key, sample.offset_bytes));
    }
    let end = samples.pop_if(|(key, _)| key.is_empty());
    let last = samples.last().map_or(0, |(_, offset)| *offset);
    assert!(end.is_none_or(|(_, offset)| offset >= last), "the end lies before a row");
    assert!(samples.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "samples are in order");
    Ok(Vec::new())
}

async fn mutate_many(world: &mut World, request: MutateRowsRequest) -> Result<Vec<String>, Status> {
    let mut outcomes = vec![String::new(); request.entries.len()];
    let mut stream = world.data.mutate_rows(request).await?.into_inner();
    while let Some(message) = stream.message().await? {
        for entry in message.entries {
            let code = entry.status.unwrap_or_default().code;
            let outcome = if code == 0 { "done" } else { "refused" };
            outcomes[usize::try_from(entry.index).unwrap()] = outcome.to_owned();
        }
    }
    Ok(outcomes)
}

async fn modify(
    world: &mut World,
    request: ReadModifyWriteRowRequest,
) -> Result<Vec<String>, Status> {
    let answer = world.data.read_modify_write_row(request).await?.into_inner();
    let row = answer.row.unwrap_or_default();
    let mut lines = Vec::new();
    for family in &row.families {
        for column in &family.columns {
            for cell in &column.cells {
                let shown = Shown {
                    row: row.key.escape_ascii().to_string(),
                    family: family.name.clone(),
                    qualifier: column.qualifier.escape_ascii().to_string(),
                    micros: cell.timestamp_micros,
                    labels: cell.labels.clone(),
                    value: cell.value.to_vec(),
                };
                lines.push(timeless(&shown));
            }
        }
    }
    // Exclusion `families`.
    lines.sort();
    Ok(lines)
}

//! Implements ReadModifyWriteRow: it appends to values and increments counters.

use std::collections::BTreeMap;

use bigtable::{Bytes, Mutation, Row, Selection, TimeRange, Timestamp};
use bigtable_fjall::RowEdit;
use prost::Message;
use tonic::Status;

use super::check::Finding;
use super::deadline::Deadline;
use super::mutate::{family, now};
use super::schema::Schema;
use super::status::of_engine;
use super::tables::Tables;
use super::{layout, limits};
use crate::proto::data;
use crate::proto::data::read_modify_write_rule::Rule as Wire;
use crate::proto::data::{ReadModifyWriteRowRequest, ReadModifyWriteRule};
use crate::time;

/// Bytes of a counter: a big-endian integer.
const COUNTER_BYTES: usize = 8;

/// A checked rule.
#[derive(Debug)]
struct Rule {
    column: Column,
    what: What,
}

/// A column, with its fields in the order by which the answer is sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Column {
    family: String,
    qualifier: Bytes,
    /// The qualifier in the engine.
    coded: Bytes,
}

#[derive(Debug)]
enum What {
    Append(Bytes),
    Increment(i64),
}

/// The newest version of each column that the rules name, after the rules.
type Changed = BTreeMap<Column, (Timestamp, Bytes)>;

/// Answers ReadModifyWriteRow with the row's changed cells.
pub(crate) async fn row(
    tables: &Tables,
    request: ReadModifyWriteRowRequest,
    deadline: Deadline,
) -> Result<data::Row, Status> {
    let table = tables.table(&request.table_name).await?;
    limits::check_row_key(&request.row_key)?;
    if request.rules.is_empty() {
        return Err(Status::invalid_argument("no rules provided"));
    }
    limits::check_mutations(request.rules.len())?;
    let held = table.hold_schema().await?;
    let rules = request.rules.iter().map(|r| rule(&held, r)).collect::<Result<Vec<_>, _>>()?;
    let select = select(&rules);
    let (finding, now) = (Finding::new(), now());
    let bytes = request.rules.iter().map(Message::encoded_len).sum();
    let edit = {
        let finding = finding.clone();
        RowEdit::new(request.row_key.clone(), select, move |row| {
            let changed = modify(&rules, &row, now);
            let mutations = changed.as_ref().map(sets).unwrap_or_default();
            finding.set(changed);
            mutations
        })
        .holding(bytes)
    };
    table.engine.edit_row(deadline.of_edit(edit)).await.map_err(of_engine)?;
    Ok(answer(request.row_key, finding.take()??))
}

fn rule(schema: &Schema, rule: &ReadModifyWriteRule) -> Result<Rule, Status> {
    let family = family(schema, &rule.family_name)?;
    limits::check_qualifier(&rule.column_qualifier)?;
    let what = match &rule.rule {
        None => return Err(Status::invalid_argument("a rule has no kind")),
        Some(Wire::AppendValue(value)) => What::Append(value.clone()),
        Some(Wire::IncrementAmount(amount)) => What::Increment(*amount),
    };
    let column = Column {
        family: family.name.clone(),
        qualifier: rule.column_qualifier.clone(),
        coded: layout::engine_qualifier(family, &rule.column_qualifier),
    };
    Ok(Rule { column, what })
}

fn select(rules: &[Rule]) -> Selection {
    let mut columns: Vec<_> = rules.iter().map(|rule| &rule.column).collect();
    columns.sort();
    columns.dedup();
    columns.iter().fold(Selection::default(), |select, column| {
        let family = layout::engine_family(&column.family);
        select.column(family, column.coded.clone(), TimeRange::ALL, 1)
    })
}

fn modify(rules: &[Rule], row: &Row, now: Timestamp) -> Result<Changed, Status> {
    let mut changed = Changed::new();
    for Rule { column, what } in rules {
        let stored = || {
            let cell = row.newest(&layout::engine_family(&column.family), &column.coded)?;
            Some((cell.timestamp, cell.value.clone()))
        };
        let before = changed.get(column).cloned().or_else(stored);
        let value = before.as_ref().map(|(_, value)| &value[..]);
        let value = match what {
            What::Append(more) => [value.unwrap_or_default(), more].concat(),
            What::Increment(amount) => count(value, *amount)?.to_vec(),
        };
        limits::check_value(&value)?;
        let timestamp = before.map_or(now, |(before, _)| before.max(now));
        changed.insert(column.clone(), (timestamp, value.into()));
    }
    Ok(changed)
}

/// Increments a counter. A missing cell counts as zero; an empty value is an error.
fn count(value: Option<&[u8]>, amount: i64) -> Result<[u8; COUNTER_BYTES], Status> {
    let before = match value {
        None => 0,
        Some(value) => value.try_into().map(i64::from_be_bytes).map_err(|_| {
            Status::failed_precondition(format!(
                "cannot increment a value of {} bytes: it must have {COUNTER_BYTES}",
                value.len()
            ))
        })?,
    };
    Ok(before.wrapping_add(amount).to_be_bytes())
}

fn sets(changed: &Changed) -> Vec<Mutation> {
    let set = |(column, (timestamp, value)): (&Column, &(Timestamp, Bytes))| {
        let family = layout::engine_family(&column.family);
        Mutation::set(family, column.coded.clone(), *timestamp, value.clone())
    };
    changed.iter().map(set).collect()
}

fn answer(key: Bytes, changed: Changed) -> data::Row {
    let mut families: Vec<data::Family> = Vec::new();
    for (column, (timestamp, value)) in changed {
        let timestamp_micros = time::micros(timestamp);
        let cell = data::Cell { timestamp_micros, value, labels: Vec::new() };
        let filled = data::Column { qualifier: column.qualifier, cells: vec![cell] };
        match families.last_mut().filter(|family| family.name == column.family) {
            Some(family) => family.columns.push(filled),
            None => families.push(data::Family { name: column.family, columns: vec![filled] }),
        }
    }
    data::Row { key, families }
}

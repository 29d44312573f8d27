//! Translates selections and probes into filters of the API.
//!
//! A filter names a column by a range from its qualifier to itself. That is exact for every
//! byte string; a regular expression would need quoting. The API bounds the length of a filter:
//!
//! * Above the bound, a selection reads whole families, and the client drops the rest.
//! * Above the bound, a predicate checks whole families. It may then match cells that no probe
//!   asks for. So the client sends such a predicate only in a request that changes nothing on
//!   a match. A prewrite is one. The worst result is that the caller sees a conflict where
//!   none exists.

use std::collections::BTreeMap;

use bigtable::{Bytes, ColumnSelect, Error, Family, Probe, Qualifiers, Result, Row};
use bigtable::{Selection, TimeRange};
use prost::Message;

use crate::filter::FILTER_BYTES_MAX;
use crate::proto::data::column_range::{EndQualifier, StartQualifier};
use crate::proto::data::row_filter::{Chain, Filter, Interleave};
use crate::proto::data::value_range::{EndValue, StartValue};
use crate::proto::data::{ColumnRange, RowFilter, TimestampRange, ValueRange};
use crate::time;

/// The filter of a selection, and whether it is exact.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) filter: RowFilter,
    /// True if the server may return more than was selected.
    coarse: bool,
}

/// Builds the filter of a selection; `None` if it selects nothing.
pub(crate) fn of_selection(select: &Selection) -> Option<Reading> {
    let wanted: Vec<_> = select.columns.iter().filter(|column| is_some(column)).collect();
    let exact = interleave(wanted.iter().filter_map(|column| of_column(column)).collect())?;
    if exact.encoded_len() <= FILTER_BYTES_MAX {
        return Some(Reading { filter: exact, coarse: false });
    }
    let mut families: Vec<_> = wanted.iter().map(|column| &column.family).collect();
    families.sort();
    families.dedup();
    let filter = interleave(families.into_iter().map(|f| columns(f, None)).collect())?;
    Some(Reading { filter, coarse: true })
}

impl Reading {
    /// Keeps the selected cells of a row that the server returned.
    pub(crate) fn pick(&self, select: &Selection, mut row: Row) -> Row {
        if self.coarse {
            let mut by_name: BTreeMap<(&Family, Option<&Bytes>), Vec<&ColumnSelect>> =
                BTreeMap::new();
            for wanted in &select.columns {
                let qualifier = match &wanted.qualifiers {
                    Qualifiers::All => None,
                    Qualifiers::Is(qualifier) => Some(qualifier),
                };
                by_name.entry((&wanted.family, qualifier)).or_default().push(wanted);
            }
            // The cells of a column are neighbours, so the selections of the current column are
            // kept, each with the number of cells it has taken.
            let mut column: Option<(Family, Bytes)> = None;
            let mut taken: Vec<(&ColumnSelect, u32)> = Vec::new();
            row.cells.retain(|cell| {
                let same = |c: &(Family, Bytes)| (&c.0, &c.1) == (&cell.family, &cell.qualifier);
                if !column.as_ref().is_some_and(same) {
                    column = Some((cell.family.clone(), cell.qualifier.clone()));
                    let of = [Some(&cell.qualifier), None];
                    let of = of.into_iter().filter_map(|q| by_name.get(&(&cell.family, q)));
                    taken.clear();
                    taken.extend(of.flatten().map(|wanted| (*wanted, 0)));
                }
                taken.iter_mut().any(|(wanted, taken)| {
                    let takes =
                        wanted.time.contains(cell.timestamp) && *taken < wanted.versions_max;
                    *taken += u32::from(takes);
                    takes
                })
            });
        }
        row
    }
}

fn is_some(column: &ColumnSelect) -> bool {
    column.versions_max > 0 && column.time.from <= column.time.to
}

fn of_column(column: &ColumnSelect) -> Option<RowFilter> {
    let qualifier = match &column.qualifiers {
        Qualifiers::All => None,
        Qualifiers::Is(qualifier) => Some(qualifier),
    };
    let mut filters = vec![columns(&column.family, qualifier)];
    filters.extend(times(column.time)?);
    if let Ok(versions) = i32::try_from(column.versions_max) {
        filters.push(filter(Filter::CellsPerColumnLimitFilter(versions)));
    }
    Some(chain(filters))
}

/// Builds the filter of a predicate. With `may_be_coarse`, the filter may match too much.
///
/// # Errors
/// `InvalidRequest` if the filter is too long for the API and must not be coarse.
pub(crate) fn of_predicate(probes: &[Probe], may_be_coarse: bool) -> Result<RowFilter> {
    let nothing = || filter(Filter::BlockAllFilter(true));
    // The names alone exceed the bound, so grouping by name is skipped: a wide row has too many
    // probes to compare with each other.
    let names: usize = probes.iter().filter_map(named).map(|name| 2 * name.len()).sum();
    if may_be_coarse && names > FILTER_BYTES_MAX {
        return Ok(grouped(probes, |_| None).unwrap_or_else(nothing));
    }
    let exact = grouped(probes, named).unwrap_or_else(nothing);
    let bytes = exact.encoded_len();
    if bytes <= FILTER_BYTES_MAX {
        return Ok(exact);
    }
    if !may_be_coarse {
        return Err(Error::invalid(format!(
            "the predicate needs a filter of {bytes} bytes, and the API allows {FILTER_BYTES_MAX}: \
             write fewer columns of one row in one transaction, or use shorter names"
        )));
    }
    Ok(grouped(probes, |_| None).unwrap_or_else(nothing))
}

/// The column of a probe; `None` if the probe covers a whole family.
fn named(probe: &Probe) -> Option<&Bytes> {
    match &probe.qualifiers {
        Qualifiers::All => None,
        Qualifiers::Is(qualifier) => Some(qualifier),
    }
}

/// Probes that differ only in their columns.
struct Alike<'a> {
    first: &'a Probe,
    columns: Vec<(&'a Family, Option<&'a Bytes>)>,
}

/// Combines the probes that differ only in their columns into one chain. So a time and a value
/// prefix appear once for many names, which take the most room.
fn grouped<'a>(
    probes: &'a [Probe],
    qualifier: impl Fn(&'a Probe) -> Option<&'a Bytes>,
) -> Option<RowFilter> {
    let mut groups: Vec<Alike<'a>> = Vec::new();
    for probe in probes.iter().filter(|probe| probe.time.from <= probe.time.to) {
        let column = (&probe.family, qualifier(probe));
        let alike = |group: &&mut Alike<'_>| {
            let Probe { time, value_prefix, .. } = group.first;
            (time, value_prefix) == (&probe.time, &probe.value_prefix)
        };
        match groups.iter_mut().find(alike) {
            Some(group) if group.columns.contains(&column) => {}
            Some(group) => group.columns.push(column),
            None => groups.push(Alike { first: probe, columns: vec![column] }),
        }
    }
    let filters = groups.into_iter().filter_map(|Alike { first, columns: names }| {
        let names = names.into_iter().map(|(family, qualifier)| columns(family, qualifier));
        let mut filters = vec![interleave(names.collect())?];
        filters.extend(times(first.time)?);
        filters.extend(first.value_prefix.as_ref().and_then(prefix));
        Some(chain(filters))
    });
    interleave(filters.collect())
}

fn filter(filter: Filter) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

/// The API demands at least two members of a chain or an interleave.
fn chain(mut filters: Vec<RowFilter>) -> RowFilter {
    match filters.len() {
        1 => filters.remove(0),
        _ => filter(Filter::Chain(Chain { filters })),
    }
}

fn interleave(mut filters: Vec<RowFilter>) -> Option<RowFilter> {
    match filters.len() {
        0 => None,
        1 => filters.pop(),
        _ => Some(filter(Filter::Interleave(Interleave { filters }))),
    }
}

/// Filters one column, or a whole family.
fn columns(family: &Family, qualifier: Option<&Bytes>) -> RowFilter {
    filter(Filter::ColumnRangeFilter(ColumnRange {
        family_name: family.as_str().to_owned(),
        start_qualifier: qualifier.cloned().map(StartQualifier::StartQualifierClosed),
        end_qualifier: qualifier.cloned().map(EndQualifier::EndQualifierClosed),
    }))
}

/// Filters a time range: `Some(None)` if it holds all times, `None` if it holds none.
fn times(range: TimeRange) -> Option<Option<RowFilter>> {
    let (start_timestamp_micros, end_timestamp_micros) = time::micros_range(range)?;
    let times = TimestampRange { start_timestamp_micros, end_timestamp_micros };
    Some((range != TimeRange::ALL).then(|| filter(Filter::TimestampRangeFilter(times))))
}

/// Filters values by their prefix; `None` for an empty prefix, which restricts nothing.
fn prefix(prefix: &Bytes) -> Option<RowFilter> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let end_value = (!end.is_empty()).then(|| EndValue::EndValueOpen(end.into()));
    let start_value = Some(StartValue::StartValueClosed(prefix.clone()));
    let range = ValueRange { start_value, end_value };
    (!prefix.is_empty()).then(|| filter(Filter::ValueRangeFilter(range)))
}

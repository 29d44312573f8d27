//! The cells of a fake region server, with `NEW_VERSION_BEHAVIOR`: a deletion hides what was
//! there before it, so it removes cells at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use prost::Message;

use crate::encode::GUARD_FAMILY;
use crate::proto::{
    Action, BytesComparator, Cell, Column, Comparator, ComparingFilter, Condition, DELETE,
    DELETE_ONE_VERSION, FamilyTimeRange, Filter, FilterList, MUST_PASS_ALL, MutationProto, PUT,
    RegionAction, RegionActionResult, ResultOrException, Scan, TimeRange,
};

/// A cell's family, qualifier and timestamp, in the order in which HBase returns cells.
type Place = (Bytes, Bytes, Reverse<u64>);
type Row = BTreeMap<Place, Bytes>;

/// The rows of all tables.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<(Bytes, Bytes), Row>);

/// The columns, times and versions that a `Get` or a scan requests.
pub(super) struct Select<'a> {
    pub(super) columns: &'a [Column],
    pub(super) times: &'a [FamilyTimeRange],
    pub(super) versions_max: u32,
}

impl Rows {
    /// Applies the actions of one region, all of them or none, if the condition holds.
    pub(super) fn act(&mut self, table: &Bytes, request: &RegionAction) -> RegionActionResult {
        let holds = request.condition.as_ref().is_none_or(|condition| self.holds(table, condition));
        let mut result =
            RegionActionResult { processed: Some(holds), ..RegionActionResult::default() };
        for Action { index, mutation, get } in request.action.iter().filter(|_| holds) {
            let mut found = None;
            if let Some(get) = get {
                let select = Select {
                    columns: &get.column,
                    times: &get.family_time_range,
                    versions_max: get.max_versions.unwrap_or(1),
                };
                found = Some(crate::proto::CellsOfRow {
                    cell: self.cells(table, &get.row, &select),
                    partial: None,
                });
            }
            if let Some(mutation) = mutation {
                self.apply(table, mutation);
            }
            result.result_or_exception.push(ResultOrException {
                index: *index,
                result: found,
                exception: None,
            });
        }
        result
    }

    fn apply(&mut self, table: &Bytes, mutation: &MutationProto) {
        let row = mutation.row.clone().unwrap_or_default();
        let row = self.0.entry((table.clone(), row)).or_default();
        for column in &mutation.column_value {
            for value in &column.qualifier_value {
                let at = value.timestamp.expect("the client names every timestamp");
                let qualifier = value.qualifier.clone().unwrap_or_default();
                let place = (column.family.clone(), qualifier, Reverse(at));
                match mutation.mutate_type {
                    Some(PUT) => {
                        row.insert(place, value.value.clone().unwrap_or_default());
                    }
                    Some(DELETE) if value.delete_type == Some(DELETE_ONE_VERSION) => {
                        row.remove(&place);
                    }
                    Some(DELETE) => row.retain(|(family, qualifier, Reverse(time)), _| {
                        (family, qualifier) != (&place.0, &place.1) || *time > at
                    }),
                    other => panic!("the client sent a mutation of type {other:?}"),
                }
            }
        }
    }

    /// Replaces the guards of all rows, as other clients do when they change a row.
    pub(super) fn change_all_guards(&mut self) {
        for ((family, ..), value) in self.0.values_mut().flatten() {
            if family == GUARD_FAMILY {
                *value = Bytes::from_static(b"of another client");
            }
        }
    }

    /// The keys of the rows that have a guard.
    pub(super) fn guarded(&self) -> Vec<String> {
        let has = |row: &Row| row.keys().any(|(family, ..)| family == GUARD_FAMILY);
        let rows = self.0.iter().filter(|(_, row)| has(row));
        rows.map(|((_, row), _)| String::from_utf8_lossy(row).into_owned()).collect()
    }

    pub(super) fn cells(&self, table: &Bytes, row: &Bytes, select: &Select<'_>) -> Vec<Cell> {
        let Some(cells) = self.0.get(&(table.clone(), row.clone())) else { return Vec::new() };
        let mut taken: BTreeMap<(&Bytes, &Bytes), u32> = BTreeMap::new();
        let wanted = cells.iter().filter(|((family, qualifier, Reverse(at)), _)| {
            let named = select.columns.iter().any(|column| {
                let all = column.qualifier.is_empty();
                column.family == family && (all || column.qualifier.contains(qualifier))
            });
            let time = select.times.iter().find(|time| time.column_family == family);
            let taken = taken.entry((family, qualifier)).or_default();
            let wanted = named && time.is_none_or(|time| within(&time.time_range, *at));
            *taken += u32::from(wanted);
            wanted && *taken <= select.versions_max
        });
        let cell = |((family, qualifier, Reverse(at)), value): (&Place, &Bytes)| Cell {
            row: row.clone(),
            family: family.clone(),
            qualifier: qualifier.clone(),
            timestamp: *at,
            value: value.clone(),
        };
        wanted.map(cell).collect()
    }

    /// The rows of a scan that have wanted cells, in their order.
    pub(super) fn scan<'a>(
        &'a self,
        table: &'a Bytes,
        scan: &'a Scan,
    ) -> impl Iterator<Item = Vec<Cell>> + 'a {
        let start = scan.start_row.clone().unwrap_or_default();
        let start = (table.clone(), start);
        let start = match scan.include_start_row {
            Some(false) => Bound::Excluded(start),
            _ => Bound::Included(start),
        };
        let stop = scan.stop_row.clone().unwrap_or_default();
        let before_stop = move |row: &Bytes| {
            stop.is_empty() || *row < stop || (scan.include_stop_row == Some(true) && *row == stop)
        };
        let rows = self.0.range((start, Bound::Unbounded)).map(|(key, _)| key);
        let rows = rows.take_while(move |(of, row)| of == table && before_stop(row));
        let select = Select {
            columns: &scan.column,
            times: &scan.family_time_range,
            versions_max: scan.max_versions.unwrap_or(1),
        };
        let cells = rows.map(move |(_, row)| self.cells(table, row, &select));
        cells.filter(|cells| !cells.is_empty())
    }

    /// A filter sees the newest version of each column in the condition's range of times.
    fn holds(&self, table: &Bytes, condition: &Condition) -> bool {
        let row = (table.clone(), condition.row.clone());
        let none = Row::new();
        let cells = self.0.get(&row).unwrap_or(&none);
        if let Some(filter) = &condition.filter {
            let time = condition.time_range.clone().unwrap_or_default();
            let mut before: Option<(&Bytes, &Bytes)> = None;
            return cells.iter().any(|((family, qualifier, Reverse(at)), value)| {
                let newest = within(&time, *at) && before != Some((family, qualifier));
                if newest {
                    before = Some((family, qualifier));
                }
                newest && passes(filter, (family, qualifier, value))
            });
        }
        let column = (condition.family.as_ref(), condition.qualifier.as_ref());
        let newest = cells.iter().find(|((f, q, _), _)| (Some(f), Some(q)) == column);
        let comparator = condition.comparator.as_ref().expect("a comparator or a filter");
        match newest {
            Some((_, value)) => compares(comparator, value),
            // To HBase an absent cell equals the empty value.
            None => compares(comparator, b""),
        }
    }
}

fn within(time: &TimeRange, at: u64) -> bool {
    time.from.unwrap_or(0) <= at && time.to.is_none_or(|to| at < to)
}

fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

fn passes(filter: &Filter, cell: (&Bytes, &Bytes, &Bytes)) -> bool {
    let inside = filter.serialized_filter.clone().unwrap_or_default();
    let compared = match short(&filter.name) {
        "FilterList" => {
            let list = FilterList::decode(inside).expect("a list of filters");
            let mut each = list.filters.iter().map(|filter| passes(filter, cell));
            let all = list.operator == MUST_PASS_ALL;
            return if all { each.all(|passes| passes) } else { each.any(|passes| passes) };
        }
        "FamilyFilter" => cell.0,
        "QualifierFilter" => cell.1,
        "ValueFilter" => cell.2,
        other => panic!("the client sent the filter {other}"),
    };
    let filter = ComparingFilter::decode(inside).expect("a filter that compares");
    compares(&filter.compare.comparator.expect("a comparator"), compared)
}

fn compares(comparator: &Comparator, value: &[u8]) -> bool {
    let inside = comparator.serialized_comparator.clone().unwrap_or_default();
    let wanted = BytesComparator::decode(inside).expect("a comparator of bytes");
    let wanted = wanted.comparable.value.unwrap_or_default();
    match short(&comparator.name) {
        "BinaryComparator" => *value == wanted,
        "BinaryPrefixComparator" => value.starts_with(&wanted),
        other => panic!("the client sent the comparator {other}"),
    }
}

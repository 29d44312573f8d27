//! Holds the cells of one table in memory: by family, then row, then column, then version.
//!
//! Families are separate, so that a scan of one family (dirty cells, locks) never visits the
//! rows of another. This corresponds to locality groups on disk.
//!
//! Invariant: no row has an empty map of columns, and no column an empty list of versions.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;

use crate::{
    Cell, ColumnSelect, Family, Mutation, Page, PageLimit, Probe, Qualifiers, Row, RowKey,
};
use crate::{RowRange, Selection, TableSchema, TimeRange, Timestamp};

/// The most rows that one page examines. The bound lets writers in, even if a scan selects
/// almost nothing.
const PAGE_ROWS_EXAMINED_MAX: usize = 16 * 1024;

/// The cells of one table.
#[derive(Debug)]
pub(super) struct Data {
    families: Vec<FamilyData>,
}

#[derive(Debug)]
struct FamilyData {
    family: Family,
    /// The position of the family's locality group in the schema.
    group: usize,
    rows: BTreeMap<RowKey, Columns>,
}

/// The columns of one family in one row.
#[derive(Debug, Default)]
struct Columns(BTreeMap<Bytes, Versions>);

/// The versions of one column, oldest first, so that most writes append.
#[derive(Debug, Default, Clone)]
struct Versions(Vec<(Timestamp, Bytes)>);

impl Data {
    pub(super) fn new(schema: &TableSchema) -> Self {
        let mut families = Vec::new();
        for (group, described) in schema.groups.iter().enumerate() {
            for family in &described.families {
                let family = family.family.clone();
                families.push(FamilyData { family, group, rows: BTreeMap::new() });
            }
        }
        families.sort_by(|a, b| a.family.cmp(&b.family));
        Data { families }
    }

    /// The family's position. Requests are checked against the schema before this is called.
    fn position(&self, family: &Family) -> usize {
        let found = self.families.iter().position(|data| data.family == *family);
        found.expect("the request was checked against the schema")
    }

    fn versions(&self, row: &RowKey, family: &Family, qualifier: &[u8]) -> Option<&Versions> {
        self.families[self.position(family)].rows.get(row)?.0.get(qualifier)
    }

    pub(super) fn read_row(&self, row: &RowKey, select: &Selection) -> Row {
        let mut cells = Vec::new();
        for column in &select.columns {
            let data = &self.families[self.position(&column.family)];
            if let Some(columns) = data.rows.get(row) {
                columns.select(data, column, &mut cells);
            }
        }
        Row::new(row.clone(), cells)
    }

    pub(super) fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Page {
        let mut page = Page { rows: Vec::new(), resume: None };
        if range.is_empty() {
            return page;
        }
        let mut sources = self.sources(range, select);
        let mut bytes = 0;
        for examined in 1.. {
            let Some(key) = sources.iter_mut().filter_map(Source::peek).min().cloned() else {
                break;
            };
            let mut cells = Vec::new();
            for source in &mut sources {
                source.take(&key, &mut cells);
            }
            if !cells.is_empty() {
                let row = Row::new(key.clone(), cells);
                bytes += row.bytes();
                page.rows.push(row);
            }
            let full = limit.is_reached(page.rows.len(), bytes);
            if full || examined >= PAGE_ROWS_EXAMINED_MAX {
                let more = sources.iter_mut().any(|source| source.peek().is_some());
                page.resume = more.then(|| range.after(key));
                break;
            }
        }
        page
    }

    /// One cursor for each selected family, with all its selected columns.
    fn sources<'a>(&'a self, range: &'a RowRange, select: &'a Selection) -> Vec<Source<'a>> {
        let mut sources = Vec::new();
        for data in &self.families {
            let selected = select.columns.iter().filter(|column| column.family == data.family);
            let columns: Vec<_> = selected.collect();
            if !columns.is_empty() {
                let bounds = (range.start.as_ref(), range.end.as_ref());
                sources.push(Source { data, columns, rows: rows_between(&data.rows, bounds) });
            }
        }
        sources
    }

    pub(super) fn finds(&self, row: &RowKey, probe: &Probe) -> bool {
        let wanted = |value: &Bytes| match &probe.value_prefix {
            Some(prefix) => value.starts_with(prefix),
            None => true,
        };
        let holds = |versions: &Versions| {
            versions.within(probe.time).iter().any(|(_, value)| wanted(value))
        };
        match &probe.qualifiers {
            Qualifiers::Is(qualifier) => {
                self.versions(row, &probe.family, qualifier).is_some_and(holds)
            }
            Qualifiers::All => {
                let columns = self.families[self.position(&probe.family)].rows.get(row);
                columns.is_some_and(|columns| columns.0.values().any(holds))
            }
        }
    }

    /// The number of cells that the mutations would add to a locality group.
    pub(super) fn cells_added(&self, row: &RowKey, mutations: &[Mutation], group: usize) -> isize {
        let mut copies: BTreeMap<(usize, &[u8]), Versions> = BTreeMap::new();
        let mut added = 0;
        for mutation in mutations {
            let (Mutation::Set { family, qualifier, .. }
            | Mutation::Delete { family, qualifier, .. }) = mutation;
            let position = self.position(family);
            if self.families[position].group == group {
                let copy = copies.entry((position, qualifier)).or_insert_with(|| {
                    self.versions(row, family, qualifier).cloned().unwrap_or_default()
                });
                added -= copy.0.len() as isize;
                copy.apply(mutation);
                added += copy.0.len() as isize;
            }
        }
        added
    }

    /// Applies the mutations in order.
    pub(super) fn apply(&mut self, row: &RowKey, mutations: &[Mutation]) {
        for mutation in mutations {
            match mutation {
                Mutation::Set { family, qualifier, .. } => {
                    let position = self.position(family);
                    let columns = self.families[position].rows.entry(row.clone()).or_default();
                    columns.0.entry(qualifier.clone()).or_default().apply(mutation);
                }
                Mutation::Delete { family, qualifier, .. } => {
                    let position = self.position(family);
                    let rows = &mut self.families[position].rows;
                    let Some(columns) = rows.get_mut(row) else { continue };
                    let Some(versions) = columns.0.get_mut(qualifier) else { continue };
                    versions.apply(mutation);
                    if versions.0.is_empty() {
                        columns.0.remove(qualifier);
                    }
                    if columns.0.is_empty() {
                        rows.remove(row);
                    }
                }
            }
        }
    }

    /// Drops the versions of a family that newer versions superseded at or before `up_to`.
    pub(super) fn drop_superseded(
        &mut self,
        family: &Family,
        up_to: Timestamp,
        keep: fn(&[u8]) -> bool,
    ) {
        let position = self.position(family);
        let rows = self.families[position].rows.values_mut();
        for Versions(versions) in rows.flat_map(|columns| columns.0.values_mut()) {
            let known = versions.partition_point(|(timestamp, _)| *timestamp <= up_to);
            if let Some((newest, _)) = versions[..known].last() {
                let newest = *newest;
                versions.retain(|(timestamp, value)| *timestamp >= newest || keep(value));
            }
        }
    }
}

impl Columns {
    /// Adds the cells that `column` selects to `cells`.
    fn select(&self, data: &FamilyData, column: &ColumnSelect, cells: &mut Vec<Cell>) {
        let mut add = |qualifier: &Bytes, versions: &Versions| {
            let newest = versions.within(column.time).iter().rev();
            for (timestamp, value) in newest.take(column.versions_max as usize) {
                cells.push(Cell {
                    family: data.family.clone(),
                    qualifier: qualifier.clone(),
                    timestamp: *timestamp,
                    value: value.clone(),
                });
            }
        };
        match &column.qualifiers {
            Qualifiers::All => {
                self.0.iter().for_each(|(qualifier, versions)| add(qualifier, versions))
            }
            Qualifiers::Is(qualifier) => {
                if let Some(versions) = self.0.get(qualifier) {
                    add(qualifier, versions);
                }
            }
        }
    }
}

impl Versions {
    /// The positions of the versions in `time`.
    fn positions(&self, time: TimeRange) -> std::ops::Range<usize> {
        let from = self.0.partition_point(|(timestamp, _)| *timestamp < time.from);
        let to = self.0.partition_point(|(timestamp, _)| *timestamp <= time.to);
        from..to.max(from)
    }

    fn within(&self, time: TimeRange) -> &[(Timestamp, Bytes)] {
        &self.0[self.positions(time)]
    }

    fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Set { timestamp, value, .. } => {
                match self.0.binary_search_by_key(timestamp, |version| version.0) {
                    Ok(at) => self.0[at].1 = value.clone(),
                    Err(at) => self.0.insert(at, (*timestamp, value.clone())),
                }
            }
            Mutation::Delete { time, .. } => {
                self.0.drain(self.positions(*time));
                // Many overwrites may have needed more memory; give it back after collection.
                if self.0.capacity() > 4 * self.0.len().max(4) {
                    self.0.shrink_to(2 * self.0.len());
                }
            }
        }
    }
}

/// The rows of one family within a scan's range, and the selected columns.
struct Source<'a> {
    data: &'a FamilyData,
    columns: Vec<&'a ColumnSelect>,
    rows: Peekable<std::collections::btree_map::Range<'a, RowKey, Columns>>,
}

impl<'a> Source<'a> {
    fn peek(&mut self) -> Option<&'a RowKey> {
        self.rows.peek().map(|(key, _)| *key)
    }

    /// If `key` is this source's next row, moves past the row and adds its selected cells.
    fn take(&mut self, key: &RowKey, cells: &mut Vec<Cell>) {
        if let Some((_, columns)) = self.rows.next_if(|(at, _)| *at == key) {
            for column in &self.columns {
                columns.select(self.data, column, cells);
            }
        }
    }
}

fn rows_between<'a>(
    rows: &'a BTreeMap<RowKey, Columns>,
    bounds: (Bound<&RowKey>, Bound<&RowKey>),
) -> Peekable<std::collections::btree_map::Range<'a, RowKey, Columns>> {
    rows.range::<RowKey, _>(bounds).peekable()
}

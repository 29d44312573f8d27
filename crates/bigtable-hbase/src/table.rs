//! Implements a table: reads, scans and changes of rows, as requests to their regions.
//!
//! One `Get` reads a row as of one moment, in all families. It has a single bound on the
//! number of versions, for all of its families. In-memory families usually need another bound
//! than the rest, so a read takes two. The first `Get` reads the in-memory families, whose
//! cells may therefore be of an earlier moment than the rest. The second reads the other
//! families. HBase may return cells beyond the selection, which the client drops.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bigtable::{
    Cell, ColumnSelect, ConditionalMutation, Family, Layout, Page, PageLimit, Qualifiers, Result,
    Row, RowKey, RowMutation, RowRange, Selection, Table, TableSchema, TimeRange, Timestamp,
};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use crate::client::Client;
use crate::encode::{self, GUARD_FAMILY};
use crate::failure::Failure;
use crate::guard::encode_time;
use crate::proto::{
    self, Action, Column, FamilyTimeRange, Get, MultiRequest, MultiResponse, RegionAction,
    RegionSpecifier,
};
use crate::regions::Region;
use crate::upkeep::Upkeep;

/// Most requests of one caller in flight.
pub(crate) const AT_ONCE: usize = 64;
/// HBase counts versions in a signed number.
const VERSIONS_MAX: u32 = i32::MAX as u32;

/// A table of HBase, made by [`HbaseStore`](crate::HbaseStore).
#[derive(Debug)]
pub(crate) struct HbaseTable {
    name: String,
    /// The table's name in `hbase:meta`.
    id: Bytes,
    schema: TableSchema,
    client: Arc<Client>,
    pub(crate) upkeep: Mutex<Upkeep>,
}

/// The columns of one family that a `Get` or a scan requests.
#[derive(Debug, Default)]
struct WantedFamily {
    /// Every qualifier.
    all: bool,
    qualifiers: BTreeSet<Bytes>,
    times: Option<TimeRange>,
    /// True if parts of the selection have different times. Then the newest cells of all are
    /// not always the newest of each part.
    mixed: bool,
    versions_max: u32,
}

/// The cells that a `Get` or a scan requests.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    families: BTreeMap<Bytes, WantedFamily>,
}

impl Wanted {
    /// Adds all versions of columns in a range of times.
    pub(crate) fn add(&mut self, family: &Family, qualifiers: &Qualifiers, time: TimeRange) {
        self.add_versions(family, qualifiers, time, VERSIONS_MAX);
    }

    fn add_versions(&mut self, of: &Family, qualifiers: &Qualifiers, time: TimeRange, max: u32) {
        if time.from > time.to || max == 0 {
            return;
        }
        let family = self.families.entry(encode::family(of)).or_default();
        match qualifiers {
            Qualifiers::All => family.all = true,
            Qualifiers::Is(name) => drop(family.qualifiers.insert(encode::qualifier(name))),
        }
        family.versions_max = family.versions_max.max(max.min(VERSIONS_MAX));
        family.mixed |= family.times.is_some_and(|times| times != time);
        family.times = Some(family.times.map_or(time, |times| TimeRange {
            from: times.from.min(time.from),
            to: times.to.max(time.to),
        }));
    }

    fn columns(&self) -> Vec<Column> {
        let columns = self.families.iter().map(|(name, family)| Column {
            family: name.clone(),
            qualifier: if family.all {
                Vec::new()
            } else {
                family.qualifiers.iter().cloned().collect()
            },
        });
        columns.collect()
    }

    fn times(&self) -> Vec<FamilyTimeRange> {
        let families = self.families.iter().filter_map(|(name, family)| {
            let time_range = encode_time(family.times?);
            Some(FamilyTimeRange { column_family: name.clone(), time_range })
        });
        families.collect()
    }

    fn versions_max(&self) -> u32 {
        let of =
            |family: &WantedFamily| if family.mixed { VERSIONS_MAX } else { family.versions_max };
        self.families.values().map(of).max().unwrap_or(1)
    }

    fn get(&self, row: &Bytes) -> Get {
        Get {
            row: row.clone(),
            column: self.columns(),
            max_versions: Some(self.versions_max()),
            family_time_range: self.times(),
        }
    }
}

impl HbaseTable {
    pub(crate) fn new(name: &str, id: Bytes, schema: TableSchema, client: Arc<Client>) -> Self {
        HbaseTable { name: name.to_owned(), id, schema, client, upkeep: Mutex::default() }
    }

    pub(crate) fn id(&self) -> &Bytes {
        &self.id
    }

    pub(crate) fn schema(&self) -> &TableSchema {
        &self.schema
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The families most of whose cells are soon dead: those in memory, and the guards'. Each
    /// mutation leaves a dead guard.
    pub(crate) fn families_of_dead_cells(&self) -> Vec<String> {
        let groups = self.schema.groups.iter();
        let groups = groups.filter(|group| matches!(group.layout, Layout::InMemory(_)));
        let families = groups.flat_map(|group| &group.families);
        let families = families.map(|of| of.family.as_str().to_owned());
        families.chain([String::from_utf8_lossy(GUARD_FAMILY).into_owned()]).collect()
    }

    fn is_in_memory(&self, family: &Family) -> bool {
        self.schema.groups.iter().any(|group| {
            let has = group.families.iter().any(|of| of.family == *family);
            has && matches!(group.layout, Layout::InMemory(_))
        })
    }

    /// Splits a selection into its parts, in the order in which they are read.
    fn parts(&self, select: &Selection) -> Vec<Wanted> {
        let mut parts = [Wanted::default(), Wanted::default()];
        for column in &select.columns {
            let part = &mut parts[usize::from(!self.is_in_memory(&column.family))];
            part.add_versions(&column.family, &column.qualifiers, column.time, column.versions_max);
        }
        parts.into_iter().filter(|part| !part.families.is_empty()).collect()
    }

    /// Reads cells of one row, one `Get` after the other.
    async fn get(
        &self,
        row: &Bytes,
        gets: Vec<Get>,
        until: Instant,
    ) -> Result<Vec<proto::Cell>, Failure> {
        let count = gets.len();
        let indexed = gets.into_iter().zip(0..);
        let action: Vec<Action> = indexed
            .map(|(get, index)| Action { index: Some(index), get: Some(get), mutation: None })
            .collect();
        let request = |region: &Region| MultiRequest {
            region_action: vec![RegionAction {
                region: RegionSpecifier::named(&region.name),
                action: action.clone(),
                atomic: None,
                condition: None,
            }],
        };
        let place = (&self.id, &row[..]);
        let (answer, _): (MultiResponse, _) =
            self.client.on_region(place, "Multi", request, true, until).await?;
        let results = answer.region_action_result.into_iter();
        let results = results.flat_map(|of| of.result_or_exception);
        let found: Vec<_> = results.filter_map(|one| one.result).collect();
        // A missing result does not prove that there is no cell.
        if found.len() != count {
            let why = format!("the server sent {} results for {count} reads of a row", found.len());
            return Err(Failure::Lost(why));
        }
        Ok(found.into_iter().flat_map(|row| row.cell).collect())
    }

    /// Reads the wanted cells and the row's guard, as of one moment.
    pub(crate) async fn cells_and_guard(
        &self,
        row: &Bytes,
        wanted: &Wanted,
        until: Instant,
    ) -> Result<(Vec<Cell>, Bytes), Failure> {
        let mut get = wanted.get(row);
        get.column.push(encode::guard_column());
        let (mut found, mut guard) = (Vec::new(), Bytes::new());
        for cell in self.get(row, vec![get], until).await? {
            if cell.family == GUARD_FAMILY {
                guard = cell.value
            } else {
                found.extend(self.cell(cell))
            }
        }
        Ok((found, guard))
    }

    /// Converts a cell to our form; `None` for a cell that this crate did not write.
    fn cell(&self, cell: proto::Cell) -> Option<Cell> {
        let families = self.schema.groups.iter().flat_map(|group| &group.families);
        let mut families = families.map(|of| &of.family);
        let family = families.find(|family| family.as_str().as_bytes() == cell.family)?;
        Some(Cell {
            family: family.clone(),
            qualifier: cell.qualifier.strip_prefix(b"q").map(|q| cell.qualifier.slice_ref(q))?,
            timestamp: Timestamp::new(cell.timestamp)?,
            value: cell.value,
        })
    }

    /// Keeps the cells of a row that the selection names.
    fn cut(&self, row: RowKey, cells: Vec<proto::Cell>, select: &Selection) -> Row {
        let mut all: Vec<Cell> = cells.into_iter().filter_map(|cell| self.cell(cell)).collect();
        all.sort_by(|a, b| {
            let order = (a.family.as_str(), &a.qualifier).cmp(&(b.family.as_str(), &b.qualifier));
            order.then(b.timestamp.cmp(&a.timestamp))
        });
        let mut taken: BTreeMap<(usize, Bytes), u32> = BTreeMap::new();
        all.retain(|cell| {
            let entry = select.columns.iter().position(|column| selects(column, cell));
            let Some(entry) = entry else { return false };
            let taken = taken.entry((entry, cell.qualifier.clone())).or_default();
            *taken += 1;
            *taken <= select.columns[entry].versions_max
        });
        Row::new(row, all)
    }

    /// Splits the range into the part within the region and the part after it.
    pub(crate) fn split(range: &RowRange, region: &Region) -> (RowRange, Option<RowRange>) {
        if region.end.is_empty() {
            return (range.clone(), None);
        }
        let end = RowKey::from(region.end.clone());
        let within = match &range.end {
            Bound::Included(last) => *last < end,
            Bound::Excluded(last) => *last <= end,
            Bound::Unbounded => false,
        };
        if within {
            return (range.clone(), None);
        }
        let here = RowRange { start: range.start.clone(), end: Bound::Excluded(end.clone()) };
        let rest = RowRange { start: Bound::Included(end), end: range.end.clone() };
        (here, (!rest.is_empty()).then_some(rest))
    }
}

fn selects(column: &ColumnSelect, cell: &Cell) -> bool {
    let named = match &column.qualifiers {
        Qualifiers::All => true,
        Qualifiers::Is(qualifier) => *qualifier == cell.qualifier,
    };
    named && column.family == cell.family && column.time.contains(cell.timestamp)
}

#[async_trait]
impl Table for HbaseTable {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        row.check()?;
        select.check(&self.schema)?;
        let parts = self.parts(select);
        if parts.is_empty() {
            return Ok(Row { key: row.clone(), cells: Vec::new() });
        }
        let key = row.to_bytes();
        let gets = parts.iter().map(|part| part.get(&key)).collect();
        let cells = self.get(&key, gets, self.client.deadline()).await.map_err(Failure::of_read)?;
        Ok(self.cut(row.clone(), cells, select))
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        let reads = rows.iter().map(|row| self.read_row(row, select));
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        select.check(&self.schema)?;
        let range = range.clipped();
        let mut wanted = Wanted::default();
        for column in &select.columns {
            let ColumnSelect { family, qualifiers, time, versions_max } = column;
            wanted.add_versions(family, qualifiers, *time, *versions_max);
        }
        // To HBase an empty end is no end; to us no row lies before it.
        let ends_before_all = match &range.end {
            Bound::Included(end) | Bound::Excluded(end) => end.as_bytes().is_empty(),
            Bound::Unbounded => false,
        };
        if range.is_empty() || ends_before_all || wanted.families.is_empty() {
            return Ok(Page { rows: Vec::new(), resume: None });
        }
        let scan = proto::Scan {
            column: wanted.columns(),
            max_versions: Some(wanted.versions_max()),
            family_time_range: wanted.times(),
            ..proto::Scan::default()
        };
        let limit = PageLimit { rows_max: limit.rows_max.max(1), ..limit };
        let rows = crate::scan::Rows { client: &self.client, table: &self.id, scan };
        let (found, rest) =
            rows.page(&range, limit, Self::split).await.map_err(Failure::of_read)?;
        let rows = found.into_iter().map(|(row, cells)| self.cut(row.into(), cells, select));
        Ok(Page { rows: rows.filter(|row| !row.cells.is_empty()).collect(), resume: rest })
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        request.check(&self.schema)?;
        let until = self.client.deadline();
        self.change(&request.row.to_bytes(), &request.mutations, until).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        request.check(&self.schema)?;
        self.decide(&request, self.client.deadline()).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        // All have the deadline of the batch, also those that wait for a place among `AT_ONCE`.
        let until = self.client.deadline();
        let each = requests.into_iter().map(|request| async move {
            request.check(&self.schema)?;
            self.decide(&request, until).await
        });
        let each: Vec<_> = each.collect();
        stream::iter(each).buffered(AT_ONCE).collect().await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        let regions = self.client.regions(&self.id).await.map_err(Failure::of_read)?;
        // A region may be split or merged between two answers, which leaves gaps. So the ranges
        // are built from the starts alone.
        let mut starts: Vec<Bytes> = regions.into_iter().map(|region| region.start).collect();
        starts.sort();
        starts.dedup();
        starts.retain(|start| !start.is_empty());
        let mut ranges = Vec::with_capacity(starts.len() + 1);
        let mut start = Bound::Unbounded;
        for next in starts {
            let next = RowKey::from(next);
            ranges.push(RowRange { start, end: Bound::Excluded(next.clone()) });
            start = Bound::Included(next);
        }
        ranges.push(RowRange { start, end: Bound::Unbounded });
        Ok(ranges)
    }
}

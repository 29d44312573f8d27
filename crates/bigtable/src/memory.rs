//! Implements the in-memory store: ordered maps, and nothing on disk.
//!
//! This store is the model for other stores, the store of tests and simulations, and the
//! fastest store. It treats every [`Layout`] in the same way. Of an in-memory group it
//! observes only the bound, and [`OnFull::Spill`] has nothing to spill to.
//!
//! Invariant: one lock guards each table. Each operation on a row runs within one hold of this
//! lock, including the comparison with the floor.

mod data;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::Table;
use crate::store::check_table_name;
use crate::{
    CommitRows, ConditionalMutation, Error, Family, Glance, Glanced, Layout, Limits, LocalityGroup,
    Mutation, OnFull, Page, RequestSize,
};
use crate::{PageLimit, Result, Row, RowKey, RowMutation, RowRange, RowsOutcome, Selection, Store};
use crate::{TableSchema, Timestamp};

use data::Data;

/// The reason why these locks are never poisoned.
const NO_PANIC: &str = "nothing panics while it holds a lock of the store";

/// A store in memory.
///
/// Opening a table with the same name again returns the same table.
///
/// ```
/// use bigtable::{Layout, LocalityGroup, MemoryStore, Store, TableSchema, Timestamp};
/// # futures::executor::block_on(async {
/// let store = MemoryStore::new();
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// store.open_table("accounts", &schema).await?;
/// assert_eq!(store.table_names().await?, ["accounts"]);
/// assert_eq!(store.floor(), Timestamp::ZERO);
/// # Ok::<(), bigtable::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    tables: Mutex<BTreeMap<String, Arc<MemoryTable>>>,
    ungrouped: bool,
    drops_superseded: bool,
    /// The longest life of a request, in a store without a floor.
    request_life_max: Option<Duration>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// An empty store that reports no locality groups. Tests and simulations use it to run the
    /// code for such stores. It is not slower.
    ///
    /// ```
    /// use bigtable::{MemoryStore, Store};
    /// assert!(!MemoryStore::without_locality_groups().locality_groups());
    /// assert!(MemoryStore::new().locality_groups());
    /// ```
    pub fn without_locality_groups() -> Self {
        MemoryStore { ungrouped: true, ..MemoryStore::default() }
    }

    /// The same store, but it reports no floor, and that requests live at most
    /// `request_life_max`. Tests and simulations use it to run the code for such stores. Code
    /// that delays requests must observe this limit.
    ///
    /// ```
    /// use bigtable::{MemoryStore, Store};
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(MemoryStore::new().without_floors(second).request_life_max(), Some(second));
    /// ```
    pub fn without_floors(self, request_life_max: Duration) -> Self {
        MemoryStore { request_life_max: Some(request_life_max), ..self }
    }

    /// The same store, but it drops superseded versions as soon as it may
    /// ([`Table::drop_superseded`]). Tests and simulations use it to find readers that still need
    /// them.
    ///
    /// See [`Table::drop_superseded`] for an example.
    pub fn dropping_superseded(self) -> Self {
        MemoryStore { drops_superseded: true, ..self }
    }

    /// The same store, but it refuses requests beyond these limits. Tests and simulations use
    /// it to run the code for such stores.
    ///
    /// ```
    /// use bigtable::{Limits, MemoryStore, Store};
    /// let limits = Limits { mutations_max: Some(100), ..Limits::default() };
    /// assert_eq!(MemoryStore::new().with_limits(limits).limits(), limits);
    /// ```
    pub fn with_limits(self, limits: Limits) -> Self {
        MemoryStore { shared: Arc::new(Shared { limits, ..Shared::default() }), ..self }
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryTable>>> {
        self.tables.lock().expect(NO_PANIC)
    }

    fn commit_one_step(&self, request: &CommitRows) -> Result<RowsOutcome> {
        let tables = self.tables_of(request)?;
        request.check(|row| &tables[row].schema)?;
        commit_rows(&self.shared, &tables, request)
    }

    /// The table of each row.
    fn tables_of(&self, request: &CommitRows) -> Result<Vec<Arc<MemoryTable>>> {
        let tables = self.tables();
        let named = |name: &str| {
            let known = tables.get(name).cloned();
            known.ok_or_else(|| Error::invalid(format!("table {name} is not open")))
        };
        request.rows.iter().map(|row| named(&row.table)).collect()
    }
}

/// Locks the tables in the order of their names, evaluates the predicates, and writes.
fn commit_rows(
    shared: &Shared,
    tables: &[Arc<MemoryTable>],
    request: &CommitRows,
) -> Result<RowsOutcome> {
    let mut locked: Vec<(&MemoryTable, RwLockWriteGuard<'_, Data>)> = Vec::new();
    let mut data_of = Vec::with_capacity(tables.len());
    for table in tables {
        if locked.last().is_none_or(|(last, _)| last.name != table.name) {
            locked.push((table, table.write()));
        }
        data_of.push(locked.len() - 1);
    }
    shared.check_floor(Some(request.above))?;
    let rows = || request.rows.iter().zip(&data_of).enumerate();
    for (index, (row, data)) in rows() {
        let data = &locked[*data].1;
        if row.predicate.iter().any(|probe| data.finds(&row.row, probe)) {
            return Ok(RowsOutcome::Rejected { row: index });
        }
    }
    let Some(commit_ts) = request.at.timestamp() else { return Ok(RowsOutcome::NoTimestamp) };
    let mut changes = Vec::with_capacity(data_of.len());
    let mut counted = Counted::default();
    for (index, (row, data)) in rows() {
        let (table, data) = (locked[*data].0, &locked[*data].1);
        let mutations = request.mutations_at(index, commit_ts, &table.schema);
        let mutations = mutations.and_then(|mutations| {
            counted.add(table, data, &row.row, &mutations).map(|()| mutations)
        });
        match mutations {
            Ok(mutations) => changes.push(mutations),
            Err(error) => {
                counted.take_back();
                return Err(error);
            }
        }
    }
    for (mutations, (_, (row, data))) in changes.iter().zip(rows()) {
        locked[*data].1.apply(&row.row, mutations);
    }
    Ok(RowsOutcome::Committed(commit_ts))
}

/// The cells that a request has added to the gauges so far.
#[derive(Default)]
struct Counted<'a>(Vec<(&'a Gauge, isize)>);

impl<'a> Counted<'a> {
    /// Counts the cells that the mutations add to bounded groups.
    fn add(
        &mut self,
        table: &'a MemoryTable,
        data: &Data,
        row: &RowKey,
        mutations: &[Mutation],
    ) -> Result<()> {
        for (index, gauge) in table.gauges.iter().enumerate() {
            if gauge.on_full.is_some() {
                let added = data.cells_added(row, mutations, index);
                gauge.add(added)?;
                self.0.push((gauge, added));
            }
        }
        Ok(())
    }

    /// Undoes the counting. Another table may have used the freed room meanwhile; then the
    /// count is briefly above the bound.
    fn take_back(self) {
        for (gauge, added) in self.0 {
            gauge.cells.fetch_add(added.wrapping_neg() as usize, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        check_table_name(name)?;
        schema.check()?;
        let mut tables = self.tables();
        if let Some(table) = tables.get(name) {
            if table.schema != *schema {
                return Err(Error::invalid(format!("table {name} exists with another schema")));
            }
            return Ok(table.clone());
        }
        let table = Arc::new(MemoryTable {
            name: name.to_owned(),
            schema: schema.clone(),
            gauges: self.shared.gauges(schema)?,
            drops_superseded: self.drops_superseded,
            shared: self.shared.clone(),
            data: RwLock::new(Data::new(schema)),
        });
        tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        Ok(self.tables().keys().cloned().collect())
    }

    fn floor(&self) -> Timestamp {
        self.shared.floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        if self.request_life_max.is_some() {
            return Err(Error::invalid("this store has no floor"));
        }
        self.shared.floor.fetch_max(floor.as_u64(), Ordering::SeqCst);
        for table in self.tables().values() {
            // A request that saw the old floor ran within a hold of this lock. That hold has
            // ended once we get the lock.
            drop(table.write());
        }
        Ok(())
    }

    fn commits_rows(&self) -> bool {
        true
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        self.commit_one_step(&request)
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        Ok(self.commit_one_step(&request))
    }

    fn locality_groups(&self) -> bool {
        !self.ungrouped
    }

    fn request_life_max(&self) -> Option<Duration> {
        self.request_life_max
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn pressure(&self) -> f64 {
        let groups = self.shared.groups.lock().expect(NO_PANIC);
        groups.values().map(|(_, gauge)| gauge.fill()).fold(0.0, f64::max)
    }
}

/// The state that the tables of a store share.
#[derive(Debug, Default)]
struct Shared {
    limits: Limits,
    floor: AtomicU64,
    groups: Mutex<BTreeMap<String, (LocalityGroup, Arc<Gauge>)>>,
}

impl Shared {
    fn floor(&self) -> Timestamp {
        Timestamp::new(self.floor.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    /// Refuses a timestamp below the floor. The caller holds the lock of the table that it
    /// reads or changes.
    fn check_floor(&self, above: Option<Timestamp>) -> Result<()> {
        let floor = self.floor();
        match above {
            Some(asked) if asked < floor => Err(Error::TooOld { asked, floor }),
            _ => Ok(()),
        }
    }

    /// The gauges of the schema's groups, in the schema's order.
    fn gauges(&self, schema: &TableSchema) -> Result<Vec<Arc<Gauge>>> {
        let mut groups = self.groups.lock().expect(NO_PANIC);
        let known =
            |group: &LocalityGroup| groups.get(&group.name).is_none_or(|(is, _)| is == group);
        if let Some(group) = schema.groups.iter().find(|group| !known(group)) {
            return Err(Error::invalid(format!(
                "another table describes locality group {} differently",
                group.name
            )));
        }
        let mut gauge = |group: &LocalityGroup| {
            let new = || (group.clone(), Arc::new(Gauge::new(group)));
            groups.entry(group.name.clone()).or_insert_with(new).1.clone()
        };
        Ok(schema.groups.iter().map(&mut gauge).collect())
    }
}

/// Counts the cells of a bounded locality group over all tables.
#[derive(Debug)]
struct Gauge {
    group: String,
    on_full: Option<OnFull>,
    cells: AtomicUsize,
}

impl Gauge {
    fn new(group: &LocalityGroup) -> Self {
        let on_full = match group.layout {
            Layout::InMemory(on_full) => Some(on_full),
            Layout::Versions | Layout::NewestFirst => None,
        };
        Gauge { group: group.name.clone(), on_full, cells: AtomicUsize::new(0) }
    }

    /// Counts `added` more cells. Refuses if they would exceed a refusing bound.
    fn add(&self, added: isize) -> Result<()> {
        let cells_max = match self.on_full {
            Some(OnFull::Refuse { cells_max }) if added > 0 => cells_max,
            _ => usize::MAX,
        };
        let more = |cells: usize| cells.checked_add_signed(added).filter(|sum| *sum <= cells_max);
        match self.cells.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Overloaded { group: self.group.clone(), cells_max }),
        }
    }

    fn fill(&self) -> f64 {
        match self.on_full {
            Some(OnFull::Refuse { cells_max } | OnFull::Spill { cells_max }) => {
                self.cells.load(Ordering::SeqCst) as f64 / cells_max.max(1) as f64
            }
            None => 0.0,
        }
    }
}

#[derive(Debug)]
struct MemoryTable {
    name: String,
    schema: TableSchema,
    /// The gauge of each locality group, in the schema's order.
    gauges: Vec<Arc<Gauge>>,
    drops_superseded: bool,
    shared: Arc<Shared>,
    data: RwLock<Data>,
}

impl MemoryTable {
    fn read(&self) -> RwLockReadGuard<'_, Data> {
        self.data.read().expect(NO_PANIC)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Data> {
        self.data.write().expect(NO_PANIC)
    }

    /// Counts the cells that the mutations add to bounded groups, then applies the mutations:
    /// all or none.
    fn apply(&self, data: &mut Data, row: &RowKey, mutations: &[Mutation]) -> Result<()> {
        let mut counted = Counted::default();
        if let Err(error) = counted.add(self, data, row, mutations) {
            counted.take_back();
            return Err(error);
        }
        data.apply(row, mutations);
        Ok(())
    }
}

#[async_trait]
impl Table for MemoryTable {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        row.check()?;
        select.check(&self.schema)?;
        let data = self.read();
        self.shared.check_floor(select.above)?;
        Ok(data.read_row(row, select))
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        at.check(&self.schema)?;
        let data = self.read();
        self.shared.check_floor(Some(at.s))?;
        Ok(at.of(data.read_row(at.row, &at.selection())))
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        select.check(&self.schema)?;
        let data = self.read();
        self.shared.check_floor(select.above)?;
        Ok(data.scan(range, select, limit))
    }

    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        // A bounded group counts its cells, so nothing is dropped from one.
        let holds = |group: &LocalityGroup| {
            let unbounded = !matches!(group.layout, Layout::InMemory(_));
            unbounded && group.families.iter().any(|of| of.family == *family)
        };
        let drops = self.drops_superseded && self.schema.groups.iter().any(holds);
        if drops {
            self.write().drop_superseded(family, up_to.min(self.shared.floor()), keep);
        }
        drops
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        request.check(&self.schema)?;
        let row = RequestSize::of_row(request.row.as_bytes());
        self.shared.limits.check(request.mutations.iter().fold(row, RequestSize::and))?;
        self.apply(&mut self.write(), &request.row, &request.mutations)
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        request.check(&self.schema)?;
        self.shared.limits.check(request.size())?;
        let mut data = self.write();
        self.shared.check_floor(request.above)?;
        let holds = request.predicate.iter().any(|probe| data.finds(&request.row, probe));
        let mutations = if holds { &request.then } else { &request.otherwise };
        self.apply(&mut data, &request.row, mutations)?;
        Ok(holds)
    }
}

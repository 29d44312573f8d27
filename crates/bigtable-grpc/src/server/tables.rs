//! Keeps the tables that the server serves: it opens, creates and deletes them, and changes
//! their families.
//!
//! ```text
//!   .tables   in the engine: row "t00000007" -> the record of a table (schema.rs)
//!   t00000007 in the engine: its cells (layout.rs)
//! ```
//!
//! Invariants:
//!
//! * A record is durable before the server does anything that relies on it.
//! * A writer of cells holds the table's schema for reading until the cells are written. A
//!   change of the schema holds it for writing. So no cell is written to a family after it was
//!   dropped.
//! * If the process ends during a deletion, the next start removes the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigtable::{Family, Layout, LocalityGroup, Mutation, PageLimit, RowMutation, RowRange};
use bigtable::{Selection, Store as _, Syncing, Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{FjallStore, FjallTable};
use tokio::sync::{Mutex, OwnedRwLockReadGuard, RwLock};
use tonic::Status;

use super::purge;
use super::schema::{Schema, TableRecord};
use super::status::of_engine;
use super::{layout, limits, rules};

/// The table of the engine in which a server lists its tables. A directory with this table holds a
/// server's store.
pub const CATALOG_TABLE: &str = ".tables";
const META: Family = Family::from_static("meta");
const RECORD: &[u8] = b"record";

/// All tables of the server.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(super) store: Arc<FjallStore>,
    catalog: FjallTable,
    served: RwLock<BTreeMap<String, Arc<Served>>>,
    /// Locked during changes of tables or schemas.
    changing: Mutex<()>,
}

/// A table that the server serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) engine: FjallTable,
    schema: Arc<RwLock<Arc<Schema>>>,
}

impl Served {
    /// The current schema, for reading rows.
    pub(crate) async fn schema(&self) -> Arc<Schema> {
        self.schema.read().await.clone()
    }

    /// The schema, which cannot change while the guard is held; for writing rows.
    pub(crate) async fn hold_schema(&self) -> Result<OwnedRwLockReadGuard<Arc<Schema>>, Status> {
        let held = self.schema.clone().read_owned().await;
        if held.record.deleted { Err(not_found(&held.record.name)) } else { Ok(held) }
    }
}

impl Tables {
    /// Opens all tables of the store, and finishes interrupted deletions. Refuses a store that a
    /// server did not make: a client would see none of its tables.
    pub(crate) async fn open(store: FjallStore) -> bigtable::Result<Self> {
        let names = store.table_names().await?;
        if !names.is_empty() && !names.iter().any(|name| name == CATALOG_TABLE) {
            return Err(bigtable::Error::Files {
                path: store.directory().to_owned(),
                problem: "the directory holds a database that a program opens itself, and no \
                          tables of a table server"
                    .to_owned(),
                remedy: "give the server a directory of its own, and use this one with \
                         `percolator COMMAND --data DIR` or `Percolator::open`"
                    .to_owned(),
            });
        }
        let group = LocalityGroup::on_disk("meta", Layout::Versions);
        let schema = TableSchema { groups: vec![group] };
        let catalog = store.open_fjall_table(CATALOG_TABLE, &schema).await?;
        // Upkeep, so that a full disk still takes the record that deletes a table.
        catalog.set_upkeep();
        let mut served = BTreeMap::new();
        let mut deleted = Vec::new();
        for record in records(&catalog).await? {
            let name = TableRecord::engine_name(record.number);
            let engine = store.open_fjall_table(&name, &layout::engine_schema()).await?;
            if record.deleted {
                deleted.push(record);
            } else {
                served.insert(record.name.clone(), Arc::new(new_served(&store, engine, record)));
            }
        }
        let tables = Tables {
            store: Arc::new(store),
            catalog,
            served: RwLock::new(served),
            changing: Mutex::default(),
        };
        for record in deleted {
            tables.finish_delete(&record).await?;
        }
        for table in tables.all().await {
            tables.remove_dropped_families(&table).await?;
        }
        Ok(tables)
    }

    /// Finds a table by its full name.
    pub(crate) async fn table(&self, name: &str) -> Result<Arc<Served>, Status> {
        super::names::check_table(name)?;
        self.served.read().await.get(name).cloned().ok_or_else(|| not_found(name))
    }

    /// All tables.
    pub(crate) async fn all(&self) -> Vec<Arc<Served>> {
        self.served.read().await.values().cloned().collect()
    }

    /// The schemas of the tables whose names have this prefix, sorted by name.
    pub(crate) async fn schemas(&self, prefix: &str) -> Vec<Arc<Schema>> {
        let mut schemas = Vec::new();
        for (name, table) in &*self.served.read().await {
            if name.starts_with(prefix) {
                schemas.push(table.schema().await);
            }
        }
        schemas
    }

    /// Creates a table with these families and their rules.
    pub(crate) async fn create(
        &self,
        name: &str,
        families: Vec<(String, Vec<u8>)>,
        splits: Vec<Vec<u8>>,
        deletion_protection: bool,
    ) -> Result<Arc<Schema>, Status> {
        let _changing = self.changing.lock().await;
        if self.served.read().await.contains_key(name) {
            return Err(Status::already_exists(format!("table {name} exists already")));
        }
        let records = records(&self.catalog).await.map_err(of_engine)?;
        if records.len() >= limits::TABLES_MAX {
            return Err(Status::resource_exhausted(format!(
                "there are {} tables already: delete some",
                records.len()
            )));
        }
        let number = records.iter().map(|record| record.number + 1).max().unwrap_or(0);
        let mut record = TableRecord {
            name: name.to_owned(),
            number,
            families: Vec::new(),
            next_family: 0,
            deletion_protection,
            splits,
            dead_families: Vec::new(),
            deleted: false,
        };
        for (family, gc_rule) in families {
            record.add_family(&family, gc_rule);
        }
        let ruled = record.families.iter().any(|family| !family.gc_rule.is_empty());
        if ruled && rules::is_percolators(&record) {
            return Err(rules::percolators(&record));
        }
        let engine_name = TableRecord::engine_name(number);
        let schema = layout::engine_schema();
        let opened = self.store.open_fjall_table(&engine_name, &schema).await;
        let engine = opened.map_err(of_engine)?;
        self.put(&record).await?;
        let table = new_served(&self.store, engine, record);
        let schema = table.schema().await;
        self.served.write().await.insert(name.to_owned(), Arc::new(table));
        Ok(schema)
    }

    /// Changes a table's record, and removes the cells of families that `change` drops. If
    /// `change` fails, nothing changes.
    pub(crate) async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut TableRecord) -> Result<(), Status>,
    ) -> Result<Arc<Schema>, Status> {
        let _changing = self.changing.lock().await;
        let table = self.table(name).await?;
        let schema = {
            let mut held = table.schema.write().await;
            let mut record = held.record.clone();
            change(&mut record)?;
            self.put(&record).await?;
            *held = Arc::new(Schema::new(record));
            held.clone()
        };
        if !schema.record.dead_families.is_empty() {
            self.remove_dropped_families(&table).await.map_err(of_engine)?;
        }
        Ok(schema)
    }

    /// Deletes a table.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Status> {
        let _changing = self.changing.lock().await;
        let table = self.table(name).await?;
        let record = {
            let mut held = table.schema.write().await;
            if held.record.deletion_protection {
                return Err(protected(name));
            }
            let record = TableRecord { deleted: true, ..held.record.clone() };
            self.put(&record).await?;
            *held = Arc::new(Schema::new(record.clone()));
            record
        };
        self.served.write().await.remove(name);
        self.finish_delete(&record).await.map_err(of_engine)
    }

    /// Removes the cells of a deleted table, then its record.
    async fn finish_delete(&self, record: &TableRecord) -> bigtable::Result<()> {
        let name = TableRecord::engine_name(record.number);
        let store = self.store.clone();
        let dropped = {
            let name = name.clone();
            tokio::task::spawn_blocking(move || store.drop_table(&name)).await
        };
        dropped.map_err(|error| bigtable::Error::Unknown { why: error.to_string() })??;
        let delete = Mutation::delete(META, RECORD, TimeRange::ALL);
        self.catalog.mutate_row(RowMutation::new(name).mutation(delete)).await
    }

    /// Removes the cells of the table's dropped families, then their entries in the record.
    async fn remove_dropped_families(&self, table: &Served) -> bigtable::Result<()> {
        let dead = table.schema().await.record.dead_families.clone();
        if dead.is_empty() {
            return Ok(());
        }
        purge::families(&table.engine, &dead).await?;
        let mut held = table.schema.write().await;
        let record = TableRecord { dead_families: Vec::new(), ..held.record.clone() };
        put(&self.catalog, &record).await?;
        *held = Arc::new(Schema::new(record));
        Ok(())
    }

    async fn put(&self, record: &TableRecord) -> Result<(), Status> {
        put(&self.catalog, record).await.map_err(of_engine)
    }
}

fn new_served(store: &FjallStore, engine: FjallTable, record: TableRecord) -> Served {
    let own_name = record.name.rsplit('/').next().unwrap_or_default();
    if store.options().upkeep_tables.iter().any(|name| name == own_name) {
        engine.set_upkeep();
    }
    Served { engine, schema: Arc::new(RwLock::new(Arc::new(Schema::new(record)))) }
}

pub(crate) fn not_found(name: &str) -> Status {
    Status::not_found(format!("table {name} does not exist: create it first"))
}

pub(crate) fn protected(name: &str) -> Status {
    Status::failed_precondition(format!(
        "table {name} is protected against deletion: update it with deletion_protection=false first"
    ))
}

async fn put(catalog: &FjallTable, record: &TableRecord) -> bigtable::Result<()> {
    let bytes = record.encode().map_err(bigtable::Error::InvalidRequest)?;
    let set = Mutation::set(META, RECORD, Timestamp::ZERO, bytes);
    let request = RowMutation::new(TableRecord::engine_name(record.number)).mutation(set);
    catalog.mutate_row(request.sync(Syncing::Always)).await
}

async fn records(catalog: &FjallTable) -> bigtable::Result<Vec<TableRecord>> {
    let select = Selection::default().family(META, TimeRange::ALL, 1);
    let mut records = Vec::new();
    let mut next = Some(RowRange::all());
    while let Some(range) = next {
        let page = catalog.scan(&range, &select, PageLimit::default()).await?;
        for row in page.rows {
            let Some(cell) = row.newest(&META, RECORD) else { continue };
            let record = TableRecord::decode(&cell.value).map_err(|problem| {
                bigtable::Error::InvalidRequest(format!(
                    "the record of table {} is {problem}: open the data with the release that \
                     wrote it, or restore it from a backup",
                    row.key
                ))
            })?;
            records.push(record);
        }
        next = page.resume;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes records without their tables: a thousand tables would take too long.
    #[tokio::test]
    async fn refusals_of_tables_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let options = bigtable_fjall::Options {
            durability: bigtable_fjall::Durability::Buffered,
            ..Default::default()
        };
        let store = FjallStore::open(dir.path().join("data"), options).unwrap();
        let tables = Tables::open(store).await.unwrap();
        let first = u32::try_from(limits::TABLES_MAX).unwrap();
        for number in first..first * 2 - 1 {
            let record = TableRecord {
                name: format!("projects/p/instances/i/tables/t{number}"),
                number,
                families: Vec::new(),
                next_family: 0,
                deletion_protection: false,
                splits: Vec::new(),
                dead_families: Vec::new(),
                deleted: false,
            };
            let set = Mutation::set(META, RECORD, Timestamp::ZERO, record.encode().unwrap());
            let put = RowMutation::new(TableRecord::engine_name(number)).mutation(set);
            tables.catalog.mutate_row(put).await.unwrap();
        }
        let create =
            async |name: &str| tables.create(name, Vec::new(), Vec::new(), false).await.map(drop);
        create("projects/p/instances/i/tables/last").await.unwrap();
        let refused = create("projects/p/instances/i/tables/beyond").await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("1000"), "{refused}");
    }
}

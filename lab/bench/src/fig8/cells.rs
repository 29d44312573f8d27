//! Implements one copy of the cells in any store, and remembers the last write of each.
//!
//! Each cell's value contains the cell's number and the number of its writes, so that a wrong
//! read is noticed. Callers that write at the same time share no cell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bigtable::{ConditionalMutation, Family, Mutation, RowKey, RowMutation};
use bigtable::{Selection, TimeRange, Timestamp};
use fjall::PersistMode;
use percolator::{Bytes, Client, Snapshot};
use rand::RngCore;
use rand::rngs::SmallRng;

use super::postgres::Rows;
use crate::micro::bed::{self, AT_ONCE, COLUMN, NEWEST, QUALIFIER, VALUE_BYTES, is_value, key};

pub(super) const LOCKS: Family = Family::from_static("locks");
/// The family of raw cells, with all versions together.
pub(super) const VERSIONS: Family = Family::from_static("versions");

/// Bytes that our store adds to each version in a pack.
const STAMP_BYTES: usize = 8;

/// The place of the cells, and the way to reach them.
pub(super) enum Place {
    Fjall {
        db: fjall::Database,
        keyspace: fjall::Keyspace,
        sync: bool,
    },
    /// Keyspaces of the bare engine with the writes of our raw table. One holds the newest
    /// versions of a cell together, the other the versions that no longer fit there.
    Packs {
        db: fjall::Database,
        newest: fjall::Keyspace,
        history: fjall::Keyspace,
        /// Number of versions held together.
        versions: usize,
    },
    /// A keyspace with the engine's own optimistic transactions.
    Optimistic {
        db: fjall::OptimisticTxDatabase,
        keyspace: fjall::OptimisticTxKeyspace,
        sync: bool,
    },
    /// A keyspace with the engine's own transactions that take turns.
    SingleWriter {
        db: fjall::SingleWriterTxDatabase,
        keyspace: fjall::SingleWriterTxKeyspace,
        sync: bool,
    },
    /// A table of the store beneath the transactions, and its family.
    Raw {
        table: Arc<dyn bigtable::Table>,
        family: Family,
    },
    /// The same, where each write is two mutations: those of a transaction's two phases.
    Twice {
        table: Arc<dyn bigtable::Table>,
    },
    Percolator {
        client: Client,
        table: percolator::Table,
    },
    Postgres(Rows),
}

pub(super) struct Cells {
    place: Place,
    keys: Arc<Vec<RowKey>>,
    written: Arc<Vec<AtomicU64>>,
    /// Reads that returned something other than the last write.
    wrong: AtomicU64,
}

/// Number of cells that a caller reads at one snapshot.
const GETS_A_SNAPSHOT: usize = 100;

/// A caller's snapshot, used several times because the paper's Figure 8 does not count
/// timestamps. Nothing is written while an arm reads, so the snapshot stays current.
#[derive(Debug, Default)]
pub(super) struct Held(Option<(Snapshot, usize)>);

impl Held {
    async fn snapshot(&mut self, client: &Client) -> anyhow::Result<&Snapshot> {
        let used = self.0.take().filter(|(_, uses)| *uses < GETS_A_SNAPSHOT);
        let (snapshot, uses) = match used {
            Some(used) => used,
            None => (client.snapshot().await?, 0),
        };
        Ok(&self.0.insert((snapshot, uses + 1)).0)
    }
}

/// Number of versions of a cell that a store with these options keeps together.
pub(super) fn pack_versions(options: &bigtable_fjall::Options) -> usize {
    options.pack_versions_max.min(options.pack_bytes_max / (STAMP_BYTES + VALUE_BYTES)).max(1)
}

/// Bytes that stand for this many older versions.
fn older_versions(count: usize, random: &mut SmallRng) -> Vec<u8> {
    let mut versions = vec![0; count * (STAMP_BYTES + VALUE_BYTES)];
    random.fill_bytes(&mut versions);
    versions
}

impl Cells {
    pub(super) fn new(place: Place, keys: &Arc<Vec<RowKey>>) -> Self {
        let written: Vec<_> = (0..keys.len()).map(|_| AtomicU64::new(0)).collect();
        Cells { place, keys: keys.clone(), written: Arc::new(written), wrong: AtomicU64::new(0) }
    }

    /// The same copy, reached through another client.
    pub(super) fn through(&self, place: Place) -> Self {
        let (keys, written) = (self.keys.clone(), self.written.clone());
        Cells { place, keys, written, wrong: AtomicU64::new(0) }
    }

    pub(super) fn keys(count: usize) -> Arc<Vec<RowKey>> {
        Arc::new((0..count).map(key).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Writes every cell once, many at a time, and no more durably than loading needs.
    pub(super) async fn load(&self, random: &mut SmallRng) -> anyhow::Result<()> {
        for first in (0..self.len()).step_by(AT_ONCE) {
            let cells: Vec<usize> = (first..(first + AT_ONCE).min(self.len())).collect();
            self.load_some(&cells, random).await?;
        }
        match &self.place {
            Place::Fjall { db, .. } => db.persist(PersistMode::SyncData)?,
            Place::Postgres(rows) => rows.loaded().await?,
            _ => {}
        }
        Ok(())
    }

    async fn load_some(&self, cells: &[usize], random: &mut SmallRng) -> anyhow::Result<()> {
        match &self.place {
            Place::Raw { table, family } => {
                let set = |cell: &usize| {
                    let otherwise = vec![self.mutation(family, *cell, random)];
                    let request = ConditionalMutation::new(&self.keys[*cell]);
                    ConditionalMutation { otherwise, ..request }
                };
                let requests = cells.iter().map(set).collect();
                bed::all(table.check_and_mutate_rows(requests).await)?;
            }
            Place::Fjall { .. }
            | Place::Packs { .. }
            | Place::Optimistic { .. }
            | Place::SingleWriter { .. } => {
                for &cell in cells {
                    self.set_one(cell, 0, random, false).await?;
                }
            }
            Place::Twice { .. } | Place::Percolator { .. } | Place::Postgres(_) => {
                self.set(cells, 0, random).await?;
            }
        }
        Ok(())
    }

    fn value(&self, cell: usize, random: &mut SmallRng) -> [u8; VALUE_BYTES] {
        let written = self.written[cell].fetch_add(1, Ordering::Relaxed) + 1;
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&(cell as u64).to_be_bytes());
        value[8..16].copy_from_slice(&written.to_be_bytes());
        random.fill_bytes(&mut value[16..]);
        value
    }

    /// Counts a read whose value is not the last one written.
    fn check(&self, cell: usize, value: Option<&[u8]>) {
        let written = self.written[cell].load(Ordering::Relaxed);
        if !value.is_some_and(|value| is_value(value, cell, written)) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn mutation(&self, family: &Family, cell: usize, random: &mut SmallRng) -> Mutation {
        let value = Bytes::copy_from_slice(&self.value(cell, random));
        let written = self.written[cell].load(Ordering::Relaxed);
        let version = Timestamp::new(written).unwrap_or(Timestamp::MAX);
        Mutation::set(family.clone(), QUALIFIER, version, value)
    }

    /// Reads the newest version of a cell; in a table with transactions, at a snapshot.
    pub(super) async fn get(
        &self,
        cell: usize,
        caller: usize,
        held: &mut Held,
    ) -> anyhow::Result<()> {
        let key = self.keys[cell].as_bytes();
        let found = match &self.place {
            Place::Fjall { keyspace, .. } => keyspace.get(key)?,
            Place::Packs { newest, .. } => newest.get(key)?,
            Place::Optimistic { keyspace, .. } => keyspace.get(key)?,
            Place::SingleWriter { keyspace, .. } => keyspace.get(key)?,
            Place::Raw { table, family } => return self.get_raw(&**table, family, cell).await,
            Place::Twice { table } => return self.get_raw(&**table, &NEWEST, cell).await,
            Place::Percolator { client, table } => {
                let snapshot = held.snapshot(client).await?;
                let found = snapshot.get(table, &self.keys[cell], &COLUMN).await?;
                self.check(cell, found.as_deref());
                return Ok(());
            }
            Place::Postgres(rows) => {
                self.check(cell, rows.get(caller, key).await?.as_deref());
                return Ok(());
            }
        };
        // A pack begins with the newest value.
        self.check(cell, found.as_ref().and_then(|found| found.get(..VALUE_BYTES)));
        Ok(())
    }

    async fn get_raw(
        &self,
        table: &dyn bigtable::Table,
        family: &Family,
        cell: usize,
    ) -> anyhow::Result<()> {
        let newest = Selection::default().column(family.clone(), QUALIFIER, TimeRange::ALL, 1);
        let row = table.read_row(&self.keys[cell], &newest).await?;
        self.check(cell, row.newest(family, QUALIFIER).map(|found| &found.value[..]));
        Ok(())
    }

    pub(super) async fn snapshot_get(&self, cell: usize) -> anyhow::Result<()> {
        self.get(cell, 0, &mut Held::default()).await
    }

    pub(super) async fn begin_get(&self, cell: usize) -> anyhow::Result<()> {
        let Place::Percolator { client, table } = &self.place else {
            anyhow::bail!("there are no transactions to begin")
        };
        let tx = client.begin().await?;
        let value = tx.get(table, &self.keys[cell], &COLUMN).await?;
        self.check(cell, value.as_deref());
        Ok(())
    }

    /// Writes these cells: in one transaction, or one after another where there are none.
    pub(super) async fn set(
        &self,
        cells: &[usize],
        caller: usize,
        random: &mut SmallRng,
    ) -> anyhow::Result<()> {
        if let Place::Percolator { client, table } = &self.place {
            let mut tx = client.begin().await?;
            for &cell in cells {
                let value = Bytes::copy_from_slice(&self.value(cell, random));
                tx.set(table, &self.keys[cell], &COLUMN, value)?;
            }
            tx.commit().await?;
            return Ok(());
        }
        for &cell in cells {
            self.set_one(cell, caller, random, true).await?;
        }
        Ok(())
    }

    /// Writes a cell. Only a `durable` write of the bare engine is synced, where its place demands
    /// that.
    async fn set_one(
        &self,
        cell: usize,
        caller: usize,
        random: &mut SmallRng,
        durable: bool,
    ) -> anyhow::Result<()> {
        let key = self.keys[cell].as_bytes();
        let synced = |sync: bool| sync && durable;
        let mode =
            |sync: bool| if synced(sync) { PersistMode::SyncData } else { PersistMode::Buffer };
        match &self.place {
            Place::Fjall { db, keyspace, sync } => {
                // An insert survives the end of the process without a sync.
                keyspace.insert(key, self.value(cell, random))?;
                if synced(*sync) {
                    db.persist(PersistMode::SyncData)?;
                }
            }
            Place::Packs { db, newest, history, versions } => {
                let value = self.value(cell, random);
                let written = self.written[cell].load(Ordering::Relaxed);
                let before = (written - 1) as usize % versions;
                let older = older_versions(before, random);
                // Our packs have the stamp first. Here the value comes first, because reads
                // compare it.
                let pack = [&value[..], &[0; STAMP_BYTES], &older].concat();
                if before == 0 && written > 1 {
                    let mut batch = db.batch().durability(Some(PersistMode::Buffer));
                    let older = [key, &written.to_be_bytes()].concat();
                    batch.insert(history, older, older_versions(*versions, random));
                    batch.insert(newest, key, pack);
                    batch.commit()?;
                } else {
                    newest.insert(key, pack)?;
                }
            }
            Place::Optimistic { db, keyspace, sync } => {
                let mut tx = db.write_tx()?.durability(Some(mode(*sync)));
                tx.insert(keyspace, key, self.value(cell, random));
                // Nothing else writes meanwhile, so there is no conflict.
                tx.commit()??;
            }
            Place::SingleWriter { db, keyspace, sync } => {
                let mut tx = db.write_tx().durability(Some(mode(*sync)));
                tx.insert(keyspace, key, self.value(cell, random));
                tx.commit()?;
            }
            Place::Raw { table, family } => {
                let set = self.mutation(family, cell, random);
                table.mutate_row(RowMutation::new(&self.keys[cell]).mutation(set)).await?;
            }
            Place::Twice { table } => {
                let set = self.mutation(&NEWEST, cell, random);
                let Mutation::Set { timestamp, value, .. } = &set else { return Ok(()) };
                let lock = Mutation::set(LOCKS, QUALIFIER, *timestamp, value.clone());
                let unlock = Mutation::delete(LOCKS, QUALIFIER, TimeRange::at(*timestamp));
                let row = || RowMutation::new(&self.keys[cell]);
                table.mutate_row(row().mutation(lock)).await?;
                table.mutate_row(row().mutation(set).mutation(unlock)).await?;
            }
            Place::Postgres(rows) => {
                rows.set(caller, key, &self.value(cell, random)).await?;
            }
            Place::Percolator { .. } => anyhow::bail!("transactions write all of their cells"),
        }
        Ok(())
    }

    pub(super) async fn check_all(&self) -> anyhow::Result<()> {
        let mut held = Held::default();
        for cell in 0..self.len() {
            self.get(cell, 0, &mut held).await?;
        }
        Ok(())
    }
}

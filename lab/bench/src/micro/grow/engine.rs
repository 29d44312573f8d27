//! The bare engine: one keyspace, without versions and transactions.

use std::ops::Range;
use std::path::Path;

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, UserValue};

use super::work::{Drawn, GrowWork, Program, SCANNED, is_value, name};

/// Most sealed buffers that wait to be written out.
const SEALED_MAX: usize = 3;
/// Rows that are written between two checks for a full write buffer.
const LOOKED_FOR_EVERY: u64 = 256;

pub(crate) struct Engine {
    db: Database,
    rows: Keyspace,
    /// Rows that were written since the last check for a full write buffer.
    changed: u64,
}

impl Engine {
    /// Opens or creates a store with this many bytes of cache.
    pub(crate) fn at(dir: &Path, cache_bytes: u64) -> fjall::Result<Self> {
        let db = Database::builder(dir).cache_size(cache_bytes).worker_threads(1).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
        let rows = db.keyspace("rows", options)?;
        Ok(Engine { db, rows, changed: 0 })
    }

    pub(crate) fn value(&self, name: impl AsRef<[u8]>) -> fjall::Result<Option<UserValue>> {
        self.rows.get(name)
    }

    /// Writes rows in one batch, without a sync.
    pub(crate) fn write<N: AsRef<[u8]>>(
        &mut self,
        rows: impl IntoIterator<Item = (N, Vec<u8>)>,
    ) -> fjall::Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        let mut written = 0;
        for (name, value) in rows {
            batch.insert(&self.rows, name.as_ref(), value);
            written += 1;
        }
        batch.commit()?;
        self.changed += written;
        if self.changed >= LOOKED_FOR_EVERY {
            self.changed = 0;
            self.seal_full()?;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> fjall::Result<()> {
        self.db.persist(PersistMode::SyncAll)
    }

    /// Seals a full write buffer, as stores do (`bigtable-fjall/src/upkeep/seal.rs`). The engine
    /// might otherwise stop sealing them by itself.
    fn seal_full(&self) -> fjall::Result<()> {
        let full = bigtable_fjall::Options::default().write_buffer_bytes;
        if self.rows.tree.active_memtable().size() < full {
            return Ok(());
        }
        while self.rows.sealed_memtable_count() >= SEALED_MAX {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.rows.rotate_memtable()?;
        Ok(())
    }
}

impl Program for Engine {
    async fn open(work: &GrowWork) -> anyhow::Result<Self> {
        Ok(Engine::at(&work.data, work.cache_mb << 20)?)
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.sync()?)
    }

    async fn load(&mut self, rows: Range<u64>, drawn: &mut Drawn) -> anyhow::Result<()> {
        Ok(self.write(rows.map(|row| (name(row), drawn.value(row))))?)
    }

    async fn get(&mut self, row: u64) -> anyhow::Result<bool> {
        Ok(self.value(name(row))?.is_some_and(|value| is_value(&value, row)))
    }

    async fn update(&mut self, rows: &[u64], drawn: &mut Drawn) -> anyhow::Result<u64> {
        let mut wrong = 0;
        for row in rows {
            wrong += u64::from(!self.get(*row).await?);
        }
        self.write(rows.iter().map(|row| (name(*row), drawn.value(*row))))?;
        Ok(wrong)
    }

    async fn observed(&mut self, _: u64, _: &mut Drawn) -> anyhow::Result<bool> {
        Ok(false)
    }

    async fn scan(&mut self, from: u64) -> anyhow::Result<(usize, u64)> {
        let (mut seen, mut wrong) = (0, 0);
        for entry in self.rows.range(name(from)..).take(SCANNED) {
            let (name, value) = entry.into_inner()?;
            wrong += u64::from(name.is_empty() || value.is_empty());
            seen += 1;
        }
        Ok((seen, wrong))
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

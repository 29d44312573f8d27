//! Grows the bare engine: one keyspace, without versions and transactions.

use std::ops::Range;

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::work::{Drawn, GrowWork, Program, SCANNED, is_value, name};

/// Most sealed buffers that wait to be written out.
const SEALED_MAX: usize = 3;
/// Operations between two checks for a full write buffer.
const LOOKED_FOR_EVERY: u64 = 256;

pub(super) struct Engine {
    db: Database,
    rows: Keyspace,
    changed: u64,
}

impl Engine {
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
        let db = Database::builder(&work.data)
            .cache_size(work.cache_mb << 20)
            .worker_threads(1)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
        let rows = db.keyspace("rows", options)?;
        Ok(Engine { db, rows, changed: 0 })
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    async fn load(&mut self, rows: Range<u64>, drawn: &mut Drawn) -> anyhow::Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for row in rows {
            batch.insert(&self.rows, name(row), drawn.value(row));
        }
        batch.commit()?;
        Ok(self.seal_full()?)
    }

    async fn get(&mut self, row: u64) -> anyhow::Result<bool> {
        Ok(self.rows.get(name(row))?.is_some_and(|value| is_value(&value, row)))
    }

    async fn update(&mut self, rows: &[u64], drawn: &mut Drawn) -> anyhow::Result<u64> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        let mut wrong = 0;
        for row in rows {
            wrong += u64::from(!self.get(*row).await?);
            batch.insert(&self.rows, name(*row), drawn.value(*row));
        }
        batch.commit()?;
        self.changed += 1;
        if self.changed.is_multiple_of(LOOKED_FOR_EVERY) {
            self.seal_full()?;
        }
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

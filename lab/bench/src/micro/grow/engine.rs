//! Grows the bare engine: one keyspace, without versions and transactions.

use std::ops::Range;

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::work::{AT_ONCE, Drawn, GrowWork, Operation, Program, SCANNED, is_value, name};

/// Most sealed buffers that wait to be written out.
const SEALED_MAX: usize = 3;
/// Operations between two checks for a full write buffer.
const LOOKED_FOR_EVERY: u64 = 256;

pub(super) struct Engine {
    db: Database,
    rows: Keyspace,
    seed: u64,
    changed: u64,
    wrong: u64,
}

impl Engine {
    fn get(&self, row: u64) -> fjall::Result<bool> {
        Ok(self.rows.get(name(row))?.is_some_and(|value| is_value(&value, row)))
    }

    fn update(&mut self, rows: &[u64], drawn: &mut Drawn) -> fjall::Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for row in rows {
            self.wrong += u64::from(!self.get(*row)?);
            batch.insert(&self.rows, name(*row), drawn.value(*row));
        }
        batch.commit()?;
        self.changed += 1;
        if self.changed.is_multiple_of(LOOKED_FOR_EVERY) { self.seal_full() } else { Ok(()) }
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

    fn scan(&mut self, from: u64) -> fjall::Result<usize> {
        let mut seen = 0;
        for entry in self.rows.range(name(from)..).take(SCANNED) {
            let (name, value) = entry.into_inner()?;
            self.wrong += u64::from(name.is_empty() || value.is_empty());
            seen += 1;
        }
        Ok(seen)
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
        Ok(Engine { db, rows, seed: work.seed, changed: 0, wrong: 0 })
    }

    async fn close(self) -> anyhow::Result<u64> {
        self.db.persist(PersistMode::SyncAll)?;
        Ok(self.wrong)
    }

    async fn load(&mut self, rows: Range<u64>) -> anyhow::Result<()> {
        let mut drawn = Drawn::new(self.seed, rows.end);
        for first in rows.clone().step_by(AT_ONCE as usize) {
            let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
            for row in first..(first + AT_ONCE).min(rows.end) {
                batch.insert(&self.rows, name(row), drawn.value(row));
            }
            batch.commit()?;
            self.seal_full()?;
        }
        Ok(())
    }

    async fn one(
        &mut self,
        operation: Operation,
        drawn: &mut Drawn,
    ) -> anyhow::Result<Option<usize>> {
        match operation {
            Operation::Get => {
                let found = self.get(drawn.row())?;
                self.wrong += u64::from(!found);
            }
            Operation::Absent => {
                let found = self.get(drawn.absent())?;
                self.wrong += u64::from(found);
            }
            Operation::Update => self.update(&[drawn.row()], drawn)?,
            Operation::Two => {
                let rows = [drawn.row(), drawn.row()];
                self.update(&rows, drawn)?;
            }
            Operation::Observed => return Ok(None),
            Operation::Scan => return Ok(Some(self.scan(drawn.row())?)),
        }
        Ok(Some(1))
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

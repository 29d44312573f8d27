//! Names the writer of the search index in the store, so that a worker that hangs is replaced.
//!
//! A worker that dies loses the lock on its directory, and another worker continues there. A
//! worker that hangs keeps that lock. Therefore the store has a record of the writer: its name, the
//! **generation** of its directory, and a counter, the **beat**. The writer raises the beat every
//! 10 seconds, in the loop that also takes the index's own lock. So a write that hangs on the disk
//! stops the beat, too.
//!
//! A waiting worker replaces a writer whose record has not changed for 30 seconds. It measures that
//! time with its own clock, and begins again if it could not read the record for 10 seconds. The
//! new writer makes an empty directory (`search/generations.rs`). Then it publishes the next
//! generation, in a transaction that reads the record and finds it unchanged. So of two workers
//! that try it, one succeeds. Without a record nobody is replaced: the process that holds the lock
//! may be of a version that does not beat.
//!
//! **The old writer is fenced.** Each batch of the exporters reads the record in its own
//! transaction. It fails with `Unavailable` if the generation is another one.
//!
//! **Nothing is lost.** Let `c` be the timestamp at which a take-over commits.
//!
//! * A batch of the old writer with a snapshot at `c` or later sees the record, and fails.
//! * A batch with an earlier snapshot may be acknowledged after `c`, and its pages are in the old
//!   directory only. The new directory is marked `REBUILD`. The new writer takes the snapshot of
//!   the rebuild after `c`, so the snapshot includes those pages. The rebuild notifies every
//!   document again, and the ranks. The old batch cannot acknowledge those newer notifications.
//! * A page that is not in that snapshot was deleted before. The new directory has never had it,
//!   because its first batch has a snapshot after `c`. A later deletion notifies the exporters
//!   itself, and leaves a tombstone.
//!
//! The old writer writes only to the old directory. Nobody reads it once the new one is complete.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percolator::{Column, Percolator, Transaction};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::records::{decode, encode};
use crate::tables::{FORMAT, Tables};

/// A writer that reports nothing for so long is replaced.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(30);
const ROW: &str = "search";
const WRITER: Column = Column::literal("writer");

/// The record of the writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The generation of the directory; 0 is the directory that the settings name.
    pub(crate) generation: u64,
    /// The incarnation of the worker.
    pub(crate) worker: String,
    /// The number of its process, on its machine.
    pub(crate) process: u32,
    /// Raised with each write of the record.
    pub(crate) beat: u64,
    /// The time of that write on the writer's clock, in milliseconds since 1970. It is for
    /// people: no decision depends on it.
    pub(crate) beat_ms: u64,
}

/// The writer of the search index of a cluster, as the store names it.
///
/// ```
/// assert!(webindex::IndexStats::default().writer.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriterView {
    /// The worker, as it names itself at its start.
    pub worker: String,
    /// The number of its process, on its machine.
    pub process: u32,
    /// The generation of its directory. It begins at 0, and each replacement raises it.
    pub generation: u64,
    /// How long ago it last reported, in milliseconds. A writer reports every 10 seconds.
    pub silent_ms: u64,
}

/// Reads the record in a transaction.
pub(crate) async fn read(tx: &Transaction, tables: &Tables) -> percolator::Result<Option<Record>> {
    decode(tx.get(&tables.format, ROW, &WRITER).await?)
}

/// Reads the latest record.
pub(crate) async fn current(db: &Percolator, tables: &Tables) -> Result<Option<Record>, Error> {
    let view = db.snapshot().await?;
    Ok(read(view.as_ref(), tables).await?)
}

/// Returns the present generation.
pub(crate) async fn generation(db: &Percolator, tables: &Tables) -> Result<u64, Error> {
    Ok(current(db, tables).await?.map_or(0, |record| record.generation))
}

/// Reports that the client `db` writes this generation. Returns `false`, and writes nothing, if
/// another generation has been published.
pub(crate) async fn beat(db: &Percolator, tables: &Tables, generation: u64) -> Result<bool, Error> {
    let is_current = db
        .transact(async |mut tx| {
            let found = read(&tx, tables).await?;
            if found.as_ref().map_or(0, |found| found.generation) != generation {
                return Ok(false);
            }
            write(&mut tx, db, tables, generation, found.as_ref())?;
            Ok(true)
        })
        .await?;
    Ok(is_current)
}

/// Publishes a generation, with the client `db` as its writer. Returns `false`, and writes
/// nothing, if the record is no longer `seen`.
pub(crate) async fn take_over(
    db: &Percolator,
    tables: &Tables,
    seen: &Record,
    generation: u64,
) -> Result<bool, Error> {
    let is_published = db
        .transact(async |mut tx| {
            let found = read(&tx, tables).await?;
            if found.as_ref() != Some(seen) {
                return Ok(false);
            }
            write(&mut tx, db, tables, generation, found.as_ref())?;
            Ok(true)
        })
        .await?;
    Ok(is_published)
}

fn write(
    tx: &mut Transaction,
    db: &Percolator,
    tables: &Tables,
    generation: u64,
    found: Option<&Record>,
) -> percolator::Result<()> {
    let record = Record {
        generation,
        worker: db.incarnation().to_string(),
        process: std::process::id(),
        beat: found.map_or(0, |found| found.beat) + 1,
        beat_ms: now_ms(),
    };
    tx.set(&tables.format, ROW, &WRITER, encode(&record))
}

/// Refuses a batch for a generation that is not the present one in the batch's own snapshot. So a
/// writer that has been replaced cannot acknowledge changes that the new writer would miss.
pub(crate) async fn fence(
    tx: &Transaction,
    tables: &Tables,
    generation: u64,
) -> percolator::Result<()> {
    let Some(record) = read(tx, tables).await? else { return Ok(()) };
    if record.generation == generation {
        return Ok(());
    }
    Err(percolator::Error::Unavailable(format!(
        "worker {} has taken over the search index with generation {}, and this process writes \
         generation {generation}; the changes wait for that worker",
        record.worker, record.generation,
    )))
}

/// The view of the writer's record in a database that has a web index.
pub(crate) async fn stored(db: &Percolator) -> Result<Option<WriterView>, Error> {
    let format = db.table(FORMAT).await?;
    let view = db.snapshot().await?;
    let record = decode(view.get(&format, ROW, &WRITER).await?)?;
    Ok(record.map(WriterView::of))
}

impl WriterView {
    /// Whether the writer has reported nothing for 30 seconds, by the clocks of its machine and of
    /// this one. Then another worker replaces it.
    pub fn is_silent(&self) -> bool {
        Duration::from_millis(self.silent_ms) >= SILENT_MAX
    }

    pub(crate) fn of(record: Record) -> Self {
        let Record { generation, worker, process, beat_ms, .. } = record;
        let silent_ms = now_ms().saturating_sub(beat_ms);
        WriterView { worker, process, generation, silent_ms }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

//! Writes one batch: appends it to the journal, syncs it if required, publishes it to readers,
//! and updates the in-memory maps.
//!
//! The order matters. A batch is durable before readers can see it, and a failed write stops
//! all answers.

use std::io;

use bigtable::sync::locked;
use bigtable::{Error, Result};
use fjall::PersistMode;

use crate::commit::draft::Batch;
use crate::engine::{Engine, Failure};
use crate::failure::fault;
use crate::upkeep::journals::Written;
use crate::waits::may_wait;

/// Most bytes of keys and values in a request that is committed on its caller's thread. Before a
/// larger batch the committer opens a snapshot.
pub(super) const SHORT_BYTES_MAX: usize = 64 << 10;

/// Writes one batch and publishes it. The caller holds the commit lock.
pub(crate) fn write_batch(engine: &Engine, mut batch: Batch, sync: bool) -> Result<()> {
    engine.check_usable()?;
    // The batch is used where it lies, because a move would copy the room for its puts.
    let Batch { writes, memory, newest, .. } = &mut batch;
    if writes.is_empty() {
        return Ok(());
    }
    let calm = engine.calm.is_calm();
    let long = sync || !calm;
    if long {
        may_wait("writing a batch");
    }
    let journaling = |e| fault::io(&engine.path, "following the journals", &e);
    // An error here leaves nothing written.
    engine.journals().before(sync).map_err(journaling)?;
    let (bytes, number) = (writes.bytes(), engine.db.visible_seqno());
    if long || bytes > SHORT_BYTES_MAX as u64 {
        engine.snapshots.keep(&engine.db);
    }
    let writing = engine.snapshots.begin(&engine.db).map_err(|_| engine.broken())?;
    let committed = writes.commit(&engine.db, sync);
    drop(writing);
    if let Err(error) = committed {
        return Err(not_written(engine, &error));
    }
    let written = Written { bytes, number, end: engine.db.visible_seqno(), calm };
    if let Err(error) = engine.journals().after(&written) {
        // The batch itself is as durable as required. Stop writes: before the next batch the
        // engine is opened anew, and its journals get their names.
        engine.stop(&fjall::Error::Io(error));
    }
    engine.snapshots.forget();
    {
        let mut recent = locked(&engine.recent);
        for (key, value) in newest.drain(..) {
            recent.set(key, value);
        }
        recent.is_as_of(engine.snapshots.batches());
    }
    if !memory.is_empty() {
        engine.memory_mut().apply(memory.drain(..));
    }
    Ok(())
}

/// Syncs the journal, and with it all batches that were written without a sync. Earlier
/// journals were synced when they were sealed.
pub(crate) fn sync_journal(engine: &Engine) -> Result<()> {
    let _lead = engine.wait_to_lead()?;
    persist(engine)
}

/// Syncs the journal. The caller holds the commit lock.
pub(crate) fn persist(engine: &Engine) -> Result<()> {
    engine.db.persist(PersistMode::SyncData).map_err(|error| not_written(engine, &error))
}

fn not_written(engine: &Engine, error: &fjall::Error) -> Error {
    let kind = match error {
        // The engine refused before it wrote anything, because of an earlier failure.
        fjall::Error::Poisoned => {
            engine.stop(error);
            return fault::stopped();
        }
        fjall::Error::Io(error) => error.kind(),
        _ => io::ErrorKind::Other,
    };
    let problem = fault::engine(&engine.path, "writing", error).to_string();
    engine.fail(Failure::Write(problem, kind));
    fault::undecided()
}

//! Gives back the space of removed cells.
//!
//! The engine keeps a removed cell, and its removal mark, until a merge of sorted runs brings
//! both to the last level. It merges when new runs arrive, and after a garbage collection
//! there may be none for a long time. So a caller that has removed many cells requests this
//! work. The work writes the buffers out, and merges each keyspace with many removed cells
//! into one level. Large values are in separate files. A first merge finds these files mostly
//! dead, and a second merge rewrites them.
//!
//! The work runs on its own thread, because the engine blocks, and never twice at the same
//! time. Closing the store waits for the current keyspace. For that reason, large keyspaces
//! are left to the engine's usual merges.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bigtable::Result;
use bigtable::sync::locked;
use fjall::Keyspace;
use futures::channel::oneshot;

use crate::commit::admission;
use crate::commit::puts::Puts;
use crate::commit::room::Use;
use crate::commit::write::write_batch;
use crate::engine::Engine;
use crate::failure::fault::{self, Fault};
use crate::layout::group::Group;
use crate::layout::key::NO_KEY;
use crate::upkeep::old_journals::release_journals;
use crate::upkeep::seal::rotate;

/// The least number of removed entries that makes a merge of a keyspace worthwhile.
const REMOVED_MIN: u64 = 1000;
/// The part of a keyspace's entries that must be removed: one in this many.
const REMOVED_PART: u64 = 4;
/// Keyspaces with more bytes than this are not merged as a whole.
const KEYSPACE_BYTES_MAX: u64 = 256 << 20;
/// The longest wait for buffers to be written out, and the time between two checks.
const WRITING_OUT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The thread that gives space back, if one runs.
#[derive(Debug, Default)]
pub(crate) struct Reclaiming {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reclaiming {
    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        locked(&self.thread)
    }

    /// Starts the work, unless it is running already.
    pub(crate) fn start(&self, engine: &Arc<Engine>) -> Result<oneshot::Receiver<Result<()>>> {
        let (done, reply) = oneshot::channel();
        let mut thread = self.thread();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let _ = done.send(Ok(()));
            return Ok(reply);
        }
        let work = Work { engine: engine.clone(), stop: self.stop.clone() };
        let started = std::thread::Builder::new().name("bigtable-reclaim".to_owned()).spawn({
            move || {
                // An error here means that the caller no longer waits.
                let _ = done.send(work.run());
            }
        });
        *thread = Some(started.map_err(|e| fault::io(&engine.path, "starting a thread", &e))?);
        Ok(reply)
    }

    /// Ends the work after the current keyspace.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread().take() {
            // A panic of the thread was already reported to its caller.
            let _ = thread.join();
        }
        self.stop.store(false, Ordering::SeqCst);
    }
}

struct Work {
    engine: Arc<Engine>,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn run(&self) -> Result<()> {
        let groups = self.engine.wait_to_lead()?.groups.clone();
        let worth: Vec<_> = groups.iter().flat_map(keyspaces).filter(is_worth).collect();
        let fault = |fault: Fault| fault.at(&self.engine.path, "giving space back");
        for (group, history) in &worth {
            let (keyspace, removed) =
                (group.keyspace(*history), &group.removed[usize::from(*history)]);
            let counted = removed.swap(0, Ordering::Relaxed);
            let merged = self.merge(keyspace);
            if !matches!(merged, Ok(true)) {
                removed.fetch_add(counted, Ordering::Relaxed);
            }
            merged.map_err(fault)?;
        }
        let merged: Vec<_> =
            worth.iter().map(|(group, history)| group.keyspace(*history)).collect();
        self.settle(&merged)
    }

    /// Merges a whole keyspace into its last level. Returns `false` if the disk has no room
    /// for the merge.
    fn merge(&self, keyspace: &Keyspace) -> std::result::Result<bool, Fault> {
        {
            // The commit lock excludes a batch whose readers need the shared snapshot that is
            // dropped below.
            let lead = self.engine.lead.lock().map_err(|_| fjall::Error::Poisoned)?;
            // The merge writes all of the keyspace again before it removes anything. It may use
            // the space that is reserved for upkeep, because it gives space back.
            if !admission::admits_merge(&self.engine, &lead, keyspace) {
                return Ok(false);
            }
            // An old snapshot would keep everything that was removed since.
            self.engine.snapshots.forget();
            self.begin_to_write_out(keyspace)?;
        }
        self.wait_until_written(keyspace);
        if self.is_stopping() {
            return Ok(true);
        }
        // The buffer may have been written out long ago.
        self.engine.freeing.follow(keyspace);
        let _paused = self.engine.merges.early_syncs.pause();
        keyspace.major_compact()?;
        if keyspace.is_kv_separated() && keyspace.fragmented_blob_bytes() > 0 {
            keyspace.major_compact()?;
        }
        Ok(true)
    }

    /// Makes the engine remove the merged files, and the journal of their content. The engine
    /// does so only after something newer than the merge has been written and written out. The
    /// removal of a key that never exists is enough.
    fn settle(&self, merged: &[&Keyspace]) -> Result<()> {
        if merged.is_empty() || self.is_stopping() {
            return Ok(());
        }
        {
            let lead = self.engine.wait_to_lead()?;
            admission::admit(&self.engine, &lead, Use::Upkeep, 0)?;
            let mut puts = Puts::default();
            for keyspace in merged {
                puts.remove(keyspace, NO_KEY);
            }
            write_batch(&self.engine, puts.into(), self.engine.sync())?;
            let fault = |fault: Fault| fault.at(&self.engine.path, "giving space back");
            let mut merged = merged.iter();
            merged.try_for_each(|keyspace| self.begin_to_write_out(keyspace)).map_err(fault)?;
        }
        merged.iter().for_each(|keyspace| self.wait_until_written(keyspace));
        {
            let _lead = self.engine.wait_to_lead()?;
            release_journals(&self.engine)
                .map_err(|e| fault::io(&self.engine.path, "giving space back", &e))?;
        }
        self.engine.freeing.catch_up();
        Ok(())
    }

    /// Seals the buffer, so that the engine writes it out. The caller holds the commit lock.
    fn begin_to_write_out(&self, keyspace: &Keyspace) -> std::result::Result<(), Fault> {
        rotate(&self.engine, keyspace)?;
        Ok(())
    }

    /// Waits until the sealed buffers are written out, at most for [`WRITING_OUT_MAX`].
    fn wait_until_written(&self, keyspace: &Keyspace) {
        for _ in 0..WRITING_OUT_MAX.as_millis() / LOOK_EVERY.as_millis() {
            if keyspace.sealed_memtable_count() == 0 || self.is_stopping() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// The keyspaces of a group. The flag marks that of the history.
fn keyspaces(group: &Arc<Group>) -> impl Iterator<Item = (Arc<Group>, bool)> {
    let history = group.history.is_some().then(|| (group.clone(), true));
    std::iter::once((group.clone(), false)).chain(history)
}

fn is_worth((group, history): &(Arc<Group>, bool)) -> bool {
    let keyspace = group.keyspace(*history);
    let removed = group.removed[usize::from(*history)].load(Ordering::Relaxed);
    removed >= REMOVED_MIN
        && removed >= keyspace.approximate_len() as u64 / REMOVED_PART
        && keyspace.disk_space() <= KEYSPACE_BYTES_MAX
}

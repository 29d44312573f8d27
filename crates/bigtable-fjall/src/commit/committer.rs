//! Runs the committer thread, which commits queued requests in groups. A short request without a
//! sync may instead be committed by its caller's thread, while the store is calm (`calm.rs`).
//! Either thread holds the commit lock, and a change is durable before it is visible.
//!
//! ```text
//!   caller --- short, no sync, store calm, lock free, queue empty ---> leads: commits on its
//!      |                                                               own thread
//!      '------ otherwise ---> queue ---> committer thread: drains the queue group by group
//! ```
//!
//! A group (`group_commit.rs`) is evaluated against the published state and written as one
//! batch. The engine syncs the batch if required, then inserts and publishes it. A request
//! that bypasses the queue (`begin.rs`) spares a single client two changes of thread. Under
//! contention the requests of a group share one sync.
//!
//! Invariants:
//! * Nothing is written outside the commit lock ([`Engine::lead`]).
//! * A request is acknowledged after its batch is published and the in-memory maps are
//!   updated. The committer thread seals full write buffers before that, which may take time
//!   (`seal.rs`).
//! * If a batch fails, its record may or may not be in the journal. The store answers nothing
//!   until it has cut the record off and opened the engine anew (`reopen.rs`). Then it reports
//!   to the callers that their requests were not applied.

use std::sync::Arc;
use std::thread::JoinHandle;

use bigtable::Result;
use fjall::AbstractTree;

use crate::commit::group_commit::{By, Job, commit_group};
use crate::commit::queue::{Woken, Work};
use crate::engine::{Engine, Lead};
use crate::failure::fault;
use crate::upkeep::old_journals::{Looks, look_for_journals};
use crate::upkeep::seal::{RUNS_MAX, check_engine};

/// Starts the committer thread of an engine.
pub(crate) fn spawn_committer(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("bigtable-commit".to_owned()).spawn({
        let engine = engine.clone();
        move || run(&engine)
    });
    thread.map_err(|e| fault::io(&engine.path, "starting a thread", &e))
}

/// The committer thread.
fn run(engine: &Engine) {
    let _stopped = Stopped(engine);
    let mut looks = Looks::new();
    loop {
        match engine.queue.wait(looks.due_in()) {
            Woken::Requests => {}
            Woken::Task(task) => {
                task(engine);
                continue;
            }
            Woken::Closing => return,
            Woken::Time => {
                look_for_journals(engine, &mut looks);
                continue;
            }
        }
        // Declared before the lock, so dropped after it: if the commit panics, callers learn
        // of it after the lock is poisoned.
        let group;
        // Waiting for the lock first lets requests that arrive meanwhile join this group.
        let lead = engine.wait_to_lead();
        group = engine.queue.take_group();
        let outcomes = match &lead {
            Ok(lead) => {
                let each = group.iter().map(|one| match &one.work {
                    Work::Row(table, request) => Job::Row(table, request),
                    Work::Rows(work) => Job::Rows(work),
                });
                commit_group(engine, lead, By::Committer, group.len(), each)
            }
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        };
        drop(lead);
        // Drop the requests before replying: they may hold handles of the store. A caller may
        // close and reopen the store as soon as it has its answer.
        let callers: Vec<_> = group.into_iter().map(|waiting| waiting.done).collect();
        for (caller, outcome) in callers.into_iter().zip(outcomes) {
            // An error here means that the caller has dropped its future, and needs no answer.
            let _ = caller.send(outcome);
        }
        // Look only after the replies, so that no caller waits for it.
        if let Ok(lead) = engine.lead.try_lock() {
            look_for_calm(engine, &lead);
        }
    }
}

/// Finds out whether the store is calm. Only the committer thread calls this, because it may
/// wait here for a sync.
fn look_for_calm(engine: &Engine, lead: &Lead) {
    if engine.calm.is_calm() || !engine.journals().is_marked() {
        return;
    }
    let mut written = lead.keyspaces().chain([&engine.catalog.0]);
    if engine.db.outstanding_flushes() == 0
        && engine.calm.are_past_sync(&engine.db)
        // From `RUNS_MAX` runs on, writers wait for merges.
        && written.all(|keyspace| keyspace.tree.l0_run_count() < RUNS_MAX)
        // This takes the journal's lock, so it returns only after a sync in progress has
        // ended.
        && check_engine(&engine.db).is_ok()
        // The newest journal is known only after that sync.
        && engine.journals().is_settled()
    {
        engine.calm.begins();
    }
}

/// Closes the queue when the committer thread ends for any reason, so that no caller waits
/// forever.
struct Stopped<'a>(&'a Engine);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        // A dropped request returns to its caller as an error: the outcome is unknown.
        self.0.queue.abandon();
    }
}

//! The committer: every change to the store passes here, in groups, durable before visible.
//!
//! ```text
//!   caller --- it is short, nobody commits, nobody waits ---> leads: commits on its own thread
//!      '------ otherwise ---> queue ---> committer thread: drains the queue group by group
//! ```
//!
//! A group (`group_commit.rs`) is evaluated against the published state and written as one batch,
//! which the engine syncs (if asked to) before it inserts and publishes it. Leading without a queue
//! (`begin.rs`) spares the single client two changes of thread; under contention the group shares
//! one sync.
//!
//! Invariants: nothing is written outside the commit lock ([`Engine::lead`]). A request is
//! acknowledged after its batch is published and the in-memory maps have followed; and after full
//! write buffers are sealed, for which it may have to wait (`seal.rs`). If a batch fails the record
//! may be in the journal or not: nothing is answered until the store has cut it off and opened the
//! engine anew (`reopen.rs`); then its callers learn that it was not applied.

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
        // Declared first: should the commit panic, its callers hear of it after the lock is
        // poisoned.
        let group;
        // Requests that arrive while another thread leads join this group.
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
        // The requests go first: they may hold handles of the store, and whoever has an answer
        // may close it and open it again.
        let callers: Vec<_> = group.into_iter().map(|waiting| waiting.done).collect();
        for (caller, outcome) in callers.into_iter().zip(outcomes) {
            // One that has gone does not want to know.
            let _ = caller.send(outcome);
        }
        // Its callers are on their way meanwhile.
        if let Ok(lead) = engine.lead.try_lock() {
            look_for_calm(engine, &lead);
        }
    }
}

/// Finds out whether the store is calm. Only the committer thread asks, as it may wait for a sync
/// here.
fn look_for_calm(engine: &Engine, lead: &Lead) {
    if engine.calm.is_calm() || !engine.journals().is_marked() {
        return;
    }
    let mut written = lead.keyspaces().chain([&engine.catalog.0]);
    if engine.db.outstanding_flushes() == 0
        && engine.calm.are_past_sync(&engine.db)
        // Writers wait for merges from so many runs on.
        && written.all(|keyspace| keyspace.tree.l0_run_count() < RUNS_MAX)
        // This takes the lock of the journal, so a sync that has begun has ended.
        && check_engine(&engine.db).is_ok()
        // Only now is it known which journal is the newest.
        && engine.journals().is_settled()
    {
        engine.calm.begins();
    }
}

/// Leaves nobody waiting when the committer thread ends, in whatever way.
struct Stopped<'a>(&'a Engine);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        // Dropping a request tells its caller that its outcome is unknown.
        self.0.queue.abandon();
    }
}

//! Commits a group: evaluates its requests against the published state, and writes them as one
//! batch.
//!
//! A group contains each row at most once, so every predicate sees all earlier changes. A
//! request of several rows takes its timestamp only after readers can find the group's rows as
//! pending (`pending.rs`).

use bigtable::{Error, Result};
use smallvec::SmallVec;

use crate::commit::admission;
use crate::commit::draft::{Batch, Draft, Refused};
use crate::commit::edit::Request;
use crate::commit::pending::Placed;
use crate::commit::queue::{Outcome, RowsWork};
use crate::commit::room::Use;
use crate::commit::view::{Packs, RowAt, View};
use crate::commit::write::write_batch;
use crate::engine::{Engine, Lead};
use crate::layout::table_info::TableInfo;
use crate::mutants::{self, off};
use crate::upkeep::full::{seal_churned, seal_full};
use crate::upkeep::refill::{refill, wants_refill};

/// A request that is being committed.
pub(super) enum Job<'a> {
    Row(&'a TableInfo, &'a Request),
    Rows(&'a RowsWork),
}

/// The thread that commits a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The thread of the caller, which polls futures.
    Caller,
    Committer,
}

/// The outcome of each request of a group.
pub(super) type Outcomes = SmallVec<[Result<Outcome>; 1]>;

/// A change of several rows whose predicates let it proceed.
struct Admitted<'a> {
    /// The position of its outcome.
    position: usize,
    work: &'a RowsWork,
    packs: Packs<'a>,
}

/// Makes readers wait for the rows of the admitted changes.
fn place<'e>(engine: &'e Engine, admitted: &[Admitted<'_>]) -> Placed<'e> {
    engine.pending.place(admitted.iter().flat_map(|admitted| admitted.work.pending()))
}

/// Commits requests of different rows as one batch.
pub(super) fn commit_group<'a>(
    engine: &Engine,
    lead: &Lead,
    by: By,
    len: usize,
    jobs: impl Iterator<Item = Job<'a>>,
) -> Outcomes {
    admission::look_at_disk(engine, lead);
    // If one request must be on disk, the whole batch is synced.
    let mut sync = false;
    let mut batch = Batch::default();
    let mut outcomes = Outcomes::with_capacity(len);
    // The admitted changes of several rows. They take their timestamps after all pending rows
    // are known.
    let mut admitted: SmallVec<[Admitted<'_>; 1]> = SmallVec::new();
    let placed = {
        let memory = engine.memory();
        let view = View { memory: &memory, recent: &engine.recent };
        for job in jobs {
            let outcome = match job {
                Job::Row(table, request) => {
                    let outcome = prepare(engine, lead, view, (table, request), &mut batch);
                    sync |= engine.syncs(request.sync()) && outcome.is_ok();
                    outcome.map(Outcome::Matched)
                }
                Job::Rows(work) => {
                    let mut packs = Packs::default();
                    let outcome = examine(engine, lead, view, work, &mut packs);
                    if matches!(outcome, Ok(Outcome::NoTimestamp)) {
                        admitted.push(Admitted { position: outcomes.len(), work, packs });
                        sync |= engine.sync();
                    }
                    outcome
                }
            };
            outcomes.push(outcome);
        }
        let mut placed = None;
        if !admitted.is_empty() && !off(mutants::PENDING_AFTER_TIMESTAMP) {
            placed = Some(place(engine, &admitted));
        }
        for Admitted { position, work, packs } in &mut admitted {
            outcomes[*position] = prepare_rows(engine, view, work, packs, &mut batch);
        }
        if off(mutants::PENDING_AFTER_TIMESTAMP) {
            placed = Some(place(engine, &admitted));
        }
        placed.filter(|_| !off(mutants::PENDING_CLEARED_EARLY))
    };
    let changed = !batch.memory.is_empty();
    let (bytes, churned, rewrites) = (batch.bytes, batch.churned, batch.rewrites);
    let written = write_batch(engine, batch, sync);
    drop(placed);
    if rewrites {
        lead.rewritten.set(engine.snapshots.batches());
    }
    if let Err(error) = written {
        for outcome in &mut outcomes {
            // A request that was refused earlier keeps its own error.
            if matches!(outcome, Ok(Outcome::Matched(_) | Outcome::Committed(_))) {
                *outcome = Err(error.clone());
            }
        }
        return outcomes;
    }
    follow(engine, lead, by, (bytes, changed, churned));
    outcomes
}

/// Does the follow-up work of a batch of `bytes` bytes. A caller's thread leaves work that may
/// take long to the committer thread.
fn follow(engine: &Engine, lead: &Lead, by: By, (bytes, changed, churned): (u64, bool, bool)) {
    let left = lead.left.take();
    match by {
        By::Caller => {
            lead.unlooked.set(lead.unlooked.get() + bytes);
            lead.left.set(left || churned || (changed && wants_refill(engine, lead)));
        }
        By::Committer => {
            if changed || left {
                refill(engine, lead);
            }
            seal_full(engine, lead, bytes);
            if churned || left {
                seal_churned(engine, lead);
            }
        }
    }
}

/// Evaluates a request against the published state and adds its writes to the batch.
fn prepare(
    engine: &Engine,
    lead: &Lead,
    view: View<'_>,
    (table, request): (&TableInfo, &Request),
    batch: &mut Batch,
) -> Result<bool> {
    table.check_there()?;
    engine.check_floor(request.above())?;
    request.check_time()?;
    let mut evaluate = || -> std::result::Result<bool, Refused> {
        let mut row = RowAt::only(table, request.row());
        let decision = request.decide(&mut row, view)?;
        admission::admit_row(engine, lead, table, &decision.mutations)?;
        let mut packs = Packs::default();
        let mut draft = Draft::new(view, &mut packs, request.seen(lead.rewritten.get()));
        for mutation in &*decision.mutations {
            draft.apply(&mut row, mutation)?;
        }
        draft.finish(batch)?;
        Ok(decision.holds)
    };
    evaluate().map_err(|refused| error_of(engine, refused))
}

/// The error for the caller of a request.
fn error_of(engine: &Engine, refused: Refused) -> Error {
    match refused {
        Refused::Request(error) => error,
        Refused::Fault(fault) => engine.read_error(&fault),
    }
}

/// Evaluates the predicates of several rows. Returns `NoTimestamp` for a request that may
/// proceed: its timestamp is taken later. Then `packs` has the packs that the probes have read.
fn examine<'p>(
    engine: &Engine,
    lead: &Lead,
    view: View<'_>,
    work: &'p RowsWork,
    packs: &mut Packs<'p>,
) -> Result<Outcome> {
    engine.check_floor(Some(work.request.above))?;
    for (index, (table, key, row)) in work.rows().enumerate() {
        table.check_there()?;
        let mut at = RowAt { table, keys: key.clone().into(), index };
        for probe in &row.predicate {
            let found = view.finds_and_keeps(&mut at, probe, packs);
            if found.map_err(|fault| engine.read_error(&fault))? {
                return Ok(Outcome::Rejected(index));
            }
        }
    }
    admission::admit(engine, lead, Use::Growth, work.request.bytes as u64)?;
    Ok(Outcome::NoTimestamp)
}

/// Takes the commit timestamp of a change of several rows, and adds its writes to the batch.
fn prepare_rows(
    engine: &Engine,
    view: View<'_>,
    work: &RowsWork,
    packs: &mut Packs<'_>,
    batch: &mut Batch,
) -> Result<Outcome> {
    let request = &work.request;
    let Some(commit_ts) = request.at.timestamp() else { return Ok(Outcome::NoTimestamp) };
    let mut draft = || -> std::result::Result<(), Refused> {
        let mut draft = Draft::new(view, packs, None);
        for (index, (table, key, _)) in work.rows().enumerate() {
            let mut row = RowAt { table, keys: key.clone().into(), index };
            for mutation in request.mutations_at(index, commit_ts, &table.schema)? {
                draft.apply(&mut row, &mutation)?;
            }
        }
        draft.finish(batch)
    };
    draft().map_err(|refused| error_of(engine, refused))?;
    Ok(Outcome::Committed(commit_ts))
}

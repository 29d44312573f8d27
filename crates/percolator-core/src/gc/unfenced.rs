//! Collects garbage on a store that cannot compare a floor within its row operations, such as
//! Cloud Bigtable.
//!
//! Elsewhere the floor refuses late requests. Here a client must not send such a request, or
//! the request must be over before its effect matters. Let D be the [longest life of a
//! request](bigtable::Store::request_life_max). A *term* is four times D, which leaves time to
//! renew a registration. Each write of a registration takes at most D, and the next one begins
//! D / 2 later. If no write fails, at most 2.5 D pass between the begin of one write and the
//! end of the next. A reader relies on a registration for 3.3 D: five sixths of a term.
//!
//! The sixth is for clocks that run unevenly. A reader measures its five sixths on its own
//! clock, and a judge or collector measures a whole term on another. Let both clocks be off by
//! at most a share r. The reader stops first if (1 + r) / (1 - r) is at most 6 / 5. So r may
//! be 1 / 11, about 9 percent.
//!
//! ```text
//! young        no retention is shorter than a term, by the collector's own clock; so a timestamp
//!              is safe without registration for five sixths of a term after it was asked for
//! registered   a registration lapses when it stayed unchanged for a term, on the judge's clock.
//!              The end of its client's liveness token does not end it. So it protects every
//!              timestamp from the named one on, for five sixths of a term after the client
//!              began to write it
//! lapsed       the timestamp is neither young nor registered. A later registration below it does
//!              not hold it again. A read that completes now fails (TooOld), and a commit is not
//!              sent. A commit is not even sent in the last D before, so the predicate of each
//!              commit in flight is evaluated before the lapse or never
//! closed       a registered timestamp stays registered until its requests are over
//! ```
//!
//! The safe point is a record in Percolator's own table. A collector raises it *before* it
//! reads the registrations, and a reader of the past registers *before* it reads the safe
//! point. So at least one of them sees the other.
//!
//! A second record says below which timestamp every lock was resolved; it is written before
//! anything is dropped. A lock that is found below it is a late duplicate, of a transaction
//! whose evidence may be gone. Such a lock is removed with its data, and never rolled forward.
//! This loses no committed value. A write record that points at the value lies above the
//! lock's `s`, and would have refused the lock.
//!
//! # Changes that wait for the log
//!
//! A store may evaluate a request's predicate in time, and apply the request long after D. HBase
//! does so while a sync of its log takes long. Nothing else changes the row in between, so no
//! record in this row is collected. Readers see the row as it was. Each step bears that:
//!
//! * *A commit or roll-forward.* Its lock stays visible until it is applied. Everybody who resolves
//!   this lock must change the row first, and so waits. The sweep cannot pass the lock, so no
//!   record of the transaction is dropped in any other row.
//! * *A prewrite.* The sweep may pass the row before the lock is visible. Then the transaction has
//!   lapsed, and it does not commit: it sends a commit only after the answer to each prewrite. The
//!   lock is a late one.
//! * *A registration, or the safe point.* Its writer relies on it only after the answer, and counts
//!   the time from before it was sent. A late registration is below the safe point, and holds
//!   nothing.
//! * *A deletion by the collector.* It is right however late it is applied (`collect.rs`).
//! * *A claim or a liveness token.* Safety depends on neither (`locks/table.rs`).
//!
//! Clocks must also go on while the machine sleeps. One gap remains: a process looks at its
//! clock, stops for longer than a term, and only then sends its bytes. Only the store could
//! refuse these bytes.
//!
//! ADR-5 says what this design costs, and what would change it.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, Probe, REQUEST_LIFE_MAX, Selection, TimeRange, Timestamp,
};
use bytes::Bytes;

use crate::gc::record::{raise_record, read_record};
use crate::gc::registration::{Beat, QUALIFIER, row_of};
use crate::mutants::{self, off};
use crate::records::branch;
use crate::records::layout::SYSTEM;
use crate::resolve::verdicts::Verdict;
use crate::shared::Shared;
use crate::txn::held::check_held;
use crate::txn::open_readers::{LIVES, term};
use crate::{Error, InvalidKind, Result};

/// The name of the record of the longest life of any client's requests, in milliseconds.
const LONGEST_LIFE: &str = "longest request life";
/// How often one write of a registration is tried.
const WRITES_MAX: usize = 4;
/// The name of the record of the safe point.
const SAFE_POINT: &str = "safe point";
/// The name of the record below which every lock was resolved.
const SWEPT: &str = "swept";

/// The shortest retention. On a store with a floor it is zero. On any other it is four times
/// the longest life of a request, among all clients that this one knows of.
pub(crate) fn retention_min(shared: &Shared) -> Duration {
    term(*shared.collection().longest_life())
}

/// Publishes how long this client's requests live, for clients that collect. Await this before
/// any transaction begins.
pub(crate) async fn publish_life(shared: &Shared, life: Duration) -> Result<()> {
    let ms = u64::try_from(life.as_millis()).ok().and_then(Timestamp::new);
    raise_record(shared.system(), LONGEST_LIFE, ms.unwrap_or(Timestamp::MAX)).await
}

/// Reads how long the requests of other clients live. A client that publishes its life later
/// begins only transactions above the safe point of this round.
pub(super) async fn learn_longest_life(shared: &Shared) -> Result<()> {
    if shared.unfenced().is_none() {
        return Ok(());
    }
    let ms = read_record(shared.system(), LONGEST_LIFE).await?.as_u64();
    let mut longest = shared.collection().longest_life();
    *longest = longest.max(Duration::from_millis(ms));
    Ok(())
}

/// Checks that requests to the store do not live too long. No registration is believed for longer
/// than four times the bound.
///
/// # Errors
/// [`Error::Invalid`] if a request may live for longer than [`REQUEST_LIFE_MAX`].
pub(crate) fn check_life(life: Option<Duration>) -> Result<()> {
    match life {
        Some(life) if life > REQUEST_LIFE_MAX => Err(Error::invalid(
            InvalidKind::Options,
            format!(
                "a request to this store may stay in flight for {life:?}, but at most {REQUEST_LIFE_MAX:?} \
                 are allowed, because the store has no floor: give the store's client a shorter \
                 deadline"
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks that the retention is not too short for this store.
pub(crate) fn check_retention(shared: &Shared, retention: Duration) -> Result<()> {
    let min = retention_min(shared);
    if retention >= min || off(mutants::ANY_RETENTION) {
        return Ok(());
    }
    Err(Error::invalid(
        InvalidKind::Options,
        format!(
            "a retention of {retention:?} is too short: this store has no floor, and its requests \
             may stay in flight for {:?}; give a retention of at least {min:?}, or give the \
             store's client a shorter deadline",
            min / LIVES
        ),
    ))
}

/// Reads the safe point. No read may begin below it.
pub(crate) async fn safe_point(shared: &Shared) -> Result<Timestamp> {
    match shared.unfenced() {
        None => Ok(shared.services().store.floor()),
        Some(_) => read_record(shared.system(), SAFE_POINT).await,
    }
}

/// Stores a safe point durably, unless a higher one is stored.
pub(super) async fn raise_safe_point(shared: &Shared, safe_point: Timestamp) -> Result<()> {
    match shared.unfenced() {
        None => Ok(shared.services().store.raise_floor(safe_point).await?),
        Some(_) => raise_record(shared.system(), SAFE_POINT, safe_point).await,
    }
}

/// Stores that every lock below the safe point is resolved. After that, versions may be
/// dropped.
pub(super) async fn store_swept(shared: &Shared, safe_point: Timestamp) -> Result<()> {
    match shared.unfenced() {
        None => Ok(()),
        Some(_) => raise_record(shared.system(), SWEPT, safe_point).await,
    }
}

/// Whether a lock is a late duplicate. Call this after the lock was found. A lock that the
/// sweep has resolved since then no longer exists, so calling it late does no harm.
pub(crate) async fn is_late(shared: &Shared, start_ts: Timestamp) -> Result<bool> {
    if shared.unfenced().is_none() || off(mutants::LATE_LOCK_IS_RESOLVED) {
        return Ok(false);
    }
    Ok(start_ts < read_record(shared.system(), SWEPT).await?)
}

/// Translates a verdict on a transaction into a verdict on its locks that were seen after
/// `looked`. A late lock is rolled back instead of forward. Returns `None` if `looked` was too
/// long ago: a lock that was not late then may have been resolved since, and its transaction
/// collected.
pub(crate) async fn verdict_on_locks_seen(
    shared: &Shared,
    start_ts: Timestamp,
    verdict: Verdict,
    looked: Duration,
) -> Result<Option<Verdict>> {
    let Some(life) = shared.unfenced() else { return Ok(Some(verdict)) };
    if verdict == Verdict::RolledBack || is_late(shared, start_ts).await? {
        return Ok(Some(Verdict::RolledBack));
    }
    // So soon after the look, nothing beneath the lock can have been collected. Only a later
    // write can hide it, and that write must first grow as old as the shortest retention.
    Ok((shared.runtime().now() < looked + life).then_some(verdict))
}

/// Registers this client to read at `ts`, unless `ts` is protected long enough already.
///
/// # Errors
/// [`Error::TooOld`] below the safe point.
pub(crate) async fn hold_past(shared: &Arc<Shared>, ts: Timestamp) -> Result<()> {
    let of = shared.clone();
    shared.collection().in_turn(async move { register_past(&of, ts).await }).await
}

async fn register_past(shared: &Shared, ts: Timestamp) -> Result<()> {
    if shared.readers().holds_for_a_request(ts) {
        return Ok(());
    }
    let asked = shared.runtime().now();
    let oldest = shared.readers().to_register().map_or(ts, |oldest| oldest.min(ts));
    shared.readers().narrow(Some(oldest));
    write_registration(shared, Some(registration(shared, oldest))).await?;
    // Read the safe point after registering: a collector that does not see the registration
    // has stored its safe point before that.
    let floor = safe_point(shared).await?;
    if ts < floor {
        return Err(Error::TooOld { asked: ts, floor });
    }
    shared.readers().registered(oldest, asked, Some(ts));
    check_held(shared, ts)
}

/// Renews this client's registration, or removes it when no timestamp needs one.
pub(crate) async fn renew_hold(shared: &Arc<Shared>) -> Result<()> {
    let of = shared.clone();
    shared.collection().in_turn(async move { renew(&of).await }).await
}

async fn renew(shared: &Shared) -> Result<()> {
    let (asked, readers) = (shared.runtime().now(), shared.readers());
    // From now on, timestamps that the new registration does not name count as unprotected.
    let wanted = readers.to_register();
    readers.narrow(wanted);
    let Some(oldest) = wanted else {
        return write_registration(shared, None).await;
    };
    write_registration(shared, Some(registration(shared, oldest))).await?;
    // A timestamp that has lapsed meanwhile stays lapsed: the safe point may have passed it.
    if readers.holds(oldest) {
        readers.registered(oldest, asked, None);
    }
    Ok(())
}

fn registration(shared: &Shared, oldest: Timestamp) -> Bytes {
    let lifetime_ms = u32::try_from(retention_min(shared).as_millis()).unwrap_or(u32::MAX);
    Beat { oldest, lifetime_ms, count: shared.runtime().random() }.encode()
}

/// Replaces the registration by a new one, or removes it. Each request is conditional on the
/// value that it replaces, and no two registrations are equal, so a late duplicate changes
/// nothing.
async fn write_registration(shared: &Shared, new: Option<Bytes>) -> Result<()> {
    let row = row_of(shared.incarnation());
    let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
    let registered = || shared.collection().registered();
    let write = vec![match &new {
        Some(new) => Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, new.clone()),
        None => Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL),
    }];
    for _ in 0..WRITES_MAX {
        let (request, old) = (ConditionalMutation::new(&row), registered().clone());
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        if branch::replace(shared.system(), request, probe.clone(), old, write.clone()).await? {
            *registered() = new;
            return Ok(());
        }
        // Either an own write was applied whose reply was lost, or another client has removed
        // the registration.
        let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
        let found = shared.system().read_row(&row, &select).await?;
        *registered() = found.cells.first().map(|cell| cell.value.clone());
        if *registered() == new {
            return Ok(());
        }
    }
    let why = "other clients kept changing the record of this client's registration".to_owned();
    Err(Error::Store(bigtable::Error::Unavailable { why }))
}

/// Spawns a task that renews this client's registration as long as the client lives.
pub(crate) fn keep_held(shared: &Arc<Shared>, life: Duration) {
    let (shared, runtime) = (Arc::downgrade(shared), shared.runtime().clone());
    runtime.clone().spawn(Box::pin(async move {
        let mut pause = life / 2;
        loop {
            runtime.sleep(pause).await;
            let Some(shared) = shared.upgrade() else { return };
            // A closed client has nothing open once its commits have ended.
            if shared.check_open().is_err() && shared.background().unfinished() == 0 {
                return;
            }
            pause = match renew_hold(&shared).await {
                Ok(()) => life / 2,
                Err(error) => {
                    tracing::warn!(
                        target: "percolator::gc", event = "registration_error", %error,
                    );
                    life / 8
                }
            };
        }
    }));
}

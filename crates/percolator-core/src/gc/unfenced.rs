//! Collection where the store cannot compare a floor within its row operations (Cloud Bigtable).
//!
//! What the floor refuses elsewhere must not be sent here, or be over before it matters. Let D be
//! the [longest life of a request](bigtable::Store::request_life_max); a *term* is four times that.
//!
//! ```text
//! young        no retention is shorter than a term, by the collector's own clock; so a timestamp
//!              needs nothing for five sixths of a term after it was asked for
//! registered   a registration lapses when it was unchanged for a term on the judge's clock, its
//!              client's token counts for nothing; so it holds what it names for five sixths of a
//!              term after it was asked for
//! lapsed       neither: a read fails (TooOld) when its answer is there, a commit is not sent; nor
//!              is it in the last D before, so that a request that is under way is applied in time
//!              or never
//! closed       what was registered stays so until its requests are over
//! ```
//!
//! The safe point is a record in Percolator's own table. It is raised *before* the registrations
//! are read, and a reader of the past registers *before* it reads the safe point: one of the two
//! sees the other. A second record says below what every lock was resolved before anything was
//! dropped: a lock below it that is met is a late duplicate, of a transaction whose evidence may be
//! gone. It is removed with its data, and never rolled forward; where it lies there is no record at
//! or above its `s` that needs this data, or it could not have been placed.
//!
//! Clocks may run up to 9 percent too fast or too slow, and must go on while the machine sleeps.
//! What is left is a process that stops for longer than a term between a look at its clock and the
//! moment at which its bytes leave it: nobody but the store could refuse those.
//!
//! ADR-5 says what this design costs, and what would change it.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{ConditionalMutation, Mutation, Probe, Selection, TimeRange, Timestamp};
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

/// Longest life of a request that is lived with: no registration is believed for longer than four.
const LIFE_MAX: Duration = Duration::from_secs(150);
/// The record of the longest life that requests of any client have, in milliseconds.
const LONGEST_LIFE: &str = "longest request life";
/// How often a registration is written before its renewal has failed.
const WRITES_MAX: usize = 4;
/// The record of the safe point.
const SAFE_POINT: &str = "safe point";
/// The record below which every lock was resolved.
const SWEPT: &str = "swept";

/// The shortest retention: zero, unless the store has no floor. Then it is four times the
/// longest life of a request, of any client that this one has learnt of.
pub(crate) fn retention_min(shared: &Shared) -> Duration {
    term(*shared.collection().longest_life())
}

/// Tells the clients that collect how long this one's requests live. Before it begins anything.
pub(crate) async fn publish_life(shared: &Shared, life: Duration) -> Result<()> {
    let ms = u64::try_from(life.as_millis()).ok().and_then(Timestamp::new);
    raise_record(shared.system(), LONGEST_LIFE, ms.unwrap_or(Timestamp::MAX)).await
}

/// Learns how long the requests of other clients live. What a client begins that tells it only
/// later is above the safe point of a round that has begun.
pub(super) async fn learn_longest_life(shared: &Shared) -> Result<()> {
    if shared.unfenced().is_none() {
        return Ok(());
    }
    let ms = read_record(shared.system(), LONGEST_LIFE).await?.as_u64();
    let mut longest = shared.collection().longest_life();
    *longest = longest.max(Duration::from_millis(ms));
    Ok(())
}

/// # Errors
/// [`Error::Invalid`] when requests of the store may live too long to collect beside them.
pub(crate) fn check_life(life: Option<Duration>) -> Result<()> {
    match life {
        Some(life) if life > LIFE_MAX => Err(Error::invalid(
            InvalidKind::Options,
            format!(
                "a request to this store may live for {life:?}, and the store has no floor: at most \
             {LIFE_MAX:?} can be waited for; give its client a shorter deadline"
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether garbage collection is possible with this retention.
pub(crate) fn check_retention(shared: &Shared, retention: Duration) -> Result<()> {
    let min = retention_min(shared);
    if retention >= min || off(mutants::ANY_RETENTION) {
        return Ok(());
    }
    Err(Error::invalid(
        InvalidKind::Options,
        format!(
            "a retention of {retention:?}: this store has no floor and its requests may live for \
         {:?}, so that at least {min:?} must be kept; give a longer retention, or its client a \
         shorter deadline",
            min / LIVES
        ),
    ))
}

/// The safe point: nobody begins to read below it.
pub(crate) async fn safe_point(shared: &Shared) -> Result<Timestamp> {
    match shared.unfenced() {
        None => Ok(shared.services().store.floor()),
        Some(_) => read_record(shared.system(), SAFE_POINT).await,
    }
}

/// Stores a safe point, durably; it never goes back.
pub(super) async fn raise_safe_point(shared: &Shared, safe_point: Timestamp) -> Result<()> {
    match shared.unfenced() {
        None => Ok(shared.services().store.raise_floor(safe_point).await?),
        Some(_) => raise_record(shared.system(), SAFE_POINT, safe_point).await,
    }
}

/// Stores that every lock below the safe point was resolved: from now on versions may be
/// dropped.
pub(super) async fn store_swept(shared: &Shared, safe_point: Timestamp) -> Result<()> {
    match shared.unfenced() {
        None => Ok(()),
        Some(_) => raise_record(shared.system(), SWEPT, safe_point).await,
    }
}

/// Whether a lock that was met is a late duplicate. To be asked after it was met: what the
/// sweep has resolved since then is not there any more.
pub(crate) async fn is_late(shared: &Shared, start_ts: Timestamp) -> Result<bool> {
    if shared.unfenced().is_none() || off(mutants::LATE_LOCK_IS_RESOLVED) {
        return Ok(false);
    }
    Ok(start_ts < read_record(shared.system(), SWEPT).await?)
}

/// What a verdict means for locks that were seen after `looked`: late ones are not rolled
/// forward. `None` when it was too long ago to say: a lock that was none then may have been
/// resolved since, and its transaction collected.
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
    // What a lock has let through is hidden by a later write, if at all, and that is as old as
    // the shortest retention when it is collected.
    Ok((shared.runtime().now() < looked + life).then_some(verdict))
}

/// Begins to read the past where nobody else keeps `ts` from collection.
///
/// # Errors
/// [`Error::TooOld`] below the safe point.
pub(crate) async fn hold_past(shared: &Shared, ts: Timestamp) -> Result<()> {
    let mut stored = shared.collection().registered.lock().await;
    if shared.readers().holds_for_a_request(ts) {
        return Ok(());
    }
    let asked = shared.runtime().now();
    let oldest = shared.readers().to_register().map_or(ts, |oldest| oldest.min(ts));
    shared.readers().narrow(Some(oldest));
    write_registration(shared, &mut stored, Some(registration(shared, oldest))).await?;
    // After it: a collector that does not see the registration has stored its safe point
    // before.
    let floor = safe_point(shared).await?;
    if ts < floor {
        return Err(Error::TooOld { asked: ts, floor });
    }
    shared.readers().registered(oldest, asked);
    check_held(shared, ts)
}

/// Renews this client's registration, or takes it back when nothing needs one.
pub(crate) async fn renew_hold(shared: &Shared) -> Result<()> {
    let mut stored = shared.collection().registered.lock().await;
    let (asked, readers) = (shared.runtime().now(), shared.readers());
    // What the registration will not name any more counts for nothing from now on.
    let wanted = readers.to_register();
    readers.narrow(wanted);
    let Some(oldest) = wanted else {
        return if stored.is_some() {
            write_registration(shared, &mut stored, None).await
        } else {
            Ok(())
        };
    };
    write_registration(shared, &mut stored, Some(registration(shared, oldest))).await?;
    // Who has lapsed meanwhile stays so: the safe point may have passed.
    if readers.holds(oldest) {
        readers.registered(oldest, asked);
    }
    Ok(())
}

fn registration(shared: &Shared, oldest: Timestamp) -> Bytes {
    let lifetime_ms = u32::try_from(retention_min(shared).as_millis()).unwrap_or(u32::MAX);
    Beat { oldest, lifetime_ms, count: shared.runtime().random() }.encode()
}

/// Replaces the registration by a new one, or by none. Each request is conditional on what it
/// replaces, and no two registrations are alike, so that a late copy changes nothing.
async fn write_registration(
    shared: &Shared,
    stored: &mut Option<Bytes>,
    new: Option<Bytes>,
) -> Result<()> {
    let row = row_of(shared.incarnation());
    let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
    let write = vec![match &new {
        Some(new) => Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, new.clone()),
        None => Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL),
    }];
    for _ in 0..WRITES_MAX {
        if stored.is_none() && new.is_none() {
            return Ok(());
        }
        let (request, old) = (ConditionalMutation::new(&row), stored.clone());
        if branch::replace(shared.system(), request, probe.clone(), old, write.clone()).await? {
            *stored = new;
            return Ok(());
        }
        // One of its own whose reply was lost, or somebody took this client for dead.
        let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
        let found = shared.system().read_row(&row, &select).await?;
        *stored = found.cells.first().map(|cell| cell.value.clone());
        if *stored == new {
            return Ok(());
        }
    }
    let why = "this client's registration stayed contended".to_owned();
    Err(Error::Store(bigtable::Error::Unavailable { why }))
}

/// Registers what this client has open for a while, as long as the client lives.
pub(crate) fn keep_held(shared: &Arc<Shared>, life: Duration) {
    let (shared, runtime) = (Arc::downgrade(shared), shared.runtime().clone());
    runtime.clone().spawn(Box::pin(async move {
        let mut pause = life / 2;
        loop {
            runtime.sleep(pause).await;
            let Some(shared) = shared.upgrade() else { return };
            // What was closed has nothing open, once its commits have ended.
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

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

use std::time::Duration;

use bigtable::{ConditionalMutation, Mutation, Probe, Selection, TimeRange, Timestamp};
use bytes::Bytes;

use crate::gc::readers::{Beat, QUALIFIER, row_of};
use crate::gc::safe_point::{raise_record, read_record};
use crate::mutants::{self, off};
use crate::records::layout::SYSTEM;
use crate::resolve::verdicts::Verdict;
use crate::{Client, Error, Result};

/// How many lives of a request a term has.
const LIVES: u32 = 4;
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

/// For how long a registration is believed, and the shortest retention.
pub(super) fn term(life: Duration) -> Duration {
    LIVES * life
}

/// How much of it its holder relies on: less by a sixth, for clocks that run unevenly.
pub(super) fn tenure(life: Duration) -> Duration {
    term(life) * 5 / 6
}

/// How long what was closed stays registered.
pub(super) fn registered_after_close(life: Duration) -> Duration {
    life * 6 / 5
}

/// What this client's registration says, as far as it knows. The lock is held while it is written.
pub(crate) type Registered = futures::lock::Mutex<Option<Bytes>>;

impl Client {
    /// The longest life of a request, if the store has no floor.
    pub(crate) fn unfenced(&self) -> Option<Duration> {
        self.services().store.request_life_max()
    }

    /// The shortest retention: zero, unless the store has no floor. Then it is four times the
    /// longest life of a request, of any client that this one has learnt of.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// assert!(client.retention_min().is_zero());
    /// # Ok(()) });
    /// ```
    pub fn retention_min(&self) -> Duration {
        term(*self.collection().longest_life())
    }

    /// Tells the clients that collect how long this one's requests live. Before it begins anything.
    pub(crate) async fn publish_life(&self, life: Duration) -> Result<()> {
        let ms = u64::try_from(life.as_millis()).ok().and_then(Timestamp::new);
        raise_record(self.system(), LONGEST_LIFE, ms.unwrap_or(Timestamp::MAX)).await
    }

    /// Learns how long the requests of other clients live. What a client begins that tells it only
    /// later is above the safe point of a round that has begun.
    pub(super) async fn learn_longest_life(&self) -> Result<()> {
        if self.unfenced().is_none() {
            return Ok(());
        }
        let ms = read_record(self.system(), LONGEST_LIFE).await?.as_u64();
        let mut longest = self.collection().longest_life();
        *longest = longest.max(Duration::from_millis(ms));
        Ok(())
    }

    /// # Errors
    /// [`Error::Invalid`] when requests of the store may live too long to collect beside them.
    pub(crate) fn check_life(life: Option<Duration>) -> Result<()> {
        match life {
            Some(life) if life > LIFE_MAX => Err(Error::Invalid(format!(
                "a request to this store may live for {life:?}, and the store has no floor: at most \
                 {LIFE_MAX:?} can be waited for; give its client a shorter deadline"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether garbage collection is possible with this retention.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is shorter than [`retention_min`](Client::retention_min).
    pub fn check_retention(&self, retention: Duration) -> Result<()> {
        let min = self.retention_min();
        if retention >= min || off(mutants::ANY_RETENTION) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a retention of {retention:?}: this store has no floor and its requests may live for \
             {:?}, so that at least {min:?} must be kept; give a longer retention, or its client a \
             shorter deadline",
            min / LIVES
        )))
    }

    /// The safe point: nobody begins to read below it.
    pub(crate) async fn safe_point(&self) -> Result<Timestamp> {
        match self.unfenced() {
            None => Ok(self.services().store.floor()),
            Some(_) => read_record(self.system(), SAFE_POINT).await,
        }
    }

    /// Stores a safe point, durably; it never goes back.
    pub(super) async fn raise_safe_point(&self, safe_point: Timestamp) -> Result<()> {
        match self.unfenced() {
            None => Ok(self.services().store.raise_floor(safe_point).await?),
            Some(_) => raise_record(self.system(), SAFE_POINT, safe_point).await,
        }
    }

    /// Stores that every lock below the safe point was resolved: from now on versions may be
    /// dropped.
    pub(super) async fn store_swept(&self, safe_point: Timestamp) -> Result<()> {
        match self.unfenced() {
            None => Ok(()),
            Some(_) => raise_record(self.system(), SWEPT, safe_point).await,
        }
    }

    /// Whether a lock that was met is a late duplicate. To be asked after it was met: what the
    /// sweep has resolved since then is not there any more.
    pub(crate) async fn is_late(&self, start_ts: Timestamp) -> Result<bool> {
        if self.unfenced().is_none() || off(mutants::LATE_LOCK_IS_RESOLVED) {
            return Ok(false);
        }
        Ok(start_ts < read_record(self.system(), SWEPT).await?)
    }

    /// What a verdict means for locks that were seen after `looked`: late ones are not rolled
    /// forward. `None` when it was too long ago to say: a lock that was none then may have been
    /// resolved since, and its transaction collected.
    pub(crate) async fn verdict_on_locks_seen(
        &self,
        start_ts: Timestamp,
        verdict: Verdict,
        looked: Duration,
    ) -> Result<Option<Verdict>> {
        let Some(life) = self.unfenced() else { return Ok(Some(verdict)) };
        if verdict == Verdict::RolledBack || self.is_late(start_ts).await? {
            return Ok(Some(Verdict::RolledBack));
        }
        // What a lock has let through is hidden by a later write, if at all, and that is as old as
        // the shortest retention when it is collected.
        Ok((self.runtime().now() < looked + life).then_some(verdict))
    }

    /// Whether records of a transaction may have been collected by now.
    pub(crate) fn is_outlived(&self, start_ts: Timestamp) -> bool {
        match self.unfenced() {
            None => start_ts <= self.services().store.floor(),
            Some(_) => !self.readers().holds(start_ts),
        }
    }

    /// Whether the commit of a transaction may be sent: it will be applied before anything of the
    /// transaction is collected, or not at all.
    pub(crate) fn may_commit(&self, start_ts: Timestamp) -> bool {
        let to_the_last = || off(mutants::COMMITS_TO_THE_LAST) && self.readers().holds(start_ts);
        let holds = self.readers().holds_for_a_request(start_ts) || to_the_last();
        holds || off(mutants::LAPSED_COMMITS)
    }

    /// To be asked when a read at `s` has its answer.
    ///
    /// # Errors
    /// [`Error::TooOld`] when collection may have been faster.
    pub(crate) fn check_held(&self, s: Timestamp) -> Result<()> {
        if self.readers().holds(s) || off(mutants::LAPSED_READS) {
            Ok(())
        } else {
            Err(Error::TooOld { asked: s, floor: self.readers().last() })
        }
    }

    /// Begins to read the past where nobody else keeps `ts` from collection.
    ///
    /// # Errors
    /// [`Error::TooOld`] below the safe point.
    pub(crate) async fn hold_past(&self, ts: Timestamp) -> Result<()> {
        let mut stored = self.collection().registered.lock().await;
        if self.readers().holds_for_a_request(ts) {
            return Ok(());
        }
        let asked = self.runtime().now();
        let oldest = self.readers().to_register().map_or(ts, |oldest| oldest.min(ts));
        self.readers().narrow(Some(oldest));
        self.write_registration(&mut stored, Some(self.registration(oldest))).await?;
        // After it: a collector that does not see the registration has stored its safe point
        // before.
        let floor = self.safe_point().await?;
        if ts < floor {
            return Err(Error::TooOld { asked: ts, floor });
        }
        self.readers().registered(oldest, asked);
        self.check_held(ts)
    }

    /// Renews this client's registration, or takes it back when nothing needs one.
    pub(crate) async fn renew_hold(&self) -> Result<()> {
        let mut stored = self.collection().registered.lock().await;
        let (asked, readers) = (self.runtime().now(), self.readers());
        // What the registration will not name any more counts for nothing from now on.
        let wanted = readers.to_register();
        readers.narrow(wanted);
        let Some(oldest) = wanted else {
            return if stored.is_some() {
                self.write_registration(&mut stored, None).await
            } else {
                Ok(())
            };
        };
        self.write_registration(&mut stored, Some(self.registration(oldest))).await?;
        // Who has lapsed meanwhile stays so: the safe point may have passed.
        if readers.holds(oldest) {
            readers.registered(oldest, asked);
        }
        Ok(())
    }

    fn registration(&self, oldest: Timestamp) -> Bytes {
        let lifetime_ms = u32::try_from(self.retention_min().as_millis()).unwrap_or(u32::MAX);
        Beat { oldest, lifetime_ms, count: self.runtime().random() }.encode()
    }

    /// Replaces the registration by a new one, or by none. Each request is conditional on what it
    /// replaces, and no two registrations are alike, so that a late copy changes nothing.
    async fn write_registration(
        &self,
        stored: &mut Option<Bytes>,
        new: Option<Bytes>,
    ) -> Result<()> {
        let row = row_of(self.incarnation());
        let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
        let write = vec![match &new {
            Some(new) => Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, new.clone()),
            None => Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL),
        }];
        for _ in 0..WRITES_MAX {
            let request = ConditionalMutation::new(&row);
            let request = match stored.clone() {
                None if new.is_none() => return Ok(()),
                None => ConditionalMutation {
                    predicate: vec![probe.clone()],
                    otherwise: write.clone(),
                    ..request
                },
                Some(old) => ConditionalMutation {
                    predicate: vec![probe.clone().with_value_prefix(old)],
                    then: write.clone(),
                    ..request
                },
            };
            if self.system().check_and_mutate_row(request).await? == stored.is_some() {
                *stored = new;
                return Ok(());
            }
            // One of its own whose reply was lost, or somebody took this client for dead.
            let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
            let found = self.system().read_row(&row, &select).await?;
            *stored = found.cells.first().map(|cell| cell.value.clone());
            if *stored == new {
                return Ok(());
            }
        }
        let why = "this client's registration stayed contended".to_owned();
        Err(Error::Store(bigtable::Error::Unavailable { why }))
    }

    /// Registers what this client has open for a while, as long as the client lives.
    pub(crate) fn keep_held(&self, life: Duration) {
        let (client, runtime) = (self.downgrade(), self.runtime().clone());
        self.runtime().clone().spawn(Box::pin(async move {
            let mut pause = life / 2;
            loop {
                runtime.sleep(pause).await;
                let Some(client) = client.upgrade() else { return };
                // What was closed has nothing open, once its commits have ended.
                if client.check_open().is_err() && client.background().unfinished() == 0 {
                    return;
                }
                pause = match client.renew_hold().await {
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
}

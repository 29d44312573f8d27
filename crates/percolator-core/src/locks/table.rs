//! Implements the lock service in the store itself, for clusters that have no other one (paper
//! section 2.2).
//!
//! ```text
//!   token/<incarnation>   renewed by its process; gone, or seen unchanged for its lifetime: dead
//!   lock/<name>           an advisory lock; free if its owner is dead, or if unchanged as long
//! ```
//! Invariant: tokens are stored under incarnations, which are never used again. So the locks
//! of an old life never look alive because the client has a new life (H17). A client that was
//! judged dead by mistake counts as alive again after its next renewal. Safety depends on
//! neither judgement.
//!
//! ADR-10 says what this design costs, and what would change it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, Mutation, PageLimit, Probe, RowMutation,
    RowRange, Selection, Store, Syncing, Table, TableSchema, TimeRange,
};

use super::claim::{Claim, ONE_CELL, Place, VERSION, Watches};
use super::held::{Asked, HeldLocks, LINGERS};
use super::{Holder, LockService};
use crate::mutants::{self, off};
use crate::options::LOCK_LIFETIME_MAX;
use crate::outage::{Ended, Outage};
use crate::records::branch;
use crate::records::layout::LOCKS_TABLE as TABLE;
use crate::records::lock::Incarnation;
use crate::{Error, InvalidKind, Result, Runtime};

const CLAIM: Family = Family::from_static("claim");

/// How often a token is renewed within its lifetime.
const RENEWALS: u32 = 3;

/// After how many renewals a process looks for claims of dead processes.
const SWEEP_EVERY: u64 = 4;

/// How many rows it reads then.
const SWEEP_ROWS: usize = 256;

/// Shortest lifetime of a token.
const LIFETIME_MIN: Duration = Duration::from_millis(100);

/// The lock service in a table of the store.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use std::time::Duration;
/// use percolator::admin::Incarnation;
/// use percolator::cluster::{Holder, LockService, TableLocks};
/// let (store, runtime) = (client.services().store.clone(), client.runtime().clone());
/// // Two processes.
/// let a = TableLocks::open(&*store, runtime.clone(), TableLocks::LIFETIME).await?;
/// let b = TableLocks::open(&*store, runtime, TableLocks::LIFETIME).await?;
/// a.register(Incarnation(1)).await?;
/// assert!(b.is_alive(Incarnation(1)).await? && !b.is_alive(Incarnation(2)).await?);
/// let minute = Duration::from_secs(60);
/// let (one, two) = (Incarnation(1), Incarnation(2));
/// assert!(a.try_lock(b"row", Holder { owner: one, work: 1 }, minute).await?);
/// assert!(!b.try_lock(b"row", Holder { owner: two, work: 1 }, minute).await?);
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct TableLocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Arc<dyn Table>,
    runtime: Arc<dyn Runtime>,
    lifetime: Duration,
    state: Mutex<State>,
    held: HeldLocks,
    watches: Watches,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<Incarnation, Arc<Token>>,
    /// Where the next sweep goes on.
    unswept: Option<RowRange>,
}

/// Whether a token of this process was given up. The mutex is held while the token is written,
/// so that no renewal follows the deletion.
type Token = futures::lock::Mutex<bool>;

impl TableLocks {
    /// A lifetime of tokens that suits most clusters. A dead client counts as dead after about
    /// this time.
    pub const LIFETIME: Duration = Duration::from_secs(6);

    /// Opens the lock service of a store. Tokens of this process are renewed three times
    /// within `lifetime`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a lifetime below a tenth of a second, or above ten minutes. Other
    /// processes believe no longer one, and would take this process for dead between two renewals.
    /// Errors of the store.
    pub async fn open(
        store: &dyn Store,
        runtime: Arc<dyn Runtime>,
        lifetime: Duration,
    ) -> Result<Self> {
        if !(LIFETIME_MIN..=LOCK_LIFETIME_MAX).contains(&lifetime) {
            let what = format!(
                "a liveness token cannot expire after {lifetime:?}: give {LIFETIME_MIN:?} to \
                 {LOCK_LIFETIME_MAX:?}"
            );
            return Err(Error::invalid(InvalidKind::Options, what));
        }
        let groups = vec![LocalityGroup::on_disk("claim", Layout::Versions)];
        let table = store.open_table(TABLE, &TableSchema { groups }).await?;
        let (state, held, watches) = Default::default();
        let inner = Inner { table, runtime, lifetime, state, held, watches };
        Ok(TableLocks { inner: Arc::new(inner) })
    }
}

#[async_trait]
impl LockService for TableLocks {
    async fn register(&self, owner: Incarnation) -> Result<()> {
        let inner = &self.inner;
        if inner.state().tokens.contains_key(&owner) {
            return Ok(());
        }
        inner.write_token(owner, Syncing::AsStore).await?;
        let token = Arc::new(Token::new(false));
        inner.state().tokens.insert(owner, token.clone());
        let renewals = renew(Arc::downgrade(inner), owner, token);
        inner.runtime.spawn(Box::pin(renewals));
        Ok(())
    }

    fn unregister(&self, owner: Incarnation) {
        let token = self.inner.state().tokens.remove(&owner);
        let held = self.inner.held.forget_all_of(owner);
        let inner = self.inner.clone();
        self.inner.runtime.spawn(Box::pin(async move {
            // If a removal fails, the claim runs out by itself.
            if let Some(token) = token {
                let mut given_up = token.lock().await;
                *given_up = true;
                let _ = inner.remove_token(owner).await;
            }
            for (name, claim) in held {
                let _ = inner.remove(&Place::of_lock(&name), claim).await;
            }
        }));
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        let inner = &self.inner;
        if inner.state().tokens.contains_key(&owner) {
            return Ok(true);
        }
        let place = Place::of_token(owner);
        let Some(claim) = inner.read(&place).await? else { return Ok(false) };
        if !inner.ran_out(&place, claim) {
            return Ok(true);
        }
        // Remove the token, so that no other process has to watch it. A token that was renewed
        // meanwhile stays.
        inner.remove(&place, claim).await?;
        Ok(false)
    }

    async fn try_lock(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        let inner = &self.inner;
        let place = Place::of_lock(name);
        let claim = Claim::new(holder.owner, lifetime, &*inner.runtime);
        let asking = match inner.held.ask(name, holder, claim, lifetime, inner.runtime.now()) {
            Asked::Answered(taken) => return Ok(taken),
            Asked::Unknown(asking) => asking,
        };
        let mut taken = inner.replace(&place, None, claim).await?;
        if !taken && let Some(other) = inner.read(&place).await? {
            // A claim whose process is dead is free before it runs out. So is a claim of this
            // client: `ask` has found that no worker uses it.
            let free = other.owner == holder.owner
                || inner.ran_out(&place, other)
                || !self.is_alive(other.owner).await?;
            taken = free && inner.replace(&place, Some(other), claim).await?;
        }
        if taken {
            asking.has_it();
        }
        Ok(taken)
    }

    async fn renew(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        let inner = &self.inner;
        let place = Place::of_lock(name);
        let claim = Claim::new(holder.owner, lifetime, &*inner.runtime);
        let now = inner.runtime.now();
        for known in inner.held.begin_renewal(name, holder, claim) {
            if inner.replace(&place, Some(known), claim).await? {
                inner.held.renewed(name, holder, claim, now);
                return Ok(true);
            }
        }
        if off(mutants::RENEWS_WHAT_IS_TAKEN)
            && let Some(other) = inner.read(&place).await?
        {
            return inner.replace(&place, Some(other), claim).await;
        }
        inner.held.lose(name, holder);
        Ok(false)
    }

    fn unlock(&self, name: &[u8], holder: Holder) {
        let now = self.inner.runtime.now();
        if !self.inner.held.give_up(name, holder, now) {
            return;
        }
        let (inner, name) = (self.inner.clone(), name.to_vec());
        self.inner.runtime.spawn(Box::pin(async move {
            inner.runtime.sleep(LINGERS).await;
            for claim in inner.held.forget(&name, holder, now) {
                // If this fails, the claim runs out by itself.
                let _ = inner.remove(&Place::of_lock(&name), claim).await;
            }
        }));
    }
}

/// Renews a token until it is given up, or until the lock service is dropped.
async fn renew(inner: Weak<Inner>, owner: Incarnation, token: Arc<Token>) {
    let mut round = 0;
    let mut outage = Outage::default();
    loop {
        let Some(pause) =
            inner.upgrade().map(|inner| inner.runtime.sleep(inner.lifetime / RENEWALS))
        else {
            return;
        };
        pause.await;
        let Some(inner) = inner.upgrade() else { return };
        {
            let given_up = token.lock().await;
            if *given_up {
                return;
            }
            let written = inner.write_token(owner, Syncing::MayBeLost).await;
            log_renewal(owner, written, &mut outage, &*inner.runtime);
        }
        round += 1;
        if round % SWEEP_EVERY == 0
            && let Err(error) = inner.sweep().await
        {
            tracing::debug!(%error, "the lock service could not be swept");
        }
    }
}

/// Logs that a renewal failed, or that an outage has ended.
fn log_renewal(
    owner: Incarnation,
    written: Result<()>,
    outage: &mut Outage,
    runtime: &dyn Runtime,
) {
    if let Err(error) = written {
        if let Some(unlogged) = outage.failed(runtime.now()) {
            tracing::warn!(
                event = "token_not_renewed", %owner, %error, unlogged,
                "a liveness token could not be renewed"
            );
        }
    } else if let Some(Ended { lasted, failed }) = outage.succeeded(|| runtime.now()) {
        tracing::info!(
            event = "well_again", %owner, failed,
            "well again after {lasted:.1?}: the liveness token is renewed"
        );
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    async fn read(&self, place: &Place) -> Result<Option<Claim>> {
        let qualifier = place.qualifier.clone();
        let select = Selection::default().column(CLAIM, qualifier.clone(), ONE_CELL, 1);
        let row = self.table.read_row(&place.row, &select).await?;
        let Some(cell) = row.newest(&CLAIM, &qualifier) else {
            self.watches.forget(place);
            return Ok(None);
        };
        Claim::decode(&cell.value).map(Some)
    }

    fn ran_out(&self, place: &Place, claim: Claim) -> bool {
        self.watches.ran_out(place, claim, self.runtime.now())
    }

    /// Writes the token of an owner. A power cut of the store's machine may lose a renewal,
    /// and then the claim before it seems to last longer than it did. In the worst case other
    /// processes take the owner for dead until its next renewal. Safety does not depend on
    /// that.
    async fn write_token(&self, owner: Incarnation, sync: Syncing) -> Result<()> {
        let claim = Claim::new(owner, self.lifetime, &*self.runtime).encode();
        let place = Place::of_token(owner);
        let set = Mutation::set(CLAIM, place.qualifier, VERSION, claim);
        Ok(self.table.mutate_row(RowMutation::new(place.row).mutation(set).sync(sync)).await?)
    }

    async fn remove_token(&self, owner: Incarnation) -> Result<()> {
        let place = Place::of_token(owner);
        let delete = Mutation::delete(CLAIM, place.qualifier, ONE_CELL);
        Ok(self.table.mutate_row(RowMutation::new(place.row).mutation(delete)).await?)
    }

    /// Writes `new` if the place holds `old`, or with `None` if it is empty. Returns whether
    /// it did.
    async fn replace(&self, place: &Place, old: Option<Claim>, new: Claim) -> Result<bool> {
        let any = Probe::new(CLAIM, place.qualifier.clone(), ONE_CELL);
        let set = vec![Mutation::set(CLAIM, place.qualifier.clone(), VERSION, new.encode())];
        let request = ConditionalMutation::new(&place.row);
        let old = old.map(|old| old.encode());
        Ok(branch::replace(&*self.table, request, any, old, set).await?)
    }

    /// Removes this very claim; any other claim stays.
    async fn remove(&self, place: &Place, claim: Claim) -> Result<()> {
        let this = Probe::new(CLAIM, place.qualifier.clone(), ONE_CELL);
        let request = ConditionalMutation {
            predicate: vec![this.with_value_prefix(claim.encode())],
            then: vec![Mutation::delete(CLAIM, place.qualifier.clone(), ONE_CELL)],
            ..ConditionalMutation::new(&place.row)
        };
        self.table.check_and_mutate_row(request).await?;
        self.watches.forget(place);
        Ok(())
    }

    /// Reads some rows, and removes claims that ran out. The next sweep goes on where this one
    /// ended.
    async fn sweep(&self) -> Result<()> {
        let range = self.state().unswept.take().unwrap_or_else(RowRange::all);
        let select = Selection::default().family(CLAIM, TimeRange::ALL, 1);
        let limit = PageLimit { rows_max: SWEEP_ROWS, ..PageLimit::default() };
        let page = self.table.scan(&range, &select, limit).await?;
        self.state().unswept = page.resume;
        for row in page.rows {
            for cell in &row.cells {
                let place = Place { row: row.key.clone(), qualifier: cell.qualifier.clone() };
                let Ok(claim) = Claim::decode(&cell.value) else { continue };
                if self.ran_out(&place, claim) {
                    self.remove(&place, claim).await?;
                }
            }
        }
        Ok(())
    }
}

//! Feeds the search index while this process is its writer, and else waits to take the writer's
//! place. `writer.rs` says when a worker may do so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use percolator::store::StoreId;
use percolator::{Percolator, WorkerOptions, Workers};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::Error;
use crate::index::latency::Latency;
use crate::index::rebuild;
use crate::observers;
use crate::search::SearchIndex;
use crate::search::generations::{self, Generation};
use crate::tables::Tables;
use crate::writer::{self, Record};

/// How often a waiting worker tries to become the search index's writer.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// How often the writer reports in the store.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// How often a waiting worker reads the writer's record.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A longer pause between two readings proves nothing about the writer: this process, the machine
/// or the store may have stood still. The worker then measures from the beginning.
const LOOK_GAP_MAX: Duration = Duration::from_secs(10);
/// How many directories a worker tries when it takes over. A directory may be locked by a worker
/// that hung while it took over.
const DIRECTORIES_TRIED: u64 = 16;

/// Makes this process the writer of the search index when it can be.
#[derive(Debug)]
pub(super) struct Feeder {
    db: Percolator,
    tables: Tables,
    latency: Arc<Latency>,
    options: WorkerOptions,
    base: PathBuf,
    shown: Generation,
    /// The exporters, while this process feeds the search index.
    exporters: Option<Workers>,
    /// The task that has the exporters export every page, while it runs.
    rebuilding: JoinSet<()>,
    beaten: Option<Instant>,
    looked: Option<Instant>,
    watch: Option<Watch>,
    /// Whether the log says that this process waits.
    waiting: bool,
}

/// The record of another writer, as long as it stays the same.
#[derive(Debug)]
struct Watch {
    record: Record,
    since: Instant,
    looked: Instant,
}

impl Feeder {
    /// Opens the present generation of the search index in `base`, or creates it.
    pub(super) async fn new(
        db: &Percolator,
        tables: &Tables,
        latency: &Arc<Latency>,
        options: &WorkerOptions,
        base: &Path,
    ) -> Result<Self, Error> {
        let present = writer::generation(db, tables).await?;
        Ok(Feeder {
            shown: Generation::open(base, present, db.services().store.id())?,
            db: db.clone(),
            tables: tables.clone(),
            latency: latency.clone(),
            // One thread is enough, because each batching observer has its own task.
            options: WorkerOptions { threads: 1, ..options.clone() },
            base: base.to_owned(),
            exporters: None,
            rebuilding: JoinSet::new(),
            beaten: None,
            looked: None,
            watch: None,
            waiting: false,
        })
    }

    /// Takes turns until the worker is stopped.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            self.turn(Instant::now()).await;
            tokio::select! {
                _ = &mut stopped => break,
                () = tokio::time::sleep(TURN_EVERY) => {}
            }
        }
        self.stop_feeding().await;
    }

    /// Does what is due at `now`: feeds, reports, waits, or takes over.
    pub(super) async fn turn(&mut self, now: Instant) {
        if let Err(error) = self.try_turn(now).await {
            tracing::warn!(target: "webindex::worker", event = "not_feeding", %error);
        }
    }

    async fn try_turn(&mut self, now: Instant) -> Result<(), Error> {
        match claim(&self.shown.search).await {
            Ok(true) => self.feed(now).await,
            Ok(false) => {
                // If this process fed the index, its write failed, and another process became
                // the writer first.
                self.stop_feeding().await;
                if !self.waiting {
                    tracing::info!(target: "webindex::worker", event = "waiting_to_feed");
                    self.waiting = true;
                }
                self.look(now).await
            }
            Err(error) => {
                // The directory may be gone, because another worker has taken over.
                self.follow(writer::generation(&self.db, &self.tables).await?).await?;
                Err(error)
            }
        }
    }

    /// Reports and feeds. This process holds the lock of the directory.
    async fn feed(&mut self, now: Instant) -> Result<(), Error> {
        self.watch = None;
        let is_due = self.beaten.is_none_or(|beaten| now - beaten >= BEAT_EVERY);
        if is_due {
            if !writer::beat(&self.db, &self.tables, self.shown.number).await? {
                return self.follow(writer::generation(&self.db, &self.tables).await?).await;
            }
            self.beaten = Some(now);
        }
        if self.exporters.is_none() {
            // A separate client: its workers must not take the hints that are meant for the
            // other observers.
            let client = self.db.another_client().await?;
            let exporters = observers::exporters(&client, &self.tables, &self.shown, &self.latency);
            self.exporters = Some(client.observe(exporters, self.options.clone()).await?);
            let generation = self.shown.number;
            tracing::info!(target: "webindex::worker", event = "feeding", generation);
            self.waiting = false;
        }
        // If the task has panicked, it has ended, too, and is started again.
        while self.rebuilding.try_join_next().is_some() {}
        if self.shown.search.is_incomplete() {
            self.rebuild();
            return Ok(());
        }
        if is_due {
            self.remove_others().await;
        }
        Ok(())
    }

    /// Has the exporters export every page, in the background, because the writer must report
    /// meanwhile.
    fn rebuild(&mut self) {
        if !self.rebuilding.is_empty() {
            return;
        }
        let (db, tables) = (self.db.clone(), self.tables.clone());
        let search = self.shown.search.clone();
        self.rebuilding.spawn(async move {
            if let Err(error) = rebuild::replace(&db, &tables, &search).await {
                tracing::warn!(target: "webindex::worker", event = "not_feeding", %error);
            }
        });
    }

    /// Removes the directories of other generations whose writers have ended or given up.
    async fn remove_others(&self) {
        let (base, present) = (self.base.clone(), self.shown.number);
        match blocking(move || generations::remove_others(&base, present)).await {
            Ok(removed) => {
                for directory in removed.iter().map(|path| path.display()) {
                    tracing::info!(
                        target: "webindex::worker", event = "removed_old_directory", %directory,
                    );
                }
            }
            Err(error) => {
                tracing::warn!(target: "webindex::worker", event = "not_removed", %error);
            }
        }
    }

    /// Goes on with the present generation, if another worker has published one.
    async fn follow(&mut self, present: u64) -> Result<(), Error> {
        if present == self.shown.number {
            return Ok(());
        }
        if self.stop_feeding().await {
            let generation = self.shown.number;
            tracing::warn!(target: "webindex::worker", event = "superseded", generation, present);
        }
        let (base, store) = (self.base.clone(), self.store());
        self.shown = blocking(move || Generation::open(&base, present, store)).await?;
        self.watch = None;
        Ok(())
    }

    /// Stops the exporters, and gives up the lock. Returns `false` if there were no exporters.
    async fn stop_feeding(&mut self) -> bool {
        self.beaten = None;
        self.rebuilding.shutdown().await;
        let exporters = self.exporters.take();
        let fed = exporters.is_some();
        if let Some(exporters) = exporters {
            exporters.stop().await;
        }
        self.shown.search.release();
        fed
    }

    /// Watches the record of the process that holds the lock. Takes over if that process hangs.
    async fn look(&mut self, now: Instant) -> Result<(), Error> {
        if self.looked.is_some_and(|looked| now - looked < LOOK_EVERY) {
            return Ok(());
        }
        self.looked = Some(now);
        let Some(record) = writer::current(&self.db, &self.tables).await? else { return Ok(()) };
        if record.generation != self.shown.number {
            return self.follow(record.generation).await;
        }
        match &mut self.watch {
            Some(watch) if watch.record == record && now - watch.looked <= LOOK_GAP_MAX => {
                watch.looked = now;
                let silent = now - watch.since;
                if silent >= writer::SILENT_MAX {
                    self.take_over(record, silent, now).await
                } else {
                    Ok(())
                }
            }
            _ => {
                self.watch = Some(Watch { record, since: now, looked: now });
                Ok(())
            }
        }
    }

    async fn take_over(
        &mut self,
        hung: Record,
        silent: Duration,
        now: Instant,
    ) -> Result<(), Error> {
        self.watch = None;
        let (base, store, first) = (self.base.clone(), self.store(), hung.generation + 1);
        let made = blocking(move || {
            for number in first..first + DIRECTORIES_TRIED {
                if let Some(made) = Generation::make(&base, number, store)? {
                    return Ok(Some(made));
                }
            }
            Ok(None)
        });
        let Some(made) = made.await? else { return Ok(()) };
        tracing::warn!(
            target: "webindex::worker", event = "taking_over", from = %hung.worker,
            process = hung.process, silent_s = silent.as_secs(), generation = made.number,
        );
        if !writer::take_over(&self.db, &self.tables, &hung, made.number).await? {
            // Another worker took over, or the writer reports again.
            return Ok(());
        }
        self.shown = made;
        self.beaten = Some(now);
        self.feed(now).await
    }

    fn store(&self) -> Option<StoreId> {
        self.db.services().store.id()
    }
}

#[cfg(test)]
impl Feeder {
    pub(super) fn is_feeding(&self) -> bool {
        self.exporters.is_some()
    }

    pub(super) fn generation(&self) -> u64 {
        self.shown.number
    }

    /// Stops the exporters, and keeps the lock, as a process that hangs does.
    pub(super) async fn stop_exporters_alone(&mut self) {
        self.rebuilding.shutdown().await;
        self.exporters.take().unwrap().stop().await;
    }

    pub(super) async fn end(mut self) {
        self.stop_feeding().await;
    }
}

/// Becomes the writer of the search index. Returns `false` if another process is the writer.
async fn claim(search: &Arc<SearchIndex>) -> Result<bool, Error> {
    let search = search.clone();
    blocking(move || search.claim()).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(percolator::Error::application)?
}

//! Replaces a failed engine: inspects and closes it, and opens another in its place with the
//! same tables.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bigtable::sync::locked;
use bigtable::{Result, TableSchema};
use fjall::AbstractTree;

use crate::directory::Directory;
use crate::engine::{Engine, Failure, Lead};
use crate::failure::condition::Watched;
use crate::failure::fault::Fault;
use crate::failure::tail::{Acknowledged, Tail};
use crate::layout::table_info::{TableInfo, number_families};
use crate::opening::{look, open_files, open_group};
use crate::options::Options;
use crate::upkeep::seal::make_room;

/// The longest time to wait for a request or a backup that is still inside the engine.
const LEAVING_MAX: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 60 });
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Logs the reason why the engine is replaced.
pub(super) fn report_failure(engine: &Engine) {
    let why = match engine.failure() {
        Some(Failure::Write(why, _)) => why.as_str(),
        Some(Failure::Panic(_)) | None => engine.stopped().unwrap_or_default(),
    };
    tracing::error!(
        target: "percolator::store", event = "disk_failed", dir = %engine.path.display(), why,
        "the disk has failed: the store checks what the disk holds"
    );
}

/// Inspects the journal while no thread writes to it.
pub(super) fn find_tail(engine: &Engine) -> io::Result<Tail> {
    // A writer that was active has found the engine failed and has left. A poisoned lock is no
    // concern, because nothing here reads the state that a panic may have damaged.
    let lead = locked(&engine.lead);
    let mut acknowledged = Acknowledged::default();
    for keyspace in lead.keyspaces().chain([&engine.catalog.0]) {
        let tree = &keyspace.tree;
        acknowledged.highest = acknowledged.highest.max(tree.get_highest_seqno().unwrap_or(0));
        acknowledged.in_journal = acknowledged.in_journal.max(tree.get_highest_memtable_seqno());
    }
    let failure = match engine.failure() {
        Some(Failure::Write(_, kind)) => Some(*kind),
        Some(Failure::Panic(_)) | None => None,
    };
    Tail::find(&engine.directory.engine(), acknowledged, failure, engine.sync())
}

/// The parts of a closed engine that the next one needs.
pub(super) struct Closed {
    path: PathBuf,
    options: Options,
    directory: Arc<Directory>,
    condition: Arc<Watched>,
    generation: u64,
    ids_from: u32,
}

/// The parts of a table that the next engine needs.
pub(super) struct Described {
    id: u32,
    name: String,
    schema: TableSchema,
    dropped: bool,
    upkeep: bool,
}

impl Described {
    pub(super) fn of(info: &TableInfo) -> Self {
        Described {
            id: info.id,
            name: info.name.clone(),
            schema: info.schema.clone(),
            dropped: info.dropped.load(Ordering::SeqCst),
            upkeep: info.is_upkeep(),
        }
    }
}

/// Closes the engine after the last request has left it.
pub(super) fn close(mut engine: Arc<Engine>) -> std::result::Result<Closed, String> {
    let began = Instant::now();
    let engine = loop {
        match Arc::try_unwrap(engine) {
            Ok(engine) => break engine,
            Err(shared) if began.elapsed() < LEAVING_MAX => engine = shared,
            Err(_) => {
                return Err("a request does not end, so the engine cannot be closed".to_owned());
            }
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let ids_from = locked(&engine.lead).ids_from;
    Ok(Closed {
        path: engine.path.clone(),
        options: engine.options.clone(),
        directory: engine.directory.clone(),
        condition: engine.condition.clone(),
        generation: engine.generation,
        ids_from,
    })
}

impl Closed {
    /// Opens the engine, the tables with names, and the tables of handles. Returns the tables
    /// of handles.
    pub(super) fn open(
        self,
        named: &[Described],
        of_handles: &[Described],
        not_before: Option<Instant>,
    ) -> Result<(Arc<Engine>, Vec<Arc<TableInfo>>)> {
        let Closed { path, options, directory, condition, generation, ids_from } = self;
        // Read the journals again: the newest may be another file now, and there may be one
        // more.
        let prepared = look(&path, &directory.engine(), true)?;
        let opened = open_files(&path, options, &directory, Some(prepared))?;
        let reading = |fault: Fault| fault.at(&path, "reading the catalog");
        let mut engine = Engine::new(opened, directory).map_err(reading)?;
        engine.condition = condition;
        engine.generation = generation + 1;
        let mut infos: Vec<Arc<TableInfo>> = Vec::new();
        {
            let mut lead = locked(&engine.lead);
            lead.ids_from = ids_from;
            lead.room.rest_until(not_before);
            for table in named.iter().chain(of_handles) {
                if infos.iter().all(|info| info.id != table.id) {
                    infos.push(Arc::new(table.open(&engine, &mut lead)?));
                }
            }
        }
        let info = |table: &Described| {
            let found = infos.iter().find(|info| info.id == table.id);
            found.expect("it was opened above").clone()
        };
        *engine.tables.write().unwrap_or_else(PoisonError::into_inner) =
            named.iter().map(info).collect();
        Ok((Arc::new(engine), of_handles.iter().map(info).collect()))
    }
}

impl Described {
    fn open(&self, engine: &Engine, lead: &mut Lead) -> Result<TableInfo> {
        let groups = self.schema.groups.iter().map(|group| open_group(engine, lead, group));
        let groups: fjall::Result<Vec<_>> = groups.collect();
        for keyspace in groups.iter().flatten().flat_map(|group| group.keyspaces()) {
            // If the engine could not write out what it recovered, writers would wait forever.
            // An error here makes it refuse the next write.
            let _ = make_room(engine, keyspace);
        }
        Ok(TableInfo {
            id: self.id,
            name: self.name.clone(),
            schema: self.schema.clone(),
            groups: groups.map_err(|error| engine.read_error(&error.into()))?,
            families: number_families(&self.schema)?,
            dropped: AtomicBool::new(self.dropped),
            upkeep: AtomicBool::new(self.upkeep),
        })
    }
}

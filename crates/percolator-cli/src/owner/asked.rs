//! Holds the command that the present task runs for another process, if it runs one.
//!
//! Most commands do not know which process wants them. Three modules ask [`current`] for them:
//! `output` and `progress`, to choose where a line goes, and `store`, to choose the database. The
//! commands `backup`, `observers`, `tx`, `wait` and `webindex` also call it, because they do
//! something else for another process. A task or thread that a command spawns is outside of this
//! scope, so no command prints from there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable_fjall::{BackedUp, FjallStore};
use percolator::admin::GcOptions;
use percolator::{Options, Percolator};

use super::frame::{self, Kind};
use super::hello::Asker;
use crate::exit::Exit;

/// The retention of a client that only runs one command. Its collector registers the reads of the
/// command, and drops nothing in this time: the database has a collector of its own.
const RETENTION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

tokio::task_local! {
    static CURRENT: Arc<Asked>;
}

/// The database or store that a process has open in a directory.
#[derive(Debug, Clone)]
pub(crate) enum Open {
    /// A database.
    Database(Percolator),
    /// A store whose transactions other processes run.
    Store(FjallStore),
}

/// A command that runs here for another process.
pub(crate) struct Asked {
    dir: PathBuf,
    open: Open,
    asker: Asker,
    connection: Mutex<Option<Box<dyn Write + Send>>>,
    /// The clients that the command has opened.
    clients: Mutex<Vec<Percolator>>,
    /// Whether the command promises that what it commits survives a power cut.
    syncs: AtomicBool,
    /// Whether the command has printed its answer as a JSON document.
    answered: Arc<AtomicBool>,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Returns the command that this task runs for another process, if it runs one.
pub(crate) fn current() -> Option<Arc<Asked>> {
    CURRENT.try_with(Clone::clone).ok()
}

impl Asked {
    pub(super) fn new(
        dir: &Path,
        open: &Open,
        asker: Asker,
        connection: impl Write + Send + 'static,
    ) -> Arc<Asked> {
        Arc::new(Asked {
            dir: dir.to_owned(),
            open: open.clone(),
            asker,
            connection: Mutex::new(Some(Box::new(connection))),
            clients: Mutex::default(),
            syncs: AtomicBool::new(false),
            answered: Arc::default(),
        })
    }

    /// Runs a future as this command.
    pub(crate) async fn scope<T>(self: Arc<Self>, command: impl Future<Output = T>) -> T {
        CURRENT.scope(self, command).await
    }

    /// The directory that this process has open.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The client of the process, if the process has a database open, not only its store.
    pub(crate) fn owner(&self) -> Option<&Percolator> {
        match &self.open {
            Open::Database(db) => Some(db),
            Open::Store(_) => None,
        }
    }

    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Whether the command has printed its answer as a JSON document.
    pub(crate) fn answered(&self) -> &Arc<AtomicBool> {
        &self.answered
    }

    /// Whether this process knows of transactions.
    pub(crate) fn has_database(&self) -> bool {
        self.owner().is_some()
    }

    /// Opens a client for the command. The client has a liveness token of its own, so that others
    /// clean up after the command as after the end of a process.
    pub(crate) async fn client(
        &self,
        options: Options,
        syncs: bool,
    ) -> percolator::Result<Percolator> {
        let gc = GcOptions { retention: RETENTION, ..GcOptions::default() };
        let Open::Database(db) = &self.open else {
            return Err(percolator::Error::Closed);
        };
        // As the owner's own transactions: its observers handle the changes that the command makes.
        let options = Options { trace: db.options().trace, ..options };
        let client = db.another_client_with(options, Some(gc)).await?;
        self.syncs.fetch_or(syncs, Ordering::Relaxed);
        locked(&self.clients).push(client.clone());
        Ok(client)
    }

    /// Closes the clients of the command. If the command `wrote`, and promises that its commits
    /// survive a power cut, syncs. The sync is needed because this process may have opened the
    /// database with less durability.
    pub(crate) async fn close(&self, longest: Duration, wrote: bool) -> percolator::Result<()> {
        let clients = std::mem::take(&mut *locked(&self.clients));
        for client in clients {
            let client: &percolator::Client = &client;
            client.close_within(longest).await;
        }
        let syncs = wrote && self.syncs.load(Ordering::Relaxed);
        match &self.open {
            Open::Database(db) if syncs => db.sync().await,
            Open::Database(_) | Open::Store(_) => Ok(()),
        }
    }

    /// Writes a backup of the database or store that is open here.
    pub(crate) async fn backup(&self, to: &Path) -> percolator::Result<BackedUp> {
        let store = match &self.open {
            Open::Database(db) => return db.backup(to).await,
            Open::Store(store) => store.clone(),
        };
        let to = to.to_owned();
        let made = tokio::task::spawn_blocking(move || store.backup(to)).await;
        let ended = |why| {
            percolator::Error::Unavailable(format!("making the backup was interrupted: {why}"))
        };
        Ok(made.map_err(ended)??)
    }

    /// Sends a part of standard output.
    pub(crate) fn stdout(&self, data: &[u8]) -> io::Result<()> {
        self.send(|to| frame::write_pieces(to, Kind::Stdout, data))
    }

    /// Sends a part of standard error.
    pub(crate) fn stderr(&self, data: &[u8]) -> io::Result<()> {
        self.send(|to| frame::write_pieces(to, Kind::Stderr, data))
    }

    /// Sends a line for the file of events.
    pub(crate) fn event(&self, line: &[u8]) -> io::Result<()> {
        self.send(|to| frame::write(to, Kind::Event, line))
    }

    pub(super) fn exit(&self, exit: Exit) -> io::Result<()> {
        self.send(|to| frame::write(to, Kind::Exit, &[exit as u8]))
    }

    /// Sends frames. After a failure nothing more is sent, because the connection may hold a part
    /// of a frame.
    fn send(&self, frames: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut connection = locked(&self.connection);
        let sent = connection.as_mut().map(|to| frames(to));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => {
                *connection = None;
                // The error is that of a pipe whose reader has gone, which ends a command
                // quietly.
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

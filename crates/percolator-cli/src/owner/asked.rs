//! Holds the command that the present task runs for another process, if it runs one.
//!
//! A command does not know which process wants it. Three places differ, and call [`current`]:
//! `output` and `progress`, to choose where a line goes, and `store`, to choose the database. A
//! task or thread that a command spawns is outside of this scope, so no command prints from
//! there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use percolator::admin::GcOptions;
use percolator::{Options, Percolator};

use super::frame::{self, Kind};
use super::hello::Asker;
use crate::exit::Exit;

/// The collector of a client that only runs one command registers what the command reads, and
/// leaves collecting to the database's own.
const RETENTION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

tokio::task_local! {
    static CURRENT: Arc<Asked>;
}

/// A command that runs here for another process.
pub(crate) struct Asked {
    dir: PathBuf,
    db: Percolator,
    asker: Asker,
    connection: Mutex<Option<Box<dyn Write + Send>>>,
    /// The clients that the command has opened.
    clients: Mutex<Vec<Percolator>>,
    /// Whether the command promises that what it commits survives a power cut.
    syncs: AtomicBool,
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
        db: &Percolator,
        asker: Asker,
        connection: impl Write + Send + 'static,
    ) -> Arc<Asked> {
        Arc::new(Asked {
            dir: dir.to_owned(),
            db: db.clone(),
            asker,
            connection: Mutex::new(Some(Box::new(connection))),
            clients: Mutex::default(),
            syncs: AtomicBool::new(false),
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

    /// The client that the process has opened the directory with.
    pub(crate) fn owner(&self) -> &Percolator {
        &self.db
    }

    pub(crate) fn asker(&self) -> Asker {
        self.asker
    }

    /// Opens a client for the command. It has a liveness token of its own, so that what the command
    /// leaves behind is cleaned up as after the end of a process.
    pub(crate) async fn client(
        &self,
        options: Options,
        syncs: bool,
    ) -> percolator::Result<Percolator> {
        // As the owner's own transactions: its observers handle the changes that the command makes.
        let options = Options { trace: self.db.options().trace, ..options };
        let gc = GcOptions { retention: RETENTION, ..GcOptions::default() };
        let client = self.db.another_client_with(options, Some(gc)).await?;
        self.syncs.fetch_or(syncs, Ordering::Relaxed);
        locked(&self.clients).push(client.clone());
        Ok(client)
    }

    /// Closes the clients of the command. If it `wrote`, and promises that what it commits survives
    /// a power cut, syncs: this process may have opened the database with less durability.
    pub(crate) async fn close(&self, longest: Duration, wrote: bool) -> percolator::Result<()> {
        let clients = std::mem::take(&mut *locked(&self.clients));
        for client in clients {
            let client: &percolator::Client = &client;
            client.close_within(longest).await;
        }
        let syncs = wrote && self.syncs.load(Ordering::Relaxed);
        if syncs { self.db.sync().await } else { Ok(()) }
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

    /// Sends frames. After a failure nothing more is sent: a part of a frame may be on its way.
    fn send(&self, frames: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut connection = locked(&self.connection);
        let sent = connection.as_mut().map(|to| frames(to));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => {
                *connection = None;
                // As if the reader of a pipe had gone: that ends a command quietly.
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

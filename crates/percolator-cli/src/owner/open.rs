//! Lets a program that embeds Percolator share its open directory. The program listens for the
//! command `percolator`, whose subcommands then run in the program's process.

use std::io;
use std::path::Path;

use percolator::Percolator;

use super::asked::Open;
use super::listen::{self, Listener};
use crate::cli;

/// Lets the command `percolator` use a database that this program has open in a directory. This
/// process then runs `percolator get`, `scan`, `set` and others with `--data` and that directory.
/// It accepts commands of the same user and of the superuser. Runs in a tokio runtime.
///
/// Close the listener before the database. While it is there, the database stays open.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let root = tempfile::tempdir().unwrap();
/// # let dir = root.path().join("db");
/// let db = percolator::Percolator::open(&dir).await?;
/// let listener = percolator_cli::owner::listen(&db, &dir)?;
/// assert!(dir.join("owner.sock").exists());
/// // Here the program does its work, and `percolator scan --data DIR` shows it.
/// listener.close().await;
/// db.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Errors
/// If no place takes a socket. A directory whose path is longer than 95 bytes takes none, nor
/// does a file system without sockets. Then the runtime directory (`XDG_RUNTIME_DIR`) or the
/// directory of temporary files must take the socket.
pub fn listen(db: &Percolator, dir: impl AsRef<Path>) -> io::Result<Listener> {
    listen::start(Open::Database(db.clone()), cli::run_asked, dir.as_ref())
}

//! Implements `backup`: copies a store, whether or not a process has it open.

use std::path::PathBuf;

use bigtable_fjall::{BackedUp, Options};
use clap::Args;
use serde_json::json;

use crate::clock::rfc3339;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{Column, grouped};
use crate::owner::asked;
use crate::store::{check_there, open_store};

/// Copy a store as it is at one moment, also while a process writes to it.
///
/// The copy has everything that was acknowledged before the command began. If a process has
/// the directory open (a program of yours, `demo`, `serve table`), that process makes the
/// copy, with its own user's rights.
///
/// If the target directory holds an earlier backup of the same store, the command writes new
/// contents only. The earlier backup stays until the new backup is whole, and is then replaced. If
/// the store is damaged, the command reports the damage and makes no backup.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator backup --data D --to B
  percolator check B && percolator restore --from B --data NEW")]
pub(crate) struct Backup {
    /// The directory for the backup. It is empty, does not exist yet, or holds an earlier
    /// backup.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The directory of the store, on this machine.
    #[arg(long, value_name = "DIR", env = "PERCOLATOR_DATA", hide_env_values = true)]
    data: PathBuf,
}

impl Backup {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let made = match asked::current() {
            // The path is relative to the asker's directory, and this process may work in
            // another one.
            Some(asked) => asked.backup(&asked.asker().dir.join(&self.to)).await?,
            None => self.of_closed().await?,
        };
        if out.json {
            out.json(&as_json(&made))?;
        } else {
            let number = |number: usize| grouped(number as u64);
            let line = |name: &str, files: usize, bytes: u64| {
                vec![name.to_owned(), number(files), grouped(bytes)]
            };
            let rows = vec![
                line("in the backup", made.files, made.bytes),
                line("written by this command", made.new_files, made.new_bytes),
            ];
            let header = [Column::left(""), Column::right("files"), Column::right("bytes")];
            out.table(&header, rows)?;
        }
        Ok(Exit::Done)
    }

    /// Opens a store that no other process has open, and copies it.
    async fn of_closed(&self) -> anyhow::Result<BackedUp> {
        check_there(&self.data)?;
        let store = open_store(&self.data, Options::default()).await?;
        let to = self.to.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = store.backup(to);
            let closed = store.close();
            made.and_then(|made| closed.map(|()| made))
        });
        Ok(made.await??)
    }
}

fn as_json(made: &BackedUp) -> serde_json::Value {
    json!({
        "store": made.store.to_string(),
        "made": rfc3339(made.made * 1000),
        "files": made.files,
        "bytes": made.bytes,
        "new_files": made.new_files,
        "new_bytes": made.new_bytes,
    })
}

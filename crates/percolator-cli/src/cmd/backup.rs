//! Implements `backup`: copies a store, whether or not a process has it open, or asks a table
//! server for a copy.

use std::path::{Path, PathBuf};

use bigtable_fjall::{BackedUp, Options};
use clap::Args;
use percolator::cluster::Config;
use serde_json::json;

use crate::clock::rfc3339;
use crate::cmd::config;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Column, grouped};
use crate::owner::asked;
use crate::store::{check_one_store, check_there, open_store};

/// Copy a store as it is at one moment, also while a process writes to it.
///
/// The copy has everything that was acknowledged before the command began. If a process has
/// the directory open, that process makes the copy, with its own user's rights. It is `demo`,
/// `serve table`, or a program of yours that calls `percolator_cli::owner::listen`.
///
/// With --config, the cluster's table server makes the backup, on its own machine and under
/// the directory that its administrator named (`serve table --backups DIR`).
///
/// If the target directory holds an earlier backup of the same store, the command writes new
/// contents only. The earlier backup stays until the new backup is whole, and is then replaced. If
/// the store is damaged, the command reports the damage and makes no backup.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator backup --data D --to B
  percolator backup --config percolator.toml --to weekly
  percolator check B && percolator restore --from B --data NEW")]
pub(crate) struct Backup {
    /// The directory for the backup. It is empty, does not exist yet, or holds an earlier
    /// backup. With --config it is a name, without slashes, in the table server's directory of
    /// backups.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The directory of the store, on this machine.
    #[arg(long, value_name = "DIR", env = "PERCOLATOR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
    /// The settings of a cluster, whose table server is to make the backup.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Backup {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let made = match asked::current() {
            // The path is relative to the asker's directory, and this process may work in
            // another one.
            Some(asked) => asked.backup(&asked.asker().dir.join(&self.to)).await?,
            None => self.made_here_or_by_server().await?,
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

    async fn made_here_or_by_server(&self) -> anyhow::Result<BackedUp> {
        match (&self.config, &self.data) {
            (Some(file), data) => {
                check_one_store(data.as_deref(), "--config")?;
                let settings = Config::load_file(file).map_err(config::with_advice)?;
                let name = self.to.to_str().ok_or_else(|| {
                    Failure::usage("the name of the backup is not text", "choose another --to")
                })?;
                settings.backup(name).await.map_err(of_server)
            }
            (None, Some(data)) => self.of_closed(data).await,
            (None, None) => Err(Failure::usage(
                "no store is named",
                "give a directory with --data DIR or PERCOLATOR_DATA, or the settings of a cluster \
                 with --config FILE",
            )),
        }
    }

    /// Opens a store that no other process has open, and copies it.
    async fn of_closed(&self, data: &Path) -> anyhow::Result<BackedUp> {
        check_there(data)?;
        let store = open_store(data, Options::default()).await?;
        let to = self.to.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = store.backup(to);
            let closed = store.close();
            made.and_then(|made| closed.map(|()| made))
        });
        Ok(made.await??)
    }
}

/// Converts the error of a backup that a table server was asked for.
fn of_server(error: percolator::Error) -> anyhow::Error {
    match error {
        percolator::Error::Store(bigtable::Error::InvalidRequest(why)) => Failure::usage(
            why.to_string(),
            "`percolator serve table --help` says how a table server makes backups",
        ),
        error => config::with_advice(error),
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

//! Opening the store that a command works on.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use percolator::{CommitPath, OpenOptions, Options, Percolator, Table};

use crate::exit::Failure;

/// When a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// It survives a power cut.
    Sync,
    /// It survives the end of the process; the last commits may be lost with the power.
    Buffered,
}

impl Durability {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Buffered => "buffered",
        }
    }
}

impl From<Durability> for percolator::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Sync => percolator::Durability::Sync,
            Durability::Buffered => percolator::Durability::Buffered,
        }
    }
}

/// How transactions commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Commit {
    /// In one batch where that can be.
    OneStep,
    /// Prewrite, then commit, as in the paper; to look at it, or to compare.
    TwoPhases,
}

impl Commit {
    /// A client's options with it.
    pub(crate) fn options(self) -> Options {
        let commit_path = match self {
            Commit::OneStep => CommitPath::OneStep,
            Commit::TwoPhases => CommitPath::TwoPhases,
        };
        Options { commit_path, ..Options::default() }
    }
}

/// Which store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The directory of the store.
    #[arg(long, value_name = "DIR", env = "PERCOLATOR_DATA", hide_env_values = true)]
    pub(crate) data: PathBuf,
    /// When a commit counts as durable.
    #[arg(long, value_enum, default_value = "sync", value_name = "LEVEL")]
    pub(crate) durability: Durability,
    /// How transactions commit.
    #[arg(long, value_enum, default_value = "one-step", value_name = "PATH")]
    pub(crate) commit: Commit,
}

impl StoreArgs {
    /// Opens the store, creating it if it is not there.
    pub(crate) async fn open(&self) -> anyhow::Result<Percolator> {
        Ok(Percolator::open_with(&self.data, self.options()).await?)
    }

    /// Opens a store that must be there, without a garbage collection in the background.
    pub(crate) async fn open_existing_alone(&self) -> anyhow::Result<Percolator> {
        check_there(&self.data)?;
        let options = OpenOptions { gc: None, ..self.options() };
        Ok(Percolator::open_with(&self.data, options).await?)
    }

    fn options(&self) -> OpenOptions {
        let (durability, client) = (self.durability.into(), self.commit.options());
        OpenOptions { durability, client, ..OpenOptions::default() }
    }

    /// Opens a store that must be there.
    pub(crate) async fn open_existing(&self) -> anyhow::Result<Percolator> {
        check_there(&self.data)?;
        self.open().await
    }
}

/// Which table of which store.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The table.
    #[arg(long, default_value = "default", value_name = "NAME", help_heading = "Store")]
    pub(crate) table: String,
}

impl TableArgs {
    /// Opens store and table, creating them if they are not there.
    pub(crate) async fn open(&self) -> anyhow::Result<(Percolator, Table)> {
        let db = self.store.open().await?;
        let table = db.table(&self.table).await?;
        Ok((db, table))
    }

    /// Opens a store and a table that must be there.
    pub(crate) async fn open_existing(&self) -> anyhow::Result<(Percolator, Table)> {
        let db = self.store.open_existing().await?;
        let names = db.table_names().await?;
        if !names.contains(&self.table) {
            let help = match names.as_slice() {
                [] => "the store has no tables; `percolator set ROW COL VALUE` creates one".into(),
                names => format!("name one with --table; there are: {}", names.join(", ")),
            };
            return Err(Failure::no(format!("the store has no table {:?}", self.table), help));
        }
        let table = db.table(&self.table).await?;
        Ok((db, table))
    }
}

/// Reading must not create a store.
fn check_there(dir: &Path) -> anyhow::Result<()> {
    let problem = match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(false) => return Ok(()),
        Ok(true) => "the directory is empty".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Failure::usage(
        format!("{}: no store is there: {problem}", dir.display()),
        "name an existing one with --data or PERCOLATOR_DATA; \
         `percolator set ROW COL VALUE --data DIR` creates one",
    ))
}

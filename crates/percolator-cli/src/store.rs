//! Opens the store that a command works on, and closes it at the end of the command.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;

use bigtable::Store;
use bigtable::sync::locked;
use bigtable_fjall::FjallStore;
use clap::{Args, ValueEnum};
use percolator::admin::GcOptions;
use percolator::cluster::{Cluster, Config, this_process};
use percolator::transaction::CommitPath;
use percolator::watch::{Sampling, Watch};
use percolator::{OpenOptions, Options, Percolator, Table};
use percolator_console::Recorder;

use crate::cmd::config;
use crate::exit::Failure;
use crate::owner::asked::{self, Asked, Open};
#[cfg(unix)]
use crate::owner::find::{OpenElsewhere, find};
#[cfg(unix)]
use crate::owner::listen::{self, Listener};
use crate::patience::{Outage, PATIENCE, Patient, is_unanswered};
use crate::read_only;

/// How long a command waits at its end for background work.
pub(crate) const CLOSING_MAX: Duration = Duration::from_secs(10);

/// How long, and how often, a command tries to open a directory that another process has open.
/// That process may be about to end, or about to listen.
#[cfg(unix)]
const IN_USE_MAX: Duration = Duration::from_secs(2);
#[cfg(unix)]
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// How long it takes at most until an oracle leads after the store is back.
const ELECTION_MAX: Duration = Duration::from_secs(5);

/// How long each request of a worker or loader waits for others to share a batch, in milliseconds
/// (paper section 2.5). The settings may say otherwise.
const BATCH_DELAY_MS: &str = "1";

/// When a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// The commit survives a power cut.
    Sync,
    /// The commit survives the end of the process; a power cut may lose the last commits.
    Buffered,
}

impl Durability {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
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
pub enum Commit {
    /// Commit in one batch where the store can do that.
    OneStep,
    /// Prewrite, then commit, as in the paper.
    TwoPhases,
}

impl Commit {
    /// Returns the options of a client that commits in this way.
    pub fn options(self) -> Options {
        let commit_path = match self {
            Commit::OneStep => CommitPath::OneStep,
            Commit::TwoPhases => CommitPath::TwoPhases,
        };
        Options { commit_path, ..Options::default() }
    }
}

/// The role of a console, which reports an outage instead of waiting for its end.
pub(crate) const CONSOLE: &str = "console";

/// The options that choose a store.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The directory of the store.
    #[arg(long, value_name = "DIR", env = "PERCOLATOR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
    /// The settings of a cluster, to use the cluster's store instead of a directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When a commit counts as durable. By default each commit is synced. `import` and the commands
    /// that change a web index as a whole sync at their end instead, because they can be repeated.
    /// In a cluster the table server decides, and this option has no effect.
    #[arg(long, value_enum, value_name = "LEVEL")]
    durability: Option<Durability>,
    /// How transactions commit. In a cluster they always take two phases.
    #[arg(long, value_enum, default_value = "one-step", value_name = "PATH")]
    commit: Commit,
    /// The cache of an embedded store in bytes, if the command wants another size than the
    /// default.
    #[arg(skip)]
    cache_bytes: Option<u64>,
    /// The recorder of the client's events.
    #[arg(skip)]
    recorder: Option<Arc<Recorder>>,
    /// The command's role among the processes of a cluster.
    #[arg(skip = "client")]
    role: &'static str,
    /// The transactions that leave a trace in the store.
    #[arg(skip)]
    trace: Sampling,
}

/// The place of a store.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a directory, for this process alone.
    Directory(PathBuf),
    /// Behind a network, with oracle and lock service.
    Cluster(Box<Config>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(dir) => write!(f, "{}", dir.display()),
            Place::Cluster(config) => match config.store() {
                Ok(store) => write!(f, "{store}"),
                Err(error) => write!(f, "{error}"),
            },
        }
    }
}

impl StoreArgs {
    /// Returns the place of the store: from the flags, else from PERCOLATOR_DATA, else from the
    /// settings. In the place of a directory that cannot be written, a command that only reads
    /// gets a stand-in.
    pub(crate) fn place(&self) -> anyhow::Result<Place> {
        if let Some(asked) = asked::current() {
            return Ok(Place::Directory(asked.dir().to_owned()));
        }
        if let Some(file) = &self.config {
            check_one_store(self.data.as_deref(), "--config")?;
            let config = Config::load_file(file).map_err(config::with_advice)?;
            return Ok(Place::Cluster(Box::new(config)));
        }
        if let Some(dir) = &self.data {
            return Ok(Place::Directory(read_only::directory(dir)?));
        }
        let config = config::load()?;
        if config.names_a_store() {
            Ok(Place::Cluster(Box::new(config)))
        } else {
            Err(Failure::usage(
                "no store is named",
                "give a directory with --data DIR or PERCOLATOR_DATA, or the settings of a cluster \
             with --config FILE",
            ))
        }
    }

    /// Returns these arguments for a command that can be repeated as a whole. Such a command
    /// syncs once, at its end, unless the user asks for more.
    pub(crate) fn synced_at_end(&self) -> StoreArgs {
        let durability = self.durability.or(Some(Durability::Buffered));
        StoreArgs { durability, ..self.clone() }
    }

    /// Returns these arguments with a cache of so many bytes for an embedded store.
    pub(crate) fn with_cache(&self, bytes: u64) -> StoreArgs {
        StoreArgs { cache_bytes: Some(bytes), ..self.clone() }
    }

    /// Returns these arguments with a recorder of the client's events.
    pub(crate) fn watched_by(&self, recorder: Arc<Recorder>) -> StoreArgs {
        StoreArgs { recorder: Some(recorder), ..self.clone() }
    }

    /// Returns these arguments with the command's role among the processes of a cluster.
    pub(crate) fn in_role(&self, role: &'static str) -> StoreArgs {
        StoreArgs { role, ..self.clone() }
    }

    /// Returns these arguments that leave a trace of these transactions.
    pub(crate) fn traced(&self, trace: Sampling) -> StoreArgs {
        StoreArgs { trace, ..self.clone() }
    }

    /// Opens the store, and creates it if it does not exist.
    pub(crate) async fn open(&self) -> anyhow::Result<Percolator> {
        self.open_at(&self.place()?).await
    }

    /// Opens the store at its place, and creates it if it does not exist.
    pub(crate) async fn open_at(&self, place: &Place) -> anyhow::Result<Percolator> {
        self.open_with(place, Some(GcOptions::default())).await
    }

    /// Opens an existing store, without background garbage collection. A collection would resolve
    /// locks and remove records that the command is to show.
    pub(crate) async fn open_existing_alone(&self) -> anyhow::Result<Percolator> {
        let place = self.place()?;
        if let Place::Directory(dir) = &place {
            check_there(dir)?;
        }
        self.open_with(&place, None).await
    }

    async fn open_with(&self, place: &Place, gc: Option<GcOptions>) -> anyhow::Result<Percolator> {
        if let Some(asked) = asked::current() {
            return self.open_asked(&asked).await;
        }
        match place {
            Place::Directory(dir) => {
                open_directory(dir, OpenOptions { gc, ..self.options() }).await
            }
            Place::Cluster(config) => {
                let patience = if self.role == CONSOLE { Duration::ZERO } else { PATIENCE };
                let cluster = cluster_of(config, self.role, self.recorder.clone(), self.trace)?;
                let cluster = Cluster { gc, ..cluster };
                reach(config, cluster, self.recorder.as_ref(), patience).await
            }
        }
    }

    /// Opens a client of the store that this process has open for itself. The client shares the
    /// cache and the durability of the store. If the command promises more durability, it syncs
    /// at its end.
    async fn open_asked(&self, asked: &Asked) -> anyhow::Result<Percolator> {
        let syncs = self.durability != Some(Durability::Buffered);
        Ok(asked.client(self.commit.options(), syncs).await?)
    }

    fn options(&self) -> OpenOptions {
        let durability = self.durability.unwrap_or(Durability::Sync).into();
        let watch = self.recorder.clone().map(|recorder| recorder as Arc<dyn Watch>);
        let trace = self.trace;
        let client = Options { watch, trace, ..self.commit.options() };
        let default = OpenOptions::default();
        let cache_bytes = self.cache_bytes.unwrap_or(default.cache_bytes);
        OpenOptions { durability, client, cache_bytes, ..default }
    }

    /// Opens an existing store.
    pub(crate) async fn open_existing(&self) -> anyhow::Result<Percolator> {
        self.open_existing_at(&self.place()?).await
    }

    /// Opens an existing store at its place.
    pub(crate) async fn open_existing_at(&self, place: &Place) -> anyhow::Result<Percolator> {
        if let Place::Directory(dir) = place {
            check_there(dir)?;
        }
        self.open_at(place).await
    }
}

/// Makes each request wait a moment for others to share a batch. This suits commands with many
/// requests in flight. A command that awaits each answer before its next request would only lose
/// time.
pub(crate) fn in_batches(config: &mut Config) -> anyhow::Result<()> {
    let key = "batch_delay_ms";
    let given = config.settings().any(|(name, _, source)| name == key && source != "default");
    if !given {
        config.set("this command", key, BATCH_DELAY_MS).map_err(config::with_advice)?;
    }
    Ok(())
}

/// Returns the client that knows what the process with the open store is doing. A command that
/// runs for another process has a client of its own, which knows only the command. So the
/// database's own client is returned.
pub(crate) fn at_work(db: &Percolator) -> Percolator {
    let asked = asked::current();
    asked.as_ref().and_then(|asked| asked.owner()).unwrap_or(db).clone()
}

/// Connects to a cluster in a role. The client reports its events and its requests to the
/// recorder, if there is one, and traces the transactions that `trace` selects. It outlasts an
/// outage of the store of up to `patience`; a worker has its own ways to do so.
pub(crate) async fn connect(
    config: &Config,
    role: &str,
    recorder: Option<Arc<Recorder>>,
    trace: Sampling,
    patience: Duration,
) -> anyhow::Result<Percolator> {
    let cluster = cluster_of(config, role, recorder.clone(), trace)?;
    reach(config, cluster, recorder.as_ref(), patience).await
}

/// The settings of a client of a cluster.
fn cluster_of(
    config: &Config,
    role: &str,
    recorder: Option<Arc<Recorder>>,
    trace: Sampling,
) -> anyhow::Result<Cluster> {
    let mut cluster = config.cluster().map_err(config::with_advice)?;
    cluster.client.watch = recorder.map(|recorder| recorder as Arc<dyn Watch>);
    cluster.process = this_process(role);
    cluster.client.trace = trace;
    Ok(cluster)
}

/// Opens the store of a cluster, and a client of its database.
async fn reach(
    config: &Config,
    mut cluster: Cluster,
    recorder: Option<&Arc<Recorder>>,
    patience: Duration,
) -> anyhow::Result<Percolator> {
    let unanswered = |error: &percolator::Error| match error {
        percolator::Error::Store(error) => is_unanswered(error),
        _ => false,
    };
    let store = Outage::new(patience).outlast(unanswered, || config.open_store()).await;
    let mut store = counted(store.map_err(config::with_advice)?, recorder);
    // A store that was reached may lose a server, and an oracle cannot lead until it is replaced.
    let patience = if patience.is_zero() { patience } else { patience.max(outage_max(config)) };
    let outage = Outage::new(patience);
    if !patience.is_zero() {
        cluster.oracle.deadline = patience + ELECTION_MAX;
        store = Arc::new(Patient { store, outage });
    }
    // A client that could not be opened has begun nothing.
    let open = || Percolator::connect(store.clone(), cluster.clone());
    Ok(opened(outage.outlast(unanswered, open).await?))
}

/// How long requests may fail while one of the store's servers is replaced; zero if nothing is
/// known of that.
pub(crate) fn outage_max(config: &Config) -> Duration {
    config.store().ok().and_then(|address| address.outage_max()).unwrap_or_default()
}

/// Returns the store with its requests counted, if there is a recorder.
pub(crate) fn counted(store: Arc<dyn Store>, recorder: Option<&Arc<Recorder>>) -> Arc<dyn Store> {
    match recorder {
        Some(recorder) => recorder.count_requests(store),
        None => store,
    }
}

/// The databases and listeners that this process has opened.
#[derive(Default)]
struct Opened {
    databases: Vec<Percolator>,
    /// The directories where others may run commands.
    #[cfg(unix)]
    listeners: Vec<Listener>,
}

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

/// Opens the store in a directory.
///
/// # Errors
/// [`OpenElsewhere`] if another process has it open and listens.
pub(crate) async fn open_directory(dir: &Path, options: OpenOptions) -> anyhow::Result<Percolator> {
    let db = opened(open_free(dir, options).await?);
    if !read_only::is_stand_in(dir) {
        listen_at(Open::Database(db.clone()), dir);
    }
    Ok(db)
}

/// Opens the store in a directory, without a database over it.
///
/// # Errors
/// As [`open_directory`].
pub(crate) async fn open_store(
    dir: &Path,
    options: bigtable_fjall::Options,
) -> anyhow::Result<FjallStore> {
    when_free(dir, async || {
        let (dir, options) = (dir.to_owned(), options.clone());
        let opened = tokio::task::spawn_blocking(move || FjallStore::open(dir, options)).await;
        let ended = |why| {
            percolator::Error::Unavailable(format!("opening the store was interrupted: {why}"))
        };
        Ok(opened.map_err(ended)??)
    })
    .await
}

async fn open_free(dir: &Path, options: OpenOptions) -> anyhow::Result<Percolator> {
    when_free(dir, async || Percolator::open_with(dir, options.clone()).await).await
}

/// Opens a directory, unless another process has it open and listens.
#[cfg(unix)]
async fn when_free<T>(
    dir: &Path,
    open: impl AsyncFn() -> percolator::Result<T>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        let error = match open().await {
            Err(error @ percolator::Error::Store(bigtable::Error::InUse { .. })) => error,
            opened => return Ok(opened?),
        };
        if let Some(owner) = find(dir).await {
            return Err(OpenElsewhere { dir: dir.to_owned(), owner }.into());
        }
        if begun.elapsed() > IN_USE_MAX {
            return Err(error.into());
        }
        tokio::time::sleep(IN_USE_PAUSE).await;
    }
}

#[cfg(not(unix))]
async fn when_free<T>(
    _dir: &Path,
    open: impl AsyncFn() -> percolator::Result<T>,
) -> anyhow::Result<T> {
    Ok(open().await?)
}

/// Lets other processes look into a directory that this one has open, until the command ends. Of a
/// store whose transactions others run they can make a backup, and learn who has it open.
#[cfg(unix)]
pub(crate) fn listen_at(open: Open, dir: &Path) {
    if let Some(listener) = listen::begin(open, dir) {
        locked(&OPENED).get_or_insert_default().listeners.push(listener);
    }
}

#[cfg(not(unix))]
pub(crate) fn listen_at(_open: Open, _dir: &Path) {}

/// The directory that an error says is in use.
#[cfg(unix)]
pub(crate) fn in_use(error: &anyhow::Error) -> Option<PathBuf> {
    error.chain().find_map(|cause| {
        let of_store = cause.downcast_ref::<bigtable::Error>();
        let of_database = || match cause.downcast_ref()? {
            percolator::Error::Store(error) => Some(error),
            _ => None,
        };
        match of_store.or_else(of_database)? {
            bigtable::Error::InUse { dir } => Some(dir.clone()),
            _ => None,
        }
    })
}

fn opened(db: Percolator) -> Percolator {
    locked(&OPENED).get_or_insert_default().databases.push(db.clone());
    db
}

/// Closes what the command has opened, so that no commit is left for others to finish.
pub(crate) async fn close_all() -> anyhow::Result<()> {
    let all = locked(&OPENED).take().unwrap_or_default();
    // This must precede the end of the database: the next process that opens the directory
    // listens there.
    #[cfg(unix)]
    for listener in all.listeners {
        listener.close().await;
    }
    let mut closed = Ok(());
    for db in all.databases {
        let result = db.close_within(CLOSING_MAX).await;
        closed = closed.and(result.map(drop));
    }
    // The files of closed databases may be removed.
    read_only::remove_all();
    Ok(closed?)
}

/// The options that choose a table of a store.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The table.
    #[arg(long, default_value = "default", value_name = "NAME", help_heading = "Store")]
    pub(crate) table: String,
}

impl TableArgs {
    /// Opens store and table, and creates them if they do not exist.
    pub(crate) async fn open(&self) -> anyhow::Result<(Percolator, Table)> {
        let db = self.store.open().await?;
        let table = db.table(&self.table).await?;
        Ok((db, table))
    }

    /// Opens an existing table of an existing store.
    pub(crate) async fn open_existing(&self) -> anyhow::Result<(Percolator, Table)> {
        self.existing_in(self.store.open_existing().await?).await
    }

    /// Like [`TableArgs::open_existing`], without background garbage collection.
    pub(crate) async fn open_existing_alone(&self) -> anyhow::Result<(Percolator, Table)> {
        self.existing_in(self.store.open_existing_alone().await?).await
    }

    async fn existing_in(&self, db: Percolator) -> anyhow::Result<(Percolator, Table)> {
        let names = db.table_names().await?;
        if !names.contains(&self.table) {
            let help = match names.as_slice() {
                [] => "the store has no tables; `percolator set ROW COL VALUE` creates one".into(),
                names => {
                    format!("name one of the store's tables with --table: {}", names.join(", "))
                }
            };
            return Err(Failure::no(format!("the store has no table {:?}", self.table), help));
        }
        let table = db.table(&self.table).await?;
        Ok((db, table))
    }
}

/// How often a process that works on a store for long looks whether the store is still the one that
/// it has opened.
const REPLACED_EVERY: Duration = Duration::from_secs(5);

/// Returns once the store was replaced under this process, which then must end: the store refuses
/// all of its requests.
pub(crate) async fn replaced(store: &dyn bigtable::Store) -> anyhow::Error {
    loop {
        tokio::time::sleep(REPLACED_EVERY).await;
        if let Err(error @ bigtable::Error::Replaced) = store.table_names().await {
            return error.into();
        }
    }
}

/// Returns an error if `--data` names a store beside another option that does. The directory of
/// PERCOLATOR_DATA gives way to that option, also if it is typed once more.
pub(crate) fn check_one_store(data: Option<&Path>, option: &str) -> anyhow::Result<()> {
    let variable = std::env::var_os("PERCOLATOR_DATA");
    if data.is_none_or(|dir| variable.as_deref() == Some(dir.as_os_str())) {
        return Ok(());
    }
    Err(Failure::usage(format!("--data and {option} name two stores"), "omit one of them"))
}

/// Returns an error unless a store exists: a command that reads must not create one.
pub(crate) fn check_there(dir: &Path) -> anyhow::Result<()> {
    let problem = match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(false) => return Ok(()),
        Ok(true) => "the directory is empty".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Failure::usage(
                format!("{}: the directory cannot be read: {error}", dir.display()),
                "run the command as the user who owns the directory, or let this user read it",
            ));
        }
        Err(error) => error.to_string(),
    };
    Err(Failure::usage(
        format!("{}: no store is there: {problem}", dir.display()),
        "name an existing one with --data or PERCOLATOR_DATA; \
         `percolator set ROW COL VALUE --data DIR` creates one",
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_settings_say_of_batches_stands() {
        let mut config = Config::default();
        in_batches(&mut config).unwrap();
        assert_eq!(config.batch_delay().unwrap(), Duration::from_millis(1));
        for given in [0, 7] {
            let mut config = Config::default();
            config.add_text("file", &format!("batch_delay_ms = {given}")).unwrap();
            in_batches(&mut config).unwrap();
            assert_eq!(config.batch_delay().unwrap(), Duration::from_millis(given));
        }
    }
}

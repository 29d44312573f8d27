//! Holds the plan of a cluster: its processes, addresses and settings. The first `up` writes the
//! plan to the directory of the cluster, and later commands read it there.
//!
//! ```text
//!   cluster.json       this plan          percolator.toml    the settings for clients and workers
//!   table/  search/    data               run/ROLE           process number, locked while it lives
//!   log/ROLE           its log            cluster.lock       held by `up` and `down`
//!   log/ROLE.out       its other output
//! ```

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use percolator::cluster::{Config, StoreAddress};
use serde::{Deserialize, Serialize};

use crate::cmd::config;
use crate::cmd::worker::{THREADS, set_locks};
use crate::exit::Failure;
use crate::private;

/// How many oracles a cluster has: one leads, one stands by.
const ORACLES: usize = 2;
/// The most workers of one cluster.
pub(super) const WORKERS_MAX: u16 = 64;

/// The processes of a cluster, and their settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Where the cluster's own table server listens, if it has one.
    pub(super) table: Option<SocketAddr>,
    /// The store's URL.
    pub(super) store: String,
    pub(super) oracles: Vec<SocketAddr>,
    /// The lock service's URL.
    pub(super) locks: String,
    pub(super) workers: u16,
    /// Changes that each worker handles at once.
    pub(super) threads: u16,
    /// The table server's durability.
    pub(super) durability: String,
}

/// One process of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Table,
    Oracle(usize),
    Worker(u16),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Table => write!(f, "table"),
            Role::Oracle(index) => write!(f, "oracle-{}", index + 1),
            Role::Worker(index) => write!(f, "worker-{}", index + 1),
        }
    }
}

impl Plan {
    /// Makes a plan with the ports from `first` on, or with any free ports of this machine.
    pub(super) fn new(
        store: Option<&str>,
        locks: &str,
        first: Option<u16>,
    ) -> anyhow::Result<Plan> {
        let mut free = free_addresses(ORACLES + usize::from(store.is_none()), first)?;
        let oracles = free.split_off(free.len() - ORACLES);
        let table = free.first().copied();
        let store = match (table, store) {
            (Some(table), _) => store_at(table),
            // A URL without host and port takes those of `BIGTABLE_EMULATOR_HOST`. The plan must
            // contain them, because the processes do not get this environment.
            (None, store) => StoreAddress::from_env(store.unwrap_or_default())?.to_string(),
        };
        let mut settings = Config::default();
        set_locks(&mut settings, locks)?;
        let (workers, threads) = (0, THREADS);
        let (locks, durability) = (locks.to_owned(), "sync".to_owned());
        Ok(Plan { table, store, oracles, locks, workers, threads, durability })
    }

    /// Returns this plan with the ports from `first` on.
    pub(super) fn moved(&self, first: u16) -> anyhow::Result<Plan> {
        let own = usize::from(self.table.is_some());
        let mut addresses = addresses(own + self.oracles.len(), first)?;
        if addresses.iter().eq(self.table.iter().chain(&self.oracles)) {
            return Ok(self.clone());
        }
        let oracles = addresses.split_off(own);
        let table = addresses.first().copied();
        let store = table.map_or_else(|| self.store.clone(), store_at);
        Ok(Plan { table, store, oracles, ..self.clone() })
    }

    /// Returns all processes, in the order in which they are started.
    pub(super) fn roles(&self) -> Vec<Role> {
        let mut roles: Vec<Role> = self.table.iter().map(|_| Role::Table).collect();
        roles.extend((0..self.oracles.len()).map(Role::Oracle));
        roles.extend((0..self.workers).map(Role::Worker));
        roles
    }

    /// Returns the address at which a process listens, if it listens at all.
    pub(super) fn address(&self, role: Role) -> Option<SocketAddr> {
        match role {
            Role::Table => self.table,
            Role::Oracle(index) => self.oracles.get(index).copied(),
            Role::Worker(_) => None,
        }
    }

    /// Returns the settings for clients, in TOML.
    pub(super) fn settings(&self, place: &Place) -> anyhow::Result<String> {
        let mut settings = Config::default();
        let oracles: Vec<String> = self.oracles.iter().map(ToString::to_string).collect();
        let search = fs::canonicalize(place.dir())?.join("search");
        let mut set =
            |key, value: &str| settings.set("cluster up", key, value).map_err(config::with_advice);
        set("store", &self.store)?;
        set("oracles", &oracles.join(","))?;
        set("app.search", &search.display().to_string())?;
        set_locks(&mut settings, &self.locks)?;
        let mut text = "# Written by `percolator cluster up`, which overwrites this file each \
                        time.\n"
            .to_owned();
        for (key, value, _) in settings.settings() {
            text.push_str(&format!("{key} = {value}\n"));
        }
        Ok(text)
    }
}

/// The URL of the store that a cluster's own table server serves.
fn store_at(table: SocketAddr) -> String {
    format!("bigtable://{table}/percolator/cluster")
}

/// Returns addresses of this machine, with ports from `first` on.
fn addresses(count: usize, first: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let ports: Vec<u16> = (first..=u16::MAX).take(count).collect();
    if ports.len() < count || first == 0 {
        return Err(Failure::usage(
            format!("--ports {first}: the cluster needs {count} ports from there on"),
            format!("give a first port from 1 to {}", usize::from(u16::MAX) + 1 - count),
        ));
    }
    Ok(ports.into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect())
}

/// Returns addresses at which nobody listens: with the ports from `first` on, or with any ports.
fn free_addresses(count: usize, first: Option<u16>) -> anyhow::Result<Vec<SocketAddr>> {
    let wanted = match first {
        Some(first) => addresses(count, first)?,
        None => vec![(Ipv4Addr::LOCALHOST, 0).into(); count],
    };
    let bind = |address: &SocketAddr| {
        TcpListener::bind(address).map_err(|error| {
            Failure::usage(
                format!("cannot listen at {address}: {error}"),
                "give the first of several free ports with --ports FIRST",
            )
        })
    };
    // Holds all ports at the same time, so that no two are the same.
    let listeners: Vec<TcpListener> = wanted.iter().map(bind).collect::<Result<_, _>>()?;
    Ok(listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}

/// The directory of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Place(PathBuf);

impl Place {
    /// Returns the directory of a cluster, which may be new or empty.
    pub(super) fn at(dir: &Path) -> anyhow::Result<Place> {
        let place = Place(dir.to_owned());
        let there = dir.is_dir() && fs::read_dir(dir)?.next().is_some();
        if there && !place.plan_file().exists() {
            return Err(Failure::usage(
                format!("{}: the directory is not empty and holds no cluster", dir.display()),
                "choose an empty or a new directory with --data",
            ));
        }
        Ok(place)
    }

    /// Creates the directory and its subdirectories.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        private::create_dir(&self.0)?;
        for sub in ["run", "log"] {
            private::create_dir(&self.0.join(sub))?;
        }
        Ok(())
    }

    /// Returns the directory and the plan of an existing cluster.
    pub(super) fn find(dir: &Path) -> anyhow::Result<(Place, Plan)> {
        let place = Place(dir.to_owned());
        match place.plan()? {
            Some(plan) => Ok((place, plan)),
            None => Err(Failure::usage(
                format!("{}: the directory holds no cluster", dir.display()),
                "`percolator cluster up --data DIR` starts one",
            )),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.0
    }

    pub(super) fn log(&self, role: Role) -> PathBuf {
        self.0.join("log").join(role.to_string())
    }

    /// The file of a process's stdout and stderr: its address, an error that ends it, a panic.
    pub(super) fn output(&self, role: Role) -> PathBuf {
        self.0.join("log").join(format!("{role}.out"))
    }

    pub(super) fn run(&self, role: Role) -> PathBuf {
        self.0.join("run").join(role.to_string())
    }

    pub(super) fn settings_file(&self) -> PathBuf {
        self.0.join("percolator.toml")
    }

    fn plan_file(&self) -> PathBuf {
        self.0.join("cluster.json")
    }

    /// Reads the plan, if there is one.
    pub(super) fn plan(&self) -> anyhow::Result<Option<Plan>> {
        let file = self.plan_file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(anyhow::Error::from(error).context(file.display().to_string()));
            }
        };
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|error| {
            Failure::usage(
                format!("{}: {error}", file.display()),
                "the file is damaged, or another version wrote it: stop the processes that run/ \
                 names, and start a cluster in another directory",
            )
        })
    }

    /// Writes the plan, and the settings that clients need.
    pub(super) fn keep(&self, plan: &Plan) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(plan)?;
        for (file, text) in [(self.settings_file(), plan.settings(self)?), (self.plan_file(), text)]
        {
            let new = file.with_extension("new");
            let mut written = private::writing().truncate(true).open(&new)?;
            written.write_all(text.as_bytes())?;
            fs::rename(&new, &file)?;
        }
        Ok(())
    }

    /// Locks the cluster, so that no other command starts or ends it at the same time.
    pub(super) fn lock(&self) -> anyhow::Result<File> {
        let file = File::create(self.0.join("cluster.lock"))?;
        file.try_lock().map_err(|_| {
            Failure::no(
                format!("{}: another `cluster up` or `cluster down` is running", self.0.display()),
                "wait until it ends, then run this command again",
            )
        })?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_again_as_it_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Place::find(dir.path()).is_err());
        let place = Place::at(dir.path()).unwrap();
        place.make().unwrap();
        let plan = Plan { workers: 3, ..Plan::new(None, "table", None).unwrap() };
        place.keep(&plan).unwrap();
        assert_eq!(Place::find(dir.path()).unwrap().1, plan);
        let names: Vec<String> = plan.roles().iter().map(ToString::to_string).collect();
        let expected = ["table", "oracle-1", "oracle-2", "worker-1", "worker-2", "worker-3"];
        assert_eq!(names, expected);

        let config = Config::load_file(&place.settings_file()).unwrap();
        assert_eq!(config.store().unwrap().to_string(), plan.store);
        assert!(config.app("search").is_some_and(|dir| dir.ends_with("/search")));
    }

    #[test]
    fn other_stores_and_lock_services_are_checked_before_anything_starts() {
        let plan = Plan::new(Some("bigtable://h:1/p/i"), "etcd://e:2379/here", None).unwrap();
        assert_eq!((plan.table, plan.roles().len()), (None, 2));
        let plan = Plan::new(Some("hbase://h:1/n?session=6s"), "table", None).unwrap();
        assert_eq!((plan.table, &*plan.store), (None, "hbase://h:1/n?session=6s"));
        assert!(Plan::new(Some("redis://h:1"), "table", None).is_err());
        assert!(Plan::new(None, "zookeeper://h:1", None).is_err());
    }

    #[test]
    fn a_plan_takes_the_ports_that_it_is_given() {
        let plan = Plan::new(None, "table", None).unwrap();
        let moved = plan.moved(7000).unwrap();
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!((moved.table, &moved.oracles[..]), (Some(at(7000)), &[at(7001), at(7002)][..]));
        assert_eq!(moved.store, "bigtable://127.0.0.1:7000/percolator/cluster");
        assert_eq!(moved.moved(7000).unwrap(), moved);
        let other = Plan::new(Some("bigtable://h:1/p/i"), "table", None).unwrap();
        let moved = other.moved(65_534).unwrap();
        assert_eq!((moved.table, moved.oracles), (None, vec![at(65_534), at(65_535)]));
        assert_eq!(moved.store, other.store);
        assert!(other.moved(65_535).is_err() && other.moved(0).is_err());
        // Somebody listens at the second of the ports.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Plan::new(None, "table", Some(port - 1)).unwrap_err();
        assert!(error.to_string().contains("cannot listen at 127.0.0.1:"), "{error}");
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "x").unwrap();
        assert!(Place::at(dir.path()).is_err());
    }
}

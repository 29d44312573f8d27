//! Uses servers of Google's Bigtable API beside the stores in this process: ours, and Google's
//! emulator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bigtable::Store;
use bigtable_grpc::{Address, ClientOptions, GrpcStore};
use percolator::{Options, Percolator};

use super::cells::Place;
use super::embedded;
use crate::server::Server;

/// The directory of the emulator in the Cloud SDK.
const SDK: &str = "/usr/lib/google-cloud-sdk";
const IN_SDK: &str = "platform/bigtable-emulator/cbtemulator";

const NO_EMULATOR: &str = "Google's emulator: no program cbtemulator; install \
    google-cloud-cli-bigtable-emulator, or name the program with CBTEMULATOR, or a running \
    one with BIGTABLE_EMULATOR_HOST";

/// An emulator, started by this process or not.
#[derive(Debug)]
pub(super) enum Emulator {
    Started(Server),
    /// The emulator that the environment names.
    Running(String),
}

impl Emulator {
    /// Starts the emulator that is found, unless one runs. Otherwise returns the remedy.
    pub(super) fn start() -> anyhow::Result<Result<Self, String>> {
        if let Ok(running) = std::env::var("BIGTABLE_EMULATOR_HOST") {
            return Ok(Ok(Emulator::Running(running)));
        }
        match found() {
            Some(program) => Ok(Ok(Emulator::Started(Server::emulator(&program)?))),
            None => Ok(Err(NO_EMULATOR.to_owned())),
        }
    }

    pub(super) fn address(&self) -> &str {
        match self {
            Emulator::Started(server) => server.address(),
            Emulator::Running(address) => address,
        }
    }
}

fn found() -> Option<PathBuf> {
    let named = std::env::var_os("CBTEMULATOR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sdk = std::env::var_os("CLOUDSDK_ROOT_DIR").unwrap_or_else(|| SDK.into());
    let programs = std::env::split_paths(&path).map(|dir| dir.join("cbtemulator"));
    let sdk = Path::new(&sdk).join(IN_SDK);
    named.into_iter().chain(programs).chain([sdk]).find(|program| program.is_file())
}

/// Opens a raw table and one with transactions, on the server at an address. The oracle is in
/// this process.
pub(super) async fn tables(address: &str) -> anyhow::Result<[Place; 2]> {
    // Each run has a name of its own, because an emulator may hold tables of another run.
    let run = format!("fig8-{}", std::process::id());
    let address: Address = format!("bigtable://{address}/bench/{run}").parse()?;
    let store = GrpcStore::open(&address, ClientOptions::default()).await?;
    tables_in(Arc::new(store)).await
}

/// Makes the tables of the two arms in any store.
pub(super) async fn tables_in(store: Arc<dyn Store>) -> anyhow::Result<[Place; 2]> {
    let db = Percolator::over(store.clone(), Options::default()).await?;
    let raw = embedded::raw(&*store, "raw", true).await?;
    Ok([raw, embedded::transactions(&db, Options::default(), "cells").await?])
}

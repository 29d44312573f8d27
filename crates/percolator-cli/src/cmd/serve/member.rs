//! Makes a server a member of its cluster, with a status row and a console.
//!
//! A server needs no client for its own task. A member has a client, which writes the server's
//! row in the list of processes. The row disappears when the client's liveness token ends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use bigtable::Store;
use bigtable::sync::locked;
use clap::Args;
use percolator::Percolator;
use percolator::cluster::{Cluster, Config, this_process};
use percolator::watch::Watch;

use crate::cmd::config;
use crate::console::{ConsoleArgs, Consoles, Measured, Shown};
use crate::context::Context;
use crate::exit::Failure;
use crate::store::Place;

/// How soon a server that cannot join its cluster tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The longest time that an ending server waits until its client is closed.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// Which cluster a server belongs to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct MemberArgs {
    /// The settings of the cluster that the server belongs to. With them, the server is in the
    /// cluster's list of processes, and --console and --metrics work.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    console: ConsoleArgs,
}

/// A server's membership in its cluster, which can end at any time.
#[derive(Debug, Clone, Default)]
pub(super) struct Membership(Arc<Mutex<Option<Member>>>);

#[derive(Debug)]
struct Member {
    db: Percolator,
    _consoles: Consoles,
}

impl MemberArgs {
    /// The settings, if there are any.
    ///
    /// # Errors
    /// Settings that cannot be read.
    pub(super) fn settings(&self) -> anyhow::Result<Option<Config>> {
        let load = |file: &PathBuf| Config::load_file(file).map_err(config::with_advice);
        self.config.as_ref().map(load).transpose()
    }

    /// # Errors
    /// A console of a server that belongs to no cluster.
    pub(super) fn check(&self, is_member: bool) -> anyhow::Result<()> {
        if is_member || !self.console.is_wanted() {
            return Ok(());
        }
        Err(Failure::usage(
            "--console and --metrics show a cluster, and this server belongs to none",
            "give the cluster's settings with --config FILE",
        ))
    }
}

impl Membership {
    /// Joins the cluster in a role, over its store, and opens the consoles that the flags ask
    /// for.
    pub(super) async fn join(
        &self,
        args: &MemberArgs,
        context: &Context,
        role: &str,
        cluster: Cluster,
        store: Arc<dyn Store>,
        measured: Option<Measured>,
    ) -> anyhow::Result<()> {
        let recorder = args.console.recorder();
        let mut cluster = Cluster { gc: None, process: this_process(role), ..cluster };
        cluster.client.watch = recorder.clone().map(|recorder| recorder as Arc<dyn Watch>);
        let db = loop {
            match Percolator::connect(store.clone(), cluster.clone()).await {
                Ok(db) => break db,
                Err(error @ percolator::Error::Invalid { .. }) => {
                    return Err(error).context("joining the cluster");
                }
                // The server serves meanwhile, because its store may be started after it.
                Err(error) => {
                    tracing::warn!(target: "percolator::cluster", event = "not_joined", %error);
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        };
        let place = args.settings()?.map(|settings| Place::Cluster(Box::new(settings)));
        let shown = Shown {
            db: &db,
            recorder: recorder.as_ref(),
            place: place.as_ref(),
            index: None,
            measured: measured.as_ref(),
        };
        let consoles = args.console.listen(context, shown).await?;
        *locked(&self.0) = Some(Member { db, _consoles: consoles });
        Ok(())
    }

    /// Leaves the cluster, while the store still answers.
    pub(super) async fn leave(&self) {
        let member = locked(&self.0).take();
        if let Some(Member { db, _consoles }) = member {
            drop(_consoles);
            // If the client is not closed in time, others clean up once its token has expired.
            let _ = db.close_within(LEAVING_MAX).await;
        }
    }
}

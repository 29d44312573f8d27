//! Makes a server a member of its cluster, with a status row and a console.
//!
//! A server needs no client of the database for its own task. A member opens one, which writes the
//! server's row in the list of processes and renews a liveness token. When the token expires, the
//! row disappears.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Store;
use bigtable::sync::locked;
use clap::Args;
use percolator::Percolator;
use percolator::cluster::{Cluster, Config, this_process};
use percolator::watch::Watch;
use percolator_console::Gauge;

use crate::cmd::config;
use crate::console::{ConsoleArgs, Consoles, Shown, Taken};
use crate::context::Context;
use crate::exit::Failure;
use crate::store::{Place, counted};

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

/// All that a server can check and take for its membership before it serves.
#[derive(Debug)]
pub(super) struct Joining<'a> {
    pub(super) settings: Config,
    cluster: Cluster,
    console: &'a ConsoleArgs,
    taken: Taken,
}

impl MemberArgs {
    /// Reads the settings, if there are any, and takes the addresses of the consoles.
    ///
    /// # Errors
    /// Settings that cannot be read, an address that is taken, and a console of a server that
    /// belongs to no cluster.
    pub(super) async fn prepare(&self) -> anyhow::Result<Option<Joining<'_>>> {
        let Some(file) = &self.config else {
            if !self.console.is_wanted() {
                return Ok(None);
            }
            return Err(Failure::usage(
                "--console and --metrics show a cluster, and this server belongs to none",
                "give the cluster's settings with --config FILE",
            ));
        };
        let settings = Config::load_file(file).map_err(config::with_advice)?;
        let cluster = settings.cluster().map_err(config::with_advice)?;
        let taken = self.console.take().await?;
        Ok(Some(Joining { settings, cluster, console: &self.console, taken }))
    }
}

impl Membership {
    /// Joins the cluster in a role, over its store, and opens the consoles that the flags ask
    /// for. Never ends: the server goes on, also if it cannot join.
    pub(super) async fn join(
        &self,
        joining: Option<Joining<'_>>,
        store: Option<Arc<dyn Store>>,
        context: &Context,
        role: &str,
        gauge: Gauge,
    ) -> Infallible {
        if let Some(joining) = joining
            && let Err(error) = self.joined(joining, store, context, role, gauge).await
        {
            let warning = format!("the server has not joined its cluster: {error:#}");
            context.out.warn(&warning);
        }
        std::future::pending().await
    }

    /// Joins over the store of the settings, if none is given.
    async fn joined(
        &self,
        joining: Joining<'_>,
        store: Option<Arc<dyn Store>>,
        context: &Context,
        role: &str,
        gauge: Gauge,
    ) -> anyhow::Result<()> {
        let Joining { settings, cluster, console, taken } = joining;
        let recorder = console.recorder();
        let mut cluster = Cluster { gc: None, process: this_process(role), ..cluster };
        cluster.client.watch = recorder.clone().map(|recorder| recorder as Arc<dyn Watch>);
        let db = loop {
            let connected = async {
                let store = match &store {
                    Some(store) => store.clone(),
                    None => counted(settings.open_store().await?, recorder.as_ref()),
                };
                Percolator::connect(store, cluster.clone()).await
            };
            match connected.await {
                Ok(db) => break db,
                Err(error @ percolator::Error::Invalid { .. }) => {
                    return Err(config::with_advice(error));
                }
                // The server serves meanwhile, because its store may be started after it.
                Err(error) => {
                    tracing::warn!(target: "percolator::cluster", event = "not_joined", %error);
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        };
        let place = Place::Cluster(Box::new(settings));
        let shown = Shown {
            db: &db,
            recorder: recorder.as_ref(),
            place: Some(&place),
            index: None,
            gauge: Some(&gauge),
        };
        match console.listen_on(taken, context, shown) {
            Ok(consoles) => {
                *locked(&self.0) = Some(Member { db, _consoles: consoles });
                Ok(())
            }
            Err(error) => {
                let _ = db.close_within(LEAVING_MAX).await;
                Err(error)
            }
        }
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

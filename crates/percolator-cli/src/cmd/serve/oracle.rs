//! `serve oracle`: issues timestamps to many processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bigtable::Store;
use bigtable_fjall::FjallStore;
use clap::Args;
use percolator::cluster::{
    ClientOptions, Config, OracleNode, OracleOptions, OracleRole, StoreAddress,
};
use percolator::runtime::TokioRuntime;
use percolator_console::Gauge;
use percolator_rpc::oracle::{OracleServer, OracleServerOptions};
use percolator_rpc::{Address, Error, Tls};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cmd::config;
use crate::cmd::serve::member::{MemberArgs, Membership};
use crate::cmd::serve::tls::{TlsArgs, renewing};
use crate::cmd::serve::{asked_to_end, at_least_one};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::log::LogArgs;
use crate::owner::asked::Open;
use crate::service::{self, State};
use crate::store::{Durability, check_one_store, listen_at, replaced};

/// Name and help of the number that says whether this process leads.
const LEADS: (&str, &str) = ("oracle_is_leader", "Whether this process issues timestamps");

/// Serve timestamps, or stand by to do so.
///
/// Exactly one process over a store leads. Another one takes over within three seconds of its
/// end, or at once if Ctrl-C or SIGTERM stopped it. Timestamps never go back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator serve oracle --listen 127.0.0.1:7070 --store bigtable://127.0.0.1:8086/p/i")]
pub(crate) struct Oracle {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// The address at which clients reach this process; by default the address to listen on.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<Address>,
    /// The number of timestamps that one write to the store reserves.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    window: u64,
    /// The maximum number of clients at the same time.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one())]
    clients_max: usize,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
    /// The store that keeps the oracle's record, as for all processes of the cluster:
    /// bigtable://HOST:PORT/PROJECT/INSTANCE or hbase://HOST:PORT/NAMESPACE. By default the store
    /// of the settings.
    #[arg(long, value_name = "URL", help_heading = "Store")]
    store: Option<String>,
    /// The directory of the store, if no other process needs it. This process then cannot have a
    /// standby.
    #[arg(
        long,
        value_name = "DIR",
        env = "PERCOLATOR_DATA",
        hide_env_values = true,
        help_heading = "Store"
    )]
    data: Option<PathBuf>,
    /// When a write other than the oracle's own counts as durable.
    #[arg(long, value_enum, default_value = "sync", value_name = "LEVEL", help_heading = "Store")]
    durability: Durability,
}

impl Oracle {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let tls = self.tls.for_listener(self.listen)?;
        let unreachable = self.listen.ip().is_unspecified() && self.advertise.is_none();
        if unreachable {
            return Err(Failure::usage(
                format!("clients cannot connect to the listen address {}", self.listen),
                "give the address at which clients reach this process with --advertise HOST:PORT",
            ));
        }
        let joining = self.member.prepare().await?;
        // A store in a directory belongs to no cluster.
        for (option, given) in [("--store", self.store.is_some()), ("--config", joining.is_some())]
        {
            if given {
                check_one_store(self.data.as_deref(), option)?;
            }
        }
        let store =
            self.open_store(tls.clone(), joining.as_ref().map(|joining| &joining.settings)).await?;
        let bind = TcpListener::bind(self.listen).await;
        let listener = bind.map_err(|why| Error::Listen { address: self.listen, why })?;
        let address = Address::from(listener.local_addr()?);
        let advertised = self.advertise.clone().unwrap_or_else(|| address.clone());
        let options = OracleOptions { address: advertised.to_string(), window: self.window };
        let runtime = Arc::new(TokioRuntime::current());
        let node = Arc::new(OracleNode::new(store.clone(), runtime, options)?);
        let renewing = renewing(tls.clone())?;
        let options = OracleServerOptions {
            clients_max: self.clients_max,
            tls,
            plaintext_beyond_loopback: self.tls.insecure,
        };
        let server = OracleServer::start(node, listener, options)?;
        // A program that reads the address may end this process at once.
        let ending = asked_to_end(&context.interrupt)?;
        if context.out.json {
            context.out.line(&json!({ "address": address.to_string() }).to_string())?
        } else {
            context.out.line(&address.to_string())?
        }
        service::report(State::Ready);
        let membership = Membership::default();
        let node = server.node().clone();
        let leads = move || Some(f64::from(matches!(node.role(), OracleRole::Leads(_))));
        let gauge = Gauge::new(LEADS.0, LEADS.1, leads);
        tokio::select! {
            () = ending => {}
            // The server cannot resign: the record is that of another store.
            why = replaced(&*store) => return Err(why),
            never = membership.join(joining, Some(store.clone()), context, "oracle", gauge) => {
                match never {}
            }
            never = renewing => match never {},
        }
        membership.leave().await;
        server.stop().await?;
        Ok(Exit::Done)
    }

    async fn open_store(
        &self,
        tls: Option<Tls>,
        settings: Option<&Config>,
    ) -> anyhow::Result<Arc<dyn Store>> {
        if let Some(url) = &self.store {
            let address = StoreAddress::from_env(url).context("--store")?;
            let plaintext_beyond_loopback = self.tls.insecure;
            let options =
                ClientOptions { tls, plaintext_beyond_loopback, ..ClientOptions::default() };
            return Ok(address.open(options).await?);
        }
        // A directory that only the environment names does not count beside the settings.
        let data = self.data.as_ref().filter(|_| settings.is_none());
        let Some(dir) = data else {
            if let Some(settings) = settings {
                return settings.open_store().await.map_err(config::with_advice);
            }
            return Err(Failure::usage(
                "no store is named",
                "give --store bigtable://HOST:PORT/PROJECT/INSTANCE (or hbase://HOST:PORT/NAMESPACE), \
                 the cluster's settings with --config, \
                 or a directory with --data",
            ));
        };
        let options = bigtable_fjall::Options {
            durability: self.durability.into(),
            upkeep_tables: percolator::store::upkeep_tables(),
            ..bigtable_fjall::Options::default()
        };
        let store = FjallStore::open(dir, options)?;
        listen_at(Open::Store(store.clone()), dir);
        Ok(Arc::new(store))
    }
}

//! `serve oracle`: timestamps for many processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bigtable::Store;
use bigtable_fjall::FjallStore;
use bigtable_grpc::{ClientOptions, GrpcStore};
use clap::Args;
use percolator::cluster::{OracleNode, OracleOptions, StoreAddress};
use percolator::runtime::TokioRuntime;
use percolator_rpc::oracle::{OracleServer, OracleServerOptions};
use percolator_rpc::{Address, Error, Tls};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cmd::serve::asked_to_end;
use crate::cmd::serve::tls::TlsArgs;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::owner::asked::Open;
use crate::store::{Durability, listen_at, replaced};

/// Serve timestamps, or stand by to do so.
///
/// Of all processes over one store one leads; another takes over within three seconds of its end,
/// at once if it was stopped by Ctrl-C or SIGTERM. Timestamps never go back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator serve oracle --listen 127.0.0.1:7070 --store bigtable://127.0.0.1:8086/p/i")]
pub(crate) struct Oracle {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Where clients reach this process, if not at the address it listens on.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<Address>,
    /// How many timestamps are reserved ahead, by one write to the store.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    window: u64,
    /// Most clients at a time.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    clients_max: usize,
    #[command(flatten)]
    tls: TlsArgs,
    /// The store that keeps the oracle's record, as for all processes of the cluster:
    /// bigtable://HOST:PORT/PROJECT/INSTANCE.
    #[arg(long, value_name = "URL", help_heading = "Store")]
    store: Option<String>,
    /// Its directory, if no other process needs it: then this one cannot have a standby.
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
                format!("clients cannot go to {}", self.listen),
                "say with --advertise HOST:PORT where they reach this process",
            ));
        }
        let store = self.open_store(tls.clone()).await?;
        let bind = TcpListener::bind(self.listen).await;
        let listener = bind.map_err(|why| Error::Listen { address: self.listen, why })?;
        let address = Address::from(listener.local_addr()?);
        let advertised = self.advertise.clone().unwrap_or_else(|| address.clone());
        let options = OracleOptions { address: advertised.to_string(), window: self.window };
        let runtime = Arc::new(TokioRuntime::current());
        let node = Arc::new(OracleNode::new(store.clone(), runtime, options)?);
        let options = OracleServerOptions {
            clients_max: self.clients_max,
            tls,
            plaintext_beyond_loopback: self.tls.insecure,
        };
        let server = OracleServer::start(node, listener, options)?;
        if context.out.json {
            context.out.line(&json!({ "address": address.to_string() }).to_string())?
        } else {
            context.out.line(&address.to_string())?
        }
        tokio::select! {
            asked = asked_to_end(&context.interrupt) => asked?,
            // It cannot resign: the record is another one.
            why = replaced(&*store) => return Err(why),
        }
        server.stop().await?;
        Ok(Exit::Done)
    }

    async fn open_store(&self, tls: Option<Tls>) -> anyhow::Result<Arc<dyn Store>> {
        if let Some(url) = &self.store {
            let address = StoreAddress::from_env(url).context("--store")?;
            let plaintext_beyond_loopback = self.tls.insecure;
            let options =
                ClientOptions { tls, plaintext_beyond_loopback, ..ClientOptions::default() };
            return Ok(Arc::new(GrpcStore::open(&address, options).await?));
        }
        let Some(dir) = &self.data else {
            return Err(Failure::usage(
                "no store is named",
                "give --store bigtable://HOST:PORT/PROJECT/INSTANCE, or a directory with --data",
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

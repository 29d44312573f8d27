//! `serve oracle`: timestamps for many processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bigtable::Store;
use bigtable_fjall::FjallStore;
use clap::Args;
use percolator::{OracleNode, OracleOptions, TokioRuntime};
use percolator_rpc::oracle::{OracleServer, OracleServerOptions};
use percolator_rpc::{Address, Error};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cmd::Context;
use crate::cmd::serve::asked_to_end;
use crate::cmd::serve::tls::TlsArgs;
use crate::exit::{Exit, Failure};
use crate::store::Durability;

/// Serve timestamps, or stand by to do so.
///
/// Of all processes over one store one leads; another takes over within three seconds of its end, at once
/// if it was stopped by Ctrl-C or SIGTERM. Timestamps never go back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator serve oracle --listen 127.0.0.1:7070 --data D")]
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
    /// The directory of the store that keeps the oracle's record. Only one process can have it open.
    #[arg(
        long,
        value_name = "DIR",
        env = "PERCOLATOR_DATA",
        hide_env_values = true,
        help_heading = "Store"
    )]
    data: PathBuf,
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
        let options = bigtable_fjall::Options {
            durability: self.durability.into(),
            ..bigtable_fjall::Options::default()
        };
        let store: Arc<dyn Store> = Arc::new(FjallStore::open(&self.data, options)?);
        let bind = TcpListener::bind(self.listen).await;
        let listener = bind.map_err(|why| Error::Listen { address: self.listen, why })?;
        let address = Address::from(listener.local_addr()?);
        let advertised = self.advertise.clone().unwrap_or_else(|| address.clone());
        let options = OracleOptions { address: advertised.to_string(), window: self.window };
        let runtime = Arc::new(TokioRuntime::current());
        let node = Arc::new(OracleNode::new(store, runtime, options)?);
        let options = OracleServerOptions {
            clients_max: self.clients_max,
            tls,
            plaintext_beyond_loopback: self.tls.insecure,
        };
        let server = OracleServer::start(node, listener, options)?;
        match context.out.json {
            true => context.out.line(&json!({ "address": address.to_string() }).to_string())?,
            false => context.out.line(&format!("oracle listening on {address}"))?,
        }
        asked_to_end(&context.interrupt).await?;
        server.stop().await?;
        Ok(Exit::Done)
    }
}

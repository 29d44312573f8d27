//! `serve table`: serves Bigtable's public API from a directory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bigtable::Store as _;
use bigtable_fjall::FjallStore;
use bigtable_grpc::{ServeOptions, Server};
use clap::Args;
use percolator_console::{Gauge, STORE_PRESSURE};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cmd::serve::member::{MemberArgs, Membership};
use crate::cmd::serve::tls::{TlsArgs, renewing};
use crate::cmd::serve::{asked_to_end, at_least_one};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::log::{LogArgs, SERVICE};
use crate::owner::asked::Open;
use crate::private;
use crate::service::{self, State};
use crate::store::{Durability, listen_at};

/// How long requests in flight may take to end after SIGTERM.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Serve Bigtable's public API (google.bigtable.v2), durably, from a directory.
///
/// Google's clients and tools use this server like Google's emulator: BIGTABLE_EMULATOR_HOST names
/// the address that the server prints. With certificates the server serves every client that shows
/// one for client.percolator.internal, oracle.percolator.internal or admin.percolator.internal.
/// Such a client may do everything with the tables; backups are for administrators.
///
/// SIGTERM ends the server after the requests in flight, or after 10 seconds. Ctrl-C ends it after
/// 2 seconds at most.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator serve table --listen 127.0.0.1:8086 --data D &
  BIGTABLE_EMULATOR_HOST=127.0.0.1:8086 cbt -project p -instance i ls")]
pub(crate) struct Table {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8086")]
    listen: SocketAddr,
    /// The maximum number of connections at the same time.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one())]
    connections_max: usize,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
    /// The directory of the store.
    #[arg(
        long,
        value_name = "DIR",
        env = "PERCOLATOR_DATA",
        hide_env_values = true,
        help_heading = "Store"
    )]
    data: PathBuf,
    /// A directory in which the server makes backups of its store, for an administrator who runs
    /// `percolator backup --config FILE`. By default it makes none on request.
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    backups: Option<PathBuf>,
    /// When an acknowledged mutation counts as durable.
    #[arg(long, value_enum, default_value = "sync", value_name = "LEVEL", help_heading = "Store")]
    durability: Durability,
}

impl Table {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let tls = self.tls.for_listener(self.listen)?;
        let joining = self.member.prepare().await?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| {
            Failure::usage(
                format!("cannot listen at {}: {error}", self.listen),
                "choose another address or port with --listen; port 0 takes a free one",
            )
        })?;
        if let Some(dir) = &self.backups {
            private::create_dir(dir).map_err(|error| {
                Failure::usage(
                    format!("cannot create the directory of backups {}: {error}", dir.display()),
                    "name a directory that this process may write to with --backups",
                )
            })?;
        }
        let durability = self.durability.into();
        let options = bigtable_fjall::Options {
            durability,
            upkeep_tables: percolator::store::upkeep_tables(),
            ..bigtable_fjall::Options::default()
        };
        let begun = Instant::now();
        let store = FjallStore::open(&self.data, options)?;
        let took_ms = begun.elapsed().as_millis() as u64;
        let dir = self.data.display();
        tracing::info!(target: SERVICE, event = "store_opened", %dir, took_ms, "the store is open");
        let server = Server::over(store.clone()).await?;
        listen_at(Open::Store(store.clone()), &self.data);
        let address = listener.local_addr()?;
        // A program that reads the address may end this process at once.
        let ending = asked_to_end(&context.interrupt)?;
        let out = context.out;
        if out.json {
            out.json(&json!({ "address": address.to_string() }))?;
        } else {
            out.line(&address.to_string())?;
            out.note(&match tls {
                Some(_) => "serving google.bigtable.v2 to holders of certificates".to_owned(),
                None => format!(
                    "serving google.bigtable.v2; for Google's clients: \
                     export BIGTABLE_EMULATOR_HOST={address}"
                ),
            });
        }
        let renewing = renewing(tls.clone())?;
        let options = ServeOptions {
            tls,
            plaintext_beyond_loopback: self.tls.insecure,
            connections_max: self.connections_max,
            backups: self.backups.clone(),
        };
        let membership = Membership::default();
        let gauge = Gauge::new(STORE_PRESSURE.0, STORE_PRESSURE.1, move || Some(store.pressure()));
        // It joins as a client of this very server.
        let joined = membership.join(joining, None, context, "table", gauge);
        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let leaving = membership.clone();
        let ready = service::report_after(server.silence(), State::Ready);
        let stop = async move {
            ending.await;
            leaving.leave().await;
            let _ = stopping.send(());
        };
        let late = async {
            if stopped.await.is_err() {
                return std::future::pending().await;
            }
            tokio::time::sleep(DRAIN_MAX).await;
        };
        tokio::select! {
            served = server.serve_with(listener, options, stop) => served?,
            () = late => out.warn(
                "the server closed connections to clients that did not read their answers",
            ),
            never = joined => match never {},
            never = ready => match never {},
            never = renewing => match never {},
        }
        Ok(Exit::Done)
    }
}

//! Tests that a client learns which store it works on, whatever it was told about batches.

use std::net::SocketAddr;
use std::path::Path;

use bigtable::{Error, Mutation, RowMutation, Store, Timestamp};
use bigtable_fjall::{Durability, Options};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status;

use super::script::{FAMILY, Script, open, table_of};
use crate::{ClientOptions, GrpcStore, Server};

/// Serves the directory until the sender is dropped.
async fn serve(data: &Path, at: SocketAddr) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let options = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(data, options).await.unwrap();
    let listener = TcpListener::bind(at).await.unwrap();
    let (at, (stop, stopped)) = (listener.local_addr().unwrap(), oneshot::channel::<()>());
    let serving = server.serve(listener, async { drop(stopped.await) });
    (at, stop, tokio::spawn(async { serving.await.unwrap() }))
}

#[tokio::test]
async fn a_replaced_store_refuses_the_client_with_batches_and_without() {
    for batches in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let (at, stop, served) = serve(&dir.path().join("old"), at).await;
        let address = format!("bigtable://{at}/p/i").parse().unwrap();
        let options = ClientOptions { batches, ..ClientOptions::default() };
        let store = GrpcStore::open(&address, options).await.unwrap();
        assert!(store.id().is_some(), "batches: {batches}");
        let table = table_of(&store).await.unwrap();
        let set = || {
            let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
            table.mutate_row(RowMutation::new("row").mutation(set))
        };
        set().await.unwrap();
        drop(stop);
        served.await.unwrap();
        let (_, stop, served) = serve(&dir.path().join("new"), at).await;
        let refused = set().await;
        assert!(matches!(refused, Err(Error::Replaced)), "batches: {batches}: {refused:?}");
        drop((store, stop));
        served.abort();
    }
}

#[tokio::test]
async fn a_client_that_cannot_learn_the_store_is_not_opened() {
    for (status, is_transient) in
        [(Status::unavailable("busy"), true), (Status::permission_denied("no"), false)]
    {
        let script = Script::default();
        script.play(|play| play.describe = Some(status));
        match open(&script).await.unwrap_err() {
            Error::Unavailable { .. } => assert!(is_transient),
            Error::Refused(_) => assert!(!is_transient),
            error => panic!("{error:?}"),
        }
    }
}

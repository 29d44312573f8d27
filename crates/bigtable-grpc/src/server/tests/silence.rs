//! Tests changes that may be lost: which ones a server leaves unsynced, and its silence after a
//! restart of the machine (H71).

use std::time::Duration;

use bigtable::{
    ConditionalMutation, Family, Layout, LocalityGroup, RowMutation, Store, Syncing, TableSchema,
    Timestamp,
};
use tokio::time::Instant;

use super::*;
use crate::GrpcStore;
use crate::proto::data::PingAndWarmRequest;

/// Longest time that an oracle's lease is valid after its renewal was written, by a clock that
/// is 20 % too slow.
const LEASE: Duration = Duration::from_millis(2400);
const FAMILY: Family = Family::from_static("f");

type Served = JoinHandle<Result<(), ServeError>>;

/// Serves the directory until the sender is dropped.
async fn serve(server: Server) -> (std::net::SocketAddr, oneshot::Sender<()>, Served) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    (address, stop, tokio::spawn(server.serve(listener, stopped)))
}

#[tokio::test]
async fn h71_a_server_whose_machine_was_started_again_is_silent_until_leases_are_over() {
    let dir = tempfile::tempdir().unwrap();
    let open = async || Server::open(dir.path(), Options::default()).await.unwrap();
    assert!(open().await.silence.is_zero(), "nothing was left unsynced");
    std::fs::write(dir.path().join("UNSYNCED"), "an earlier start of the machine").unwrap();
    // A server that stops before the time is over leaves the silence to the next start.
    let (_, stop, served) = serve(open().await).await;
    drop(stop);
    served.await.unwrap().unwrap();
    let server = open().await;
    tokio::time::pause();
    let begun = Instant::now();
    let (address, stop, served) = serve(server).await;
    let mut client = BigtableClient::connect(format!("http://{address}")).await.unwrap();
    let ping = PingAndWarmRequest { name: INSTANCE.to_owned(), ..Default::default() };
    client.ping_and_warm(ping).await.unwrap();
    assert!(begun.elapsed() >= LEASE, "answered after {:?}", begun.elapsed());
    drop((client, stop));
    served.await.unwrap().unwrap();
    assert!(open().await.silence.is_zero(), "the leases are over");
}

#[tokio::test]
async fn renewals_are_left_unsynced_and_nothing_else_is() {
    for conditional in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::open(dir.path(), Options::default()).await.unwrap();
        let (address, stop, served) = serve(server).await;
        let store = format!("bigtable://{address}/p/i").parse().unwrap();
        let store = GrpcStore::open(&store, Default::default()).await.unwrap();
        let groups = vec![LocalityGroup::on_disk("f", Layout::Versions)];
        let table = store.open_table("t", &TableSchema { groups }).await.unwrap();
        let write = async |sync| {
            let set = bigtable::Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
            if conditional {
                let request = ConditionalMutation::new("row");
                let request = ConditionalMutation { otherwise: vec![set], sync, ..request };
                table.check_and_mutate_row(request).await.unwrap();
            } else {
                let request = RowMutation::new("row").mutation(set).sync(sync);
                table.mutate_row(request).await.unwrap();
            }
        };
        // The store creates this file when it leaves something unsynced.
        let unsynced = || dir.path().join("UNSYNCED").exists();
        write(Syncing::AsStore).await;
        write(Syncing::Always).await;
        assert!(!unsynced());
        write(Syncing::MayBeLost).await;
        assert!(unsynced() || !Path::new("/proc/sys/kernel/random/boot_id").exists());
        drop((table, store, stop));
        served.await.unwrap().unwrap();
    }
}

//! The conformance suite of stores, over a connection: to the server of this crate, and to Google's
//! emulator where BIGTABLE_EMULATOR_HOST names one.

use bigtable::conformance::CASES;
use bigtable_fjall::{Durability, Options};
use tokio::net::TcpListener;

use crate::{Address, ClientOptions, GrpcStore, Server};

/// Cases that ask for what a store behind the API does not have: a floor, and bounds of in-memory
/// locality groups that its clients can see.
fn is_beyond_the_api(case: &str) -> bool {
    case.starts_with("floor::") || case.starts_with("bounds::")
}

async fn run(address: &str, batches: bool, beside: &[&str]) {
    let address: Address = address.parse().expect("an address");
    let options = ClientOptions { batches, ..ClientOptions::default() };
    let store = GrpcStore::open(&address, options).await.expect("a connection");
    let mut count = 0;
    for case in CASES {
        // Threads of their own would have no runtime for the connection.
        if is_beyond_the_api(case.name()) || case.starts_threads() || beside.contains(&case.name())
        {
            continue;
        }
        case.run(&store).await;
        count += 1;
    }
    assert!(count > 30, "{count} cases only");
}

#[tokio::test]
async fn the_server_of_this_crate() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(dir.path().join("data"), options).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(server.serve(listener, std::future::pending()));
    run(&format!("bigtable://{address}/p/i"), true, &[]).await;
    run(&format!("bigtable://{address}/p/without-batches"), false, &[]).await;
    served.abort();
}

/// `scripts/emulator.sh` starts one.
#[tokio::test]
async fn googles_emulator() {
    let Ok(host) = std::env::var("BIGTABLE_EMULATOR_HOST") else {
        // The macros' output is kept from whoever watches.
        let text = b"SKIPPED: BIGTABLE_EMULATOR_HOST names no emulator\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text);
        return;
    };
    // An instance that no earlier run has tables in.
    let instance = format!("i{}", std::process::id());
    run(&format!("bigtable://{host}/p/{instance}"), true, &[]).await;
}

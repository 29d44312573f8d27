//! Tests the requests and the peers that the server refuses.

#[path = "../../../../cluster-net/tests/support/authority.rs"]
mod authority;
mod backups;
mod limits;
mod logs;
mod peers;
mod senders;
#[path = "../../../../cluster-net/tests/support/slow.rs"]
mod slow;

use std::net::SocketAddr;

use super::*;
use crate::{Address, ClientOptions, GrpcStore};

/// Starts a server that ends with the test.
async fn start(dir: &Path, options: ServeOptions) -> SocketAddr {
    let store = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(dir.join("data"), store).await.expect("the store opens");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(server.serve_with(listener, options, std::future::pending()));
    address
}

/// Opens a store at the address, and sends it a request.
async fn ask(address: SocketAddr, tls: Option<Tls>) -> bigtable::Result<GrpcStore> {
    let address: Address = format!("bigtable://{address}/p/i").parse()?;
    let options = ClientOptions { connections: 1, tls, ..ClientOptions::default() };
    let store = GrpcStore::open(&address, options).await?;
    bigtable::Store::table_names(&store).await?;
    Ok(store)
}

//! Tests a bank in real time, over a network: concurrent transfers of clients that die.

use std::sync::Arc;

use bigtable_fjall::{Durability, Options};
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
use percolator::{Column, Error, Percolator, Result, Table, Transaction};
use tokio::net::TcpListener;

use crate::emulator;

const BAL: Column = Column::literal("bal");
const ACCOUNTS: usize = 5;
const CLIENTS: usize = 6;
const TRANSFERS: usize = 12;

async fn balance(tx: &Transaction, accounts: &Table, who: usize) -> Result<i64> {
    let value = tx.get(accounts, format!("account{who}"), &BAL).await?.unwrap_or_default();
    String::from_utf8_lossy(&value).parse().map_err(Error::application)
}

async fn transfer(tx: &mut Transaction, accounts: &Table, from: usize, to: usize) -> Result<()> {
    let (a, b) = (balance(tx, accounts, from).await?, balance(tx, accounts, to).await?);
    tx.set(accounts, format!("account{from}"), &BAL, (a - 1).to_string())?;
    tx.set(accounts, format!("account{to}"), &BAL, (b + 1).to_string())
}

/// The transfers of one client. In every fourth, the client dies: between prewrite and commit,
/// or after it committed the primary.
async fn work(db: Percolator, client: usize) -> Result<()> {
    for round in 0..TRANSFERS {
        let (from, to) = (client % ACCOUNTS, (client + round + 1) % ACCOUNTS);
        if from == to {
            continue;
        }
        if round % 4 == 3 {
            let dying = db.another_client().await?;
            let accounts = dying.table("accounts").await?;
            let mut tx = dying.begin().await?;
            transfer(&mut tx, &accounts, from, to).await?;
            // Another transaction may conflict; then this client dies earlier.
            if let Ok(prewritten) = tx.prewrite().await
                && round % 8 == 7
            {
                let _ = prewritten.commit_primary().await;
            }
            continue;
        }
        let accounts = db.table("accounts").await?;
        db.transact(async |mut tx| transfer(&mut tx, &accounts, from, to).await).await?;
    }
    Ok(())
}

/// Checks that concurrent transfers with dying clients neither make nor lose money, and leave
/// no lock that cannot be resolved.
async fn bank(address: &str) {
    let address = address.parse().expect("an address");
    let store = GrpcStore::open(&address, ClientOptions::default()).await.expect("a connection");
    let db = Percolator::over(Arc::new(store), Default::default()).await.expect("a database");
    let accounts = db.table("accounts").await.expect("a table");
    db.transact(async |mut tx| {
        (0..ACCOUNTS).try_for_each(|who| tx.set(&accounts, format!("account{who}"), &BAL, "100"))
    })
    .await
    .expect("the accounts are opened");
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let db = db.another_client().await.expect("a client");
        clients.push(tokio::spawn(work(db, client)));
    }
    for client in clients {
        client.await.expect("no client panics").expect("every transfer commits");
    }
    let tx = db.begin().await.expect("a transaction");
    let mut sum = 0;
    for who in 0..ACCOUNTS {
        sum += balance(&tx, &accounts, who).await.expect("a balance");
    }
    assert_eq!(sum, 100 * ACCOUNTS as i64);
    assert!(db.held_locks(10).await.expect("a scan").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bank_behind_the_server_of_this_crate() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(dir.path().join("data"), options).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(server.serve(listener, std::future::pending()));
    bank(&format!("bigtable://{address}/p/i")).await;
    served.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bank_behind_googles_emulator() {
    let Some(host) = emulator::address() else { return };
    bank(&format!("bigtable://{host}/p/{}", emulator::instance("bank"))).await;
}

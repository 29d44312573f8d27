//! Callers that drop their transactions at any moment, as a service does when its clients hang
//! up. The tests run on an embedded database, and on a cluster behind an HTTP service.
//!
//! They count instead of measuring time, so they also hold on a busy machine. Locks last for
//! [`HOLD`], longer than a reader waits, so a reader that finds a lock of a caller that has
//! gone fails. Others roll back a commit only if its own client does not finish it, so no
//! roll-back may happen at all.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::print_stdout, reason = "the tests tell how often and how long somebody waited")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bigtable::Store;
use bigtable_fjall::FjallStore;
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use percolator::cluster::rpc::oracle::OracleServer;
use percolator::cluster::{Cluster, Locks, OracleNode, OracleOptions};
use percolator::runtime::TokioRuntime;
use percolator::transaction::CommitPath;
use percolator::{
    Bytes, Column, OpenOptions, Options, Percolator, Result, RowKey, ScannedRow, Table,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BAL: Column = Column::literal("bal");
const ACCOUNTS: usize = 16;
const CALLERS: usize = 1000;
/// How many callers run at a time.
const CALLERS_MAX: usize = 32;
/// The lifetime of locks and of liveness tokens.
const HOLD: Duration = Duration::from_secs(60);

fn options(commit_path: CommitPath, of: Options) -> Options {
    Options { commit_path, lock_lifetime: HOLD, read_wait_max: HOLD / 3, ..of }
}

fn row(n: usize) -> RowKey {
    RowKey::from(format!("row-{n:02}"))
}

/// The difference between an account's balance and its first balance.
fn amount(value: Option<&Bytes>) -> i64 {
    value.map_or(0, |value| i64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Moves money between two accounts.
async fn transfer(db: &Percolator, table: &Table, from: usize, to: usize) -> Result<()> {
    db.transact(async |mut tx| {
        let (a, b) = (row(from), row(to));
        let rich = amount(tx.get(table, a.clone(), &BAL).await?.as_ref());
        let poor = amount(tx.get(table, b.clone(), &BAL).await?.as_ref());
        tx.set(table, a, &BAL, (rich - 1).to_be_bytes().to_vec())?;
        tx.set(table, b, &BAL, (poor + 1).to_be_bytes().to_vec())
    })
    .await
}

/// The accounts between which caller `n` moves money.
fn accounts(n: usize) -> (usize, usize) {
    let from = n % ACCOUNTS;
    (from, (from + 1 + n % (ACCOUNTS - 1)) % ACCOUNTS)
}

/// The sum of all balances.
async fn sum(db: &Percolator, table: &Table) -> Result<i64> {
    let rows = db.snapshot().await?.scan(table).columns([&BAL]).collect().await?;
    Ok(rows.iter().map(|ScannedRow { cells, .. }| amount(Some(&cells[0].1))).sum())
}

/// Reads all accounts until `ended` is set. Returns how often, the most locks that one read
/// found, and how long the slowest read took.
async fn read(db: Percolator, ended: Arc<AtomicBool>) -> (u64, u64, Duration) {
    let table = db.table("accounts").await.unwrap();
    let (mut reads, mut most, mut longest) = (0, 0, Duration::ZERO);
    while !ended.load(Relaxed) {
        let (before, began) = (db.stats().locks_met, Instant::now());
        let sum = sum(&db, &table).await.expect("no reader waits for a caller that has gone");
        assert_eq!(sum, 0, "a half of a transaction is there");
        most = most.max(db.stats().locks_met - before);
        longest = longest.max(began.elapsed());
        reads += 1;
        sleep(Duration::from_millis(1)).await;
    }
    (reads, most, longest)
}

/// Runs callers beside a reader, and checks how many of them let go. `call` runs caller `n`,
/// which lets go after the given time. Closes the callers' client, and checks that no
/// transaction was rolled back.
async fn hang_up<F>(db: &Percolator, reader: &Percolator, call: impl Fn(usize, Duration) -> F)
where
    F: Future<Output = bool> + Send + 'static,
{
    let ended = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn(read(reader.clone(), ended.clone()));
    // A caller waits up to twice as long as calls take on this machine now, so that about half
    // of them let go midway.
    let usual = Arc::new(AtomicU64::new(1000));
    let gone = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        while callers.len() >= CALLERS_MAX {
            callers.join_next().await.unwrap().unwrap();
        }
        let micros = rand::random_range(0..=2 * usual.load(Relaxed));
        let (usual, gone) = (usual.clone(), gone.clone());
        let call = call(n, Duration::from_micros(micros));
        callers.spawn(async move {
            let began = Instant::now();
            let answered = call.await;
            gone.fetch_add(u64::from(!answered), Relaxed);
            let took = u64::try_from(began.elapsed().as_micros()).unwrap();
            // A caller that lets go shows that calls take longer.
            let of = if answered { took } else { took + took / 2 };
            usual.fetch_update(Relaxed, Relaxed, |usual| Some((7 * usual + of) / 8 + 1)).unwrap();
        });
    }
    callers.join_all().await;
    ended.store(true, Relaxed);
    let (reads, most, longest) = reading.await.unwrap();
    let (stats, gone) = (db.stats(), gone.load(Relaxed));
    println!(
        "{CALLERS} callers, {gone} let go, {} commits, {} aborts; {reads} reads, one met {most} locks at \
         most, the longest took {longest:?}",
        stats.committed, stats.aborted,
    );
    assert!(gone >= 100 && gone <= CALLERS as u64 - 100, "{gone} of {CALLERS} let go");
    assert!(reads > 10 && stats.committed > 100, "{reads} reads, {stats:?}");
    db.close().await.unwrap();
    for client in [db, reader] {
        assert_eq!(client.stats().rolled_back, 0, "a living client was taken for dead");
    }
}

/// Asserts that no lock is left, and that the sum of all balances is unchanged.
async fn assert_settled(reader: &Percolator) {
    assert_eq!(reader.held_locks(10).await.unwrap(), []);
    assert_eq!(sum(reader, &reader.table("accounts").await.unwrap()).await.unwrap(), 0);
}

#[test]
fn callers_that_let_go_leave_nothing_that_others_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // One-step commit, and the two-phase commit that clusters use.
        for commit_path in [CommitPath::OneStep, CommitPath::TwoPhases] {
            let dir = dir.path().join(format!("{commit_path:?}"));
            let open = async || {
                let client = options(commit_path, Options::default());
                let options = OpenOptions { client, ..OpenOptions::default() };
                Percolator::open_with(&dir, options).await.unwrap()
            };
            let db = open().await;
            let table = db.table("accounts").await.unwrap();
            let reader = db.another_client().await.unwrap();
            let caller = db.clone();
            hang_up(&db, &reader, move |n, patience| {
                let (db, table, (from, to)) = (caller.clone(), table.clone(), accounts(n));
                async move { timeout(patience, transfer(&db, &table, from, to)).await.is_ok() }
            })
            .await;
            drop((db, reader));
            let db = open().await;
            assert_settled(&db).await;
            db.close().await.unwrap();
        }
    });
}

/// A table server and an oracle on local ports.
struct Services {
    address: String,
    oracle: OracleServer,
    _dir: tempfile::TempDir,
}

impl Services {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::over(FjallStore::open(dir.path(), Default::default()).unwrap());
        let server = server.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("bigtable://{}/p/i", listener.local_addr().unwrap());
        tokio::spawn(server.serve(listener, std::future::pending()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let node = OracleOptions { address: own, ..OracleOptions::default() };
        let runtime = Arc::new(TokioRuntime::current());
        let node = OracleNode::new(Self::store(&address).await, runtime, node).unwrap();
        let oracle = OracleServer::start(Arc::new(node), listener, Default::default()).unwrap();
        Services { address, oracle, _dir: dir }
    }

    async fn store(address: &str) -> Arc<dyn Store> {
        let address = address.parse().unwrap();
        Arc::new(GrpcStore::open(&address, ClientOptions::default()).await.unwrap())
    }

    /// Connects a client, as another process would.
    async fn connect(&self) -> Percolator {
        let cluster = Cluster {
            locks: Locks::table(HOLD),
            client: options(CommitPath::TwoPhases, Options::over_network()),
            ..Cluster::new(vec![self.oracle.address().into()])
        };
        Percolator::connect(Self::store(&self.address).await, cluster).await.unwrap()
    }
}

/// An HTTP service that moves money. If a client hangs up, hyper drops the handler's future.
async fn serve(db: Percolator, listener: TcpListener) {
    let table = db.table("accounts").await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (db, table) = (db.clone(), table.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let (db, table) = (db.clone(), table.clone());
                async move {
                    let (from, to) = accounts(request.uri().path()[1..].parse().unwrap());
                    let text = match transfer(&db, &table, from, to).await {
                        Ok(()) => "done".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    Ok::<_, std::convert::Infallible>(Response::new(text))
                }
            });
            // An error only means that the client has hung up.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// Asks for a transfer, and hangs up if there is no answer in time.
async fn ask(service: std::net::SocketAddr, n: usize, patience: Duration) -> bool {
    let mut stream = TcpStream::connect(service).await.unwrap();
    let request = format!("POST /{n} HTTP/1.1\r\nhost: bank\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    match timeout(patience, stream.read_to_string(&mut reply)).await {
        Ok(read) => {
            read.unwrap();
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
            true
        }
        Err(_) => false,
    }
}

#[test]
fn http_clients_that_hang_up_leave_nothing_in_the_cluster_that_others_wait_for() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let services = Services::start().await;
        let db = services.connect().await;
        let reader = services.connect().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = tokio::spawn(serve(db.clone(), listener));
        hang_up(&db, &reader, move |n, patience| ask(address, n, patience)).await;
        assert_settled(&reader).await;
        service.abort();
    });
}

//! Tests that all stores give the same answers to the same requests, and end with the same
//! books.

use std::io::Write as _;

use std::collections::{BTreeMap, BTreeSet};

use percolator::Percolator;

use crate::backend::{Backend, Why};
use crate::check;
use crate::floor::Floor;
use crate::model::Definition;
use crate::postgres::pool::Pool;
use crate::postgres::{OnPostgres, Server, load};
use crate::request::{Answer, Lookup, Maintained, Request};
use crate::store::OnPercolator;
use crate::{Exchange, Scale};

const SCALE: Scale = Scale { customers: 120, trades_per_customer: 20, seed: 11 };

/// Starts a server. Without PostgreSQL, this prints a warning and returns `None`.
fn server(dir: &tempfile::TempDir) -> Option<Server> {
    match Server::find() {
        Ok(programs) => Some(Server::start(dir.path(), programs).unwrap()),
        Err(missing) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
            None
        }
    }
}

/// The part of an answer that must be the same in every store.
fn comparable(mut answer: Answer) -> Answer {
    answer.reads = crate::Reads::default();
    answer.accepted.sort_by_key(|order| order.t);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let there = loaded(&server).await;
    let db = Percolator::in_memory().await.unwrap();
    let here = OnPercolator::load(db, SCALE).await.unwrap();
    let mut floor = Floor::new(SCALE);
    let first = here.reserve(10_000).await.unwrap();
    assert_eq!(there.reserve(10_000).await.unwrap(), first);
    floor.numbers = first..first + 10_000;
    let mut seen = BTreeMap::<String, u64>::new();
    for i in 0..2_200 {
        let mut request = floor.next().unwrap();
        *seen.entry(sort(&request)).or_default() += 1;
        let answer = comparable(here.attempt(&request).await.unwrap());
        let other = comparable(there.attempt(&request).await.unwrap());
        assert_eq!(answer, other, "request {i}: {request:?}");
        floor.done(&request, &answer);
        // A repeated order or result finds that it was already done.
        if let Request::TradeOrder(order) = &mut request {
            order.maybe_done = true;
        }
        if matches!(request, Request::TradeOrder(_) | Request::TradeResult(_)) {
            let answer = comparable(here.attempt(&request).await.unwrap());
            assert!(answer.unchanged, "request {i}, again: {request:?}");
            assert_eq!(answer, comparable(there.attempt(&request).await.unwrap()), "{request:?}");
        }
    }
    // Eight types without branches, four frames of Trade-Lookup, three of Trade-Update, and all
    // maintained tables.
    assert_eq!(seen.len(), 7 + 1 + 4 + 3 + Maintained::ALL.len(), "{seen:?}");
    let (here, there) = (here.books().await.unwrap(), there.books().await.unwrap());
    assert_eq!(check::all(&here, &floor.ledger, SCALE), []);
    assert_eq!(check::all(&there, &floor.ledger, SCALE), []);
    assert_eq!(here.positions, there.positions);
    assert_eq!(here.cash, there.cash);
    let states = |books: &check::Books| {
        books.trades.iter().map(|(t, (_, state))| (*t, state.clone())).collect::<Vec<_>>()
    };
    assert_eq!(states(&here), states(&there));
}

/// Tests that a change by Data-Maintenance changes its table, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_maintained_table_is_changed_alone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let there = loaded(&server).await;
    let mut floor = Floor::new(SCALE);
    floor.numbers = there.reserve(10_000).await.map(|first| first..first + 10_000).unwrap();
    let mut changed = BTreeMap::new();
    while changed.len() < Maintained::ALL.len() {
        let request = floor.next().unwrap();
        let table = match &request {
            Request::DataMaintenance(change) => Some(change.table.name()),
            _ => None,
        };
        let Some(table) = table.filter(|table| !changed.contains_key(table)) else {
            let answer = there.attempt(&request).await.unwrap();
            floor.done(&request, &answer);
            continue;
        };
        let before = tables(&there).await;
        there.attempt(&request).await.unwrap();
        let after = tables(&there).await;
        let differ = before.iter().zip(&after).filter(|(before, after)| before != after);
        let differ: Vec<&str> = differ.map(|((table, ..), _)| *table).collect();
        // A list may already watch the security, so that nothing changes.
        if !differ.is_empty() {
            changed.insert(table, differ);
        }
    }
    let tables: BTreeSet<&str> = changed.values().flatten().copied().collect();
    assert!(changed.values().all(|tables| tables.len() == 1), "{changed:?}");
    assert_eq!(tables.len(), Maintained::ALL.len(), "{changed:?}");
}

/// The type of a request, with its branch if it has a few.
fn sort(request: &Request) -> String {
    let kind = request.kind().name();
    match request {
        Request::DataMaintenance(change) => format!("{kind} {:?}", change.table),
        Request::TradeLookup(lookup) | Request::TradeUpdate(lookup) => {
            let frame = match lookup {
                Lookup::Listed(_) => 1,
                Lookup::OfAccount { .. } => 2,
                Lookup::OfSecurity { .. } => 3,
                Lookup::FirstOf { .. } => 4,
            };
            format!("{kind} {frame}")
        }
        _ => kind.to_owned(),
    }
}

async fn loaded(server: &Server) -> OnPostgres {
    load::load(server, SCALE).await.unwrap();
    OnPostgres { pool: Pool::new(server.socket()) }
}

/// Each table's number of rows, and a digest of them.
async fn tables(backend: &OnPostgres) -> Vec<(&'static str, i64, String)> {
    let connection = backend.pool.take().await.unwrap();
    let mut all = Vec::new();
    for Definition { table, .. } in Definition::all() {
        let sql = format!(
            "SELECT count(*),
                md5(coalesce(string_agg(r::text, E'\\n' ORDER BY r::text COLLATE \"C\"), ''))
            FROM {table} r"
        );
        let row = connection.client.query_one(&sql, &[]).await.unwrap();
        all.push((*table, row.get(0), row.get(1)));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_leave_the_books_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let exchange = Exchange::load_postgres(&server, SCALE).await.unwrap();
    let report = exchange.transactions(8, 1_500).await.unwrap();
    assert_eq!(report.total(), 1_500);
    assert_eq!(exchange.check().await.unwrap(), []);
}

/// Tests Trade-Results that wait for another transaction's write, which is then committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_amid_a_transaction_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let there = loaded(&server).await;
    let (other, looker) = (server.connect().await.unwrap(), server.connect().await.unwrap());
    let mut floor = Floor::new(SCALE);
    let first = there.reserve(10_000).await.unwrap();
    floor.numbers = first..first + 10_000;
    let mut conflicts = 0;
    while conflicts < 12 {
        let request = floor.next().unwrap();
        if let Request::TradeResult(execution) = &request {
            let lock = format!("BEGIN; UPDATE trade SET tax = tax WHERE t = {}", execution.t);
            other.batch_execute(&lock).await.unwrap();
            let release = async {
                let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
                while looker.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                other.batch_execute("COMMIT").await.unwrap();
            };
            let (attempted, ()) = tokio::join!(there.attempt(&request), release);
            let failed = attempted.unwrap_err();
            assert_eq!(failed.why, Why::Conflict, "{request:?}: {}", failed.error);
            conflicts += 1;
        }
        let answer = there.attempt(&request).await.unwrap();
        floor.done(&request, &answer);
    }
    assert_eq!(check::all(&there.books().await.unwrap(), &floor.ledger, SCALE), []);
}

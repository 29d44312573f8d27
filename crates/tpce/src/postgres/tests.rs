//! Both stores give the same answers to the same requests, and end with the same books.

use percolator::Percolator;

use crate::backend::{Backend, Failed, Why};
use crate::check;
use crate::floor::Floor;
use crate::postgres::pool::Pool;
use crate::postgres::{OnPostgres, Server, load, together};
use crate::request::{Answer, Request};
use crate::store::OnPercolator;
use crate::{Exchange, Scale};

const SCALE: Scale = Scale { customers: 120, trades_per_customer: 20, seed: 11 };

/// A server, or a loud word that there is none.
fn server(dir: &tempfile::TempDir) -> Option<Server> {
    match Server::find() {
        Ok(programs) => Some(Server::start(dir.path(), programs).unwrap()),
        Err(missing) => {
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// What of an answer must be the same everywhere.
fn told(mut answer: Answer) -> Answer {
    answer.reads = crate::Reads::default();
    answer.accepted.sort_by_key(|order| order.t);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    load::load(&server, SCALE).await.unwrap();
    let there = OnPostgres { pool: Pool::new(server.socket()) };
    let db = Percolator::in_memory().await.unwrap();
    let here = OnPercolator::load(db, SCALE).await.unwrap();
    let mut floor = Floor::new(SCALE);
    for i in 0..1_200 {
        if floor.numbers.is_empty() {
            let first = here.reserve(10_000).await.unwrap();
            assert_eq!(there.reserve(10_000).await.unwrap(), first);
            floor.numbers = first..first + 10_000;
        }
        let Some(request) = floor.next() else { continue };
        let answer = told(here.attempt(&request).await.unwrap());
        let other = told(there.attempt(&request).await.unwrap());
        assert_eq!(answer, other, "request {i}: {request:?}");
        floor.done(&request, &answer);
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_leave_the_books_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let exchange = Exchange::load_postgres(&server, SCALE).await.unwrap();
    let report = exchange.transactions(8, 1_500).await.unwrap();
    assert_eq!(report.total(), 1_500);
    assert_eq!(exchange.check().await.unwrap(), []);
}

/// The error that ends a transaction is not the refusal of what was sent after it, though that is seen
/// first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_statements_sent_together_the_cause_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    let client = server.connect().await.unwrap();
    for (sql_state, why) in
        [("40001", Why::Conflict), ("40P01", Why::Conflict), ("22012", Why::Lasting)]
    {
        client.batch_execute("BEGIN").await.unwrap();
        let (failed, known) = tokio::sync::oneshot::channel();
        let follows = async {
            known.await.unwrap();
            client.query_one("SELECT 1", &[]).await
        };
        let fails = async {
            let raise =
                format!("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sql_state}'; END $$");
            let ended = client.execute(&raise, &[]).await;
            failed.send(()).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            ended
        };
        let error = together::two(follows, fails).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), sql_state);
        assert_eq!(Failed::from(error).why, why);
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// Trade-Results that wait for another's write, which is then committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_amid_what_was_sent_together_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(&dir) else { return };
    load::load(&server, SCALE).await.unwrap();
    let there = OnPostgres { pool: Pool::new(server.socket()) };
    let (other, looker) = (server.connect().await.unwrap(), server.connect().await.unwrap());
    let mut floor = Floor::new(SCALE);
    let first = there.reserve(10_000).await.unwrap();
    floor.numbers = first..first + 10_000;
    let mut conflicts = 0;
    while conflicts < 60 {
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

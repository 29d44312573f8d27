//! Both stores give the same answers to the same requests, and end with the same books.

use percolator::Percolator;

use crate::backend::Backend;
use crate::check;
use crate::floor::Floor;
use crate::postgres::pool::Pool;
use crate::postgres::{OnPostgres, Server, load};
use crate::request::Answer;
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

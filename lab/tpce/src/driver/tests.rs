//! Tests runs on a database in memory, with the checks at the end.

use std::sync::Arc;
use std::time::Duration;

use percolator::Percolator;

use crate::{Error, Exchange, Log, Pace, Pacer, Scale, Seat, TransactionType};

const SCALE: Scale = Scale { customers: 30, trades_per_customer: 8, seed: 5 };

async fn exchange() -> Exchange {
    let db = Percolator::in_memory().await.unwrap();
    Exchange::load(db, SCALE).await.unwrap()
}

#[tokio::test]
async fn one_client_does_the_same_every_time() {
    let counts = async || {
        let exchange = exchange().await;
        let report = exchange.transactions(1, 900).await.unwrap();
        assert_eq!(report.conflicts(), 0);
        assert_eq!(exchange.check().await.unwrap(), []);
        TransactionType::ALL.map(|kind| (report.of(kind).done, report.of(kind).reads))
    };
    let first = counts().await;
    assert!(first.iter().all(|(done, _)| *done > 0), "{first:?}");
    assert_eq!(first, counts().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_leave_the_books_in_order() {
    let exchange = exchange().await;
    let report = exchange.transactions(16, 1_500).await.unwrap();
    assert_eq!(report.total(), 1_500);
    let orders = report.of(TransactionType::TradeOrder).done;
    assert!(report.trade_results() * 2 > orders, "{} of {orders}", report.trade_results());
    assert!(report.of(TransactionType::MarketFeed).done > 0);
    assert_eq!(exchange.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_measures_from_when_requests_are_due() {
    let exchange = exchange().await;
    let report = exchange.open(300.0, Duration::from_millis(500)).await.unwrap();
    assert_eq!(report.lateness.len(), report.total());
    assert!(report.total() > 50, "{}", report.total());
    assert_eq!(exchange.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_does_not_keep_up_says_so_and_its_books_are_in_order() {
    let exchange = exchange().await;
    let error = exchange.open(1e6, Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(error, Error::Saturated { waiting } if waiting > 200), "{error}");
    assert_eq!(exchange.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_brokerage_that_is_too_small_is_refused() {
    let db = Percolator::in_memory().await.unwrap();
    let refused = Exchange::load(db, Scale::new(3, 1)).await.unwrap_err();
    assert_eq!(refused.to_string(), "3 customers: give 20 to 1000000");
}

/// Runs two drivers, and drops one of them in the middle of its work, as if its process were
/// killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_drivers_logged_is_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = |number: u64| dir.path().join(number.to_string());
    let db = Percolator::in_memory().await.unwrap();
    Exchange::load(db.another_client().await.unwrap(), SCALE).await.unwrap();
    let pacer = Arc::new(Pacer::default());
    let mut driving = Vec::new();
    for number in [1, 2] {
        let log = Log::create(&path(number), || Duration::ZERO).unwrap();
        let (db, seat) = (db.another_client().await.unwrap(), Seat { number, made: 0, log });
        let exchange = Exchange::join(db, SCALE, seat).await.unwrap();
        let pacer = pacer.clone();
        driving.push(tokio::spawn(async move { exchange.paced(4, pacer).await }));
    }
    pacer.set(Pace::Free);
    let done = || Log::read(&path(1)).unwrap().iter().filter(|entry| entry.done).count();
    while done() < 400 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let killed = driving.remove(0);
    killed.abort();
    assert!(killed.await.is_err());
    pacer.set(Pace::End);
    let report = driving.remove(0).await.unwrap().unwrap();
    let mut logs = [1, 2].map(|number| Log::read(&path(number)).unwrap()).to_vec();
    assert_eq!(logs[1].iter().filter(|entry| entry.done).count() as u64, report.total());
    let audit = Exchange::audit(db.another_client().await.unwrap(), SCALE, &logs).await.unwrap();
    assert_eq!((audit.violations, audit.lost), (vec![], 0));
    assert!(audit.acknowledged > 20, "{}", audit.acknowledged);
    // An acknowledged commit that is missing in the store.
    logs[0].push("0 done trade_order 9000000 0".parse().unwrap());
    let audit = Exchange::audit(db.another_client().await.unwrap(), SCALE, &logs).await.unwrap();
    assert_eq!((audit.violations.len(), audit.lost), (1, 1), "{:?}", audit.violations);
    // Commits in the store that no log mentions.
    logs.truncate(1);
    assert!(
        !Exchange::audit(db.another_client().await.unwrap(), SCALE, &logs)
            .await
            .unwrap()
            .violations
            .is_empty()
    );
}

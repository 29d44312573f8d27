//! Runs on a database in memory, with the checks at the end.

use std::time::Duration;

use percolator::Percolator;

use crate::{Exchange, Scale, TransactionType};

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

#[tokio::test]
async fn a_brokerage_that_is_too_small_is_refused() {
    let db = Percolator::in_memory().await.unwrap();
    let refused = Exchange::load(db, Scale::new(3, 1)).await.unwrap_err();
    assert_eq!(refused.to_string(), "3 customers: give 20 to 1000000");
}

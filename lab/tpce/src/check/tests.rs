//! Tests that each check finds a violation planted in the store, and that none finds one
//! before.

use percolator::{Column, Percolator, RowKey};
use serde::Serialize;

use crate::Scale;
use crate::backend::Backend;
use crate::check::{self, Violation};
use crate::floor::Ledger;
use crate::model::*;
use crate::store::OnPercolator;

const SCALE: Scale = Scale { customers: 20, trades_per_customer: 8, seed: 3 };

/// A brokerage that was loaded and not used.
struct Bed(OnPercolator);

impl Bed {
    async fn new() -> Self {
        let db = Percolator::in_memory().await.unwrap();
        Bed(OnPercolator::load(db, SCALE).await.unwrap())
    }

    async fn violations(&self) -> Vec<Violation> {
        let books = self.0.books().await.unwrap();
        check::all(&books, &Ledger::default(), SCALE)
    }

    async fn set(&self, row: RowKey, column: &Column, value: &impl Serialize) {
        self.put(row, column, encode(value)).await;
    }

    async fn put(&self, row: RowKey, column: &Column, value: percolator::Bytes) {
        let mut tx = self.0.db.begin().await.unwrap();
        tx.set(&self.0.table, row, column, value).unwrap();
        tx.commit().await.unwrap();
    }

    async fn delete(&self, row: RowKey, column: &Column) {
        let mut tx = self.0.db.begin().await.unwrap();
        tx.delete(&self.0.table, row, column).unwrap();
        tx.commit().await.unwrap();
    }

    async fn first(&self, prefix: &str) -> RowKey {
        let snapshot = self.0.db.snapshot().await.unwrap();
        let scan = snapshot.scan(&self.0.table).prefix(prefix).limit(1);
        scan.collect().await.unwrap().remove(0).row
    }

    async fn only(&self, check: char) {
        let violations = self.violations().await;
        assert!(!violations.is_empty(), "({check}) did not see it");
        assert!(violations.iter().all(|found| found.check == check), "{violations:?}");
    }
}

#[tokio::test]
async fn what_was_loaded_is_consistent() {
    assert_eq!(Bed::new().await.violations().await, []);
}

#[tokio::test]
async fn a_position_that_is_not_the_sum_of_its_lots() {
    let bed = Bed::new().await;
    bed.set(bed.first("HS:").await, &QTY, &1_i64).await;
    bed.only('a').await;
}

#[tokio::test]
async fn an_empty_lot() {
    let bed = Bed::new().await;
    let row = keys::lot(10, 1, 1, 1);
    bed.set(row.clone(), &PRICE, &1_i64).await;
    bed.set(row, &QTY, &0_i64).await;
    bed.only('a').await;
}

#[tokio::test]
async fn a_settlement_that_is_missing_and_a_step_too_many() {
    let bed = Bed::new().await;
    bed.delete(keys::settlement(3), &D).await;
    bed.only('b').await;
    let bed = Bed::new().await;
    let step = TradeHistory { t: 3, seq: 7, dts: 0, status: status::COMPLETED };
    bed.set(keys::trade_history(3, 7), &D, &step).await;
    bed.only('b').await;
}

#[tokio::test]
async fn a_balance_that_is_a_cent_off() {
    let bed = Bed::new().await;
    let row = bed.first("CA:").await;
    let snapshot = bed.0.db.snapshot().await.unwrap();
    let balance = snapshot.get(&bed.0.table, row.clone(), &BAL).await.unwrap().unwrap();
    bed.set(row, &BAL, &(decode::<i64>(&balance).unwrap() + 1)).await;
    bed.only('c').await;
}

#[tokio::test]
async fn index_rows_that_are_missing_or_of_nothing() {
    for prefix in [index::TRADE_BY_ACCOUNT, index::TRADE_BY_SECURITY] {
        let bed = Bed::new().await;
        bed.delete(bed.first(prefix).await, &D).await;
        bed.only('d').await;
    }
    for prefix in [index::REQUEST_BY_SECURITY, index::REQUEST_BY_BROKER] {
        let bed = Bed::new().await;
        bed.set(Key::of(prefix).short(1).long(7).row(), &D, &()).await;
        bed.only('d').await;
    }
}

#[tokio::test]
async fn a_pending_order_of_a_completed_trade() {
    let bed = Bed::new().await;
    let request = TradeRequest { t: 3, tt: kind::LIMIT_BUY, symb: 1, qty: 1, bid: 1, b: 1, sc: 1 };
    for (row, column, value) in request.cells() {
        bed.put(row, &column, value).await;
    }
    bed.only('e').await;
}

#[tokio::test]
async fn a_volume_that_nobody_reported() {
    let bed = Bed::new().await;
    bed.set(keys::last_trade(1), &VOL, &5_i64).await;
    bed.only('f').await;
}

#[tokio::test]
async fn lots_that_moved_by_more_than_was_traded() {
    let bed = Bed::new().await;
    let history = HoldingHistory { t: 3, h: 999, before: 0, after: 1 };
    bed.set(keys::holding_history(3, 999), &D, &history).await;
    bed.only('g').await;
}

#[tokio::test]
async fn a_lock_that_is_left() {
    let bed = Bed::new().await;
    // In another table: the check's scan would wait for a lock whose owner is alive.
    let other = bed.0.db.table("other").await.unwrap();
    let mut tx = bed.0.db.begin().await.unwrap();
    tx.set(&other, keys::last_trade(1), &VOL, encode(&0_i64)).unwrap();
    let _held = tx.prewrite().await.unwrap();
    bed.only('h').await;
}

#[tokio::test]
async fn a_commit_that_is_lost_and_one_that_nobody_knows() {
    let bed = Bed::new().await;
    let books = bed.0.books().await.unwrap();
    let mut ledger = Ledger::default();
    ledger.ordered.insert(SCALE.trades() + 1);
    let found = check::all(&books, &ledger, SCALE);
    assert_eq!(found.len(), 1);
    assert!(found[0].what.ends_with("is lost"), "{found:?}");
    let again = check::all(&books, &Ledger::default(), Scale { trades_per_customer: 7, ..SCALE });
    assert!(again.iter().all(|found| found.check == 'i'), "{again:?}");
    assert!(again.iter().any(|found| found.what.ends_with("no driver has logged it")), "{again:?}");
}

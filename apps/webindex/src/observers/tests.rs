//! Tests of overlapping runs for one row, which may occur when an advisory lock expires.

use percolator::{Change, Observer, Percolator, RowKey, Table};

use super::*;
use crate::records::{Member, encode};
use crate::tables::{ClusterId, DOCUMENTS, ELECT, MEMBER, PLACE, SETTLE, SHOWN};

const A: &str = "https://site.example/a.html";
const B: &str = "https://site.example/b.html";

/// Makes a store without running observers. In it, a page stands for an address that is not
/// stored, and is shown.
async fn settled() -> (Percolator, Tables, ClusterId) {
    let db = Percolator::in_memory().await.unwrap();
    let tables = Tables::open(&db).await.unwrap();
    db.declare(&declared(&tables, &Arc::new(Latency::new()))).await.unwrap();
    let id = ClusterId::of_address(B);
    let stands_for = Some(B.to_owned());
    let member = Member { stands_for, placed: Some((id, 0.0)), told: None };
    let place = member.place(A).unwrap().key();
    let written = db.transact(async |mut tx| {
        tx.set(&tables.documents, A, &MEMBER, encode(&member))?;
        tx.set(&tables.clusters, place.clone(), &PLACE, "")?;
        tx.set(&tables.clusters, id.row(), &SHOWN, A)
    });
    written.await.unwrap();
    (db, tables, id)
}

/// Makes two runs over the same state, and commits the second one first.
async fn only_one_commits(
    db: &Percolator,
    observer: &impl Observer,
    table: &Table,
    (row, column): (RowKey, Column),
) {
    let commit_ts = db.snapshot().await.unwrap().timestamp();
    let change = Change { table: table.clone(), row, column, commit_ts, deleted: false };
    let (mut first, mut second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    observer.observe(&mut first, &change).await.unwrap();
    observer.observe(&mut second, &change).await.unwrap();
    second.commit().await.unwrap();
    let error = first.commit().await.unwrap_err();
    assert!(matches!(error, percolator::Error::Aborted { .. }), "{error}");
}

#[tokio::test]
async fn overlapping_elections_conflict_even_if_the_same_page_stays_shown() {
    let (db, tables, id) = settled().await;
    let elect = elect::Elect::new(tables.clone());
    only_one_commits(&db, &elect, &tables.clusters, (id.row(), ELECT)).await;
}

#[tokio::test]
async fn overlapping_runs_that_settle_a_page_conflict_even_if_its_cluster_stays() {
    let (db, tables, _) = settled().await;
    assert_eq!(tables.documents.name(), DOCUMENTS);
    let settle = settle::Settle::new(tables.clone());
    only_one_commits(&db, &settle, &tables.documents, (A.into(), SETTLE)).await;
}

//! Tests of overlapping runs for one row, which may occur when an advisory lock expires.

use percolator::observe::BatchObserver;
use percolator::{Change, Observer, Percolator, RowKey, Table};

use super::*;
use crate::records::{Member, encode};
use crate::tables::{ClusterId, DOCUMENTS, ELECT, EXPORT_PAGE, MEMBER, PLACE, SETTLE, SHOWN};
use crate::writer;

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

#[tokio::test]
async fn a_batch_whose_snapshot_shows_another_writer_is_refused() {
    let (db, tables, _) = settled().await;
    let dir = tempfile::tempdir().unwrap();
    let shown = Generation::open(dir.path(), 0, None).unwrap();
    let latency = Arc::new(Latency::new());
    let export = Exporter::new(db.downgrade(), tables.clone(), shown.clone(), latency);
    let ranks = ranks::ExportRanks::new(db.downgrade(), tables.clone(), shown.clone());
    let commit_ts = db.snapshot().await.unwrap().timestamp();
    let change = |row: &str| Change {
        table: tables.documents.clone(),
        row: row.into(),
        column: EXPORT_PAGE,
        commit_ts,
        deleted: false,
    };
    assert!(writer::beat(&db, &tables, 0).await.unwrap());
    let mut before = db.begin().await.unwrap();
    let record = writer::current(&db, &tables).await.unwrap().unwrap();
    assert!(writer::take_over(&db, &tables, &record, 1).await.unwrap());
    assert!(!writer::beat(&db, &tables, 0).await.unwrap());
    // The snapshot decides, and not the time of the batch.
    export.observe(&mut before, &[change(A)]).await.unwrap();
    let mut after = db.begin().await.unwrap();
    let errors = [
        export.observe(&mut after, &[change(B)]).await.unwrap_err(),
        ranks.observe(&mut after, &[]).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, percolator::Error::Unavailable(_)), "{error}");
    }
    assert!(shown.search.seq_of(A).unwrap().is_some());
    assert_eq!(shown.search.seq_of(B).unwrap(), None);
}

//! Tests of overlapping runs for one row, which may occur when an advisory lock expires.

use std::slice;

use percolator::observe::BatchObserver;
use percolator::{Change, Observer, Percolator, RowKey, Table, Transaction};

use super::*;
use crate::records::{Member, Page, encode};
use crate::tables::{
    ClusterId, DOCUMENTS, ELECT, EXPORT_PAGE, FORWARD, LinkRow, MEMBER, PAGE, PLACE, SETTLE, SHOWN,
    bucket_of, in_link,
};
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
    let page = Page::Indexed { title: "A".to_owned(), text: "a fish".to_owned(), hyperlinks: 1 };
    let written = db.transact(async |mut tx| {
        tx.set(&tables.documents, A, &MEMBER, encode(&member))?;
        tx.set(&tables.documents, A, &PAGE, encode(&page))?;
        tx.set(&tables.clusters, place.clone(), &PLACE, "")?;
        tx.set(&tables.clusters, id.row(), &SHOWN, A)
    });
    written.await.unwrap();
    (db, tables, id)
}

/// Makes two runs over the same state, and commits the second one first.
async fn only_one_commits(
    db: &Percolator,
    table: &Table,
    (row, column): (RowKey, Column),
    run: impl AsyncFn(&mut Transaction, &Change) -> percolator::Result<()>,
) {
    let commit_ts = db.snapshot().await.unwrap().timestamp();
    let change = Change { table: table.clone(), row, column, commit_ts, deleted: false };
    let (mut first, mut second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    run(&mut first, &change).await.unwrap();
    run(&mut second, &change).await.unwrap();
    second.commit().await.unwrap();
    let error = first.commit().await.unwrap_err();
    assert!(matches!(error, percolator::Error::Aborted { .. }), "{error}");
}

#[tokio::test]
async fn overlapping_elections_conflict_even_if_the_same_page_stays_shown() {
    let (db, tables, id) = settled().await;
    let elect = elect::Elect::new(tables.clone());
    let run = async |tx: &mut Transaction, change: &Change| elect.observe(tx, change).await;
    only_one_commits(&db, &tables.clusters, (id.row(), ELECT), run).await;
}

#[tokio::test]
async fn overlapping_runs_that_settle_a_page_conflict_even_if_its_cluster_stays() {
    let (db, tables, _) = settled().await;
    assert_eq!(tables.documents.name(), DOCUMENTS);
    let settle = settle::Settle::new(tables.clone());
    let run = async |tx: &mut Transaction, change: &Change| settle.observe(tx, change).await;
    only_one_commits(&db, &tables.documents, (A.into(), SETTLE), run).await;
}

#[tokio::test]
async fn overlapping_runs_that_forward_links_conflict_even_if_no_link_moves() {
    let (db, tables, _) = settled().await;
    let forward = forward::Forward::new(tables.clone());
    let run = async |tx: &mut Transaction, change: &Change| {
        forward.observe(tx, slice::from_ref(change)).await
    };
    let home = LinkRow::home(A, bucket_of(B)).key();
    let link = db.transact(async |mut tx| {
        tx.set(&tables.inlinks, &home, &in_link(B)?, encode(&vec!["an anchor"]))
    });
    link.await.unwrap();
    only_one_commits(&db, &tables.inlinks, (home, FORWARD), run).await;
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

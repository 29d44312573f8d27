//! Tests the upgrade of stores of layouts 1 to 3, which are made from one of the present layout.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use percolator::WorkerOptions;
use percolator::observe::{Observed, Strength};

use super::*;
use crate::address::Base;
use crate::generate::{Made, Site};
use crate::index::{LoadOptions, Progress, WebIndex};
use crate::records::{Keys, Member, encode};
use crate::search::{SearchIndex, Update};
use crate::tables::{LinkRow, PLACED, in_link_source};

async fn open(db: &Percolator, search: &Path) -> WebIndex {
    let db = db.another_client().await.unwrap();
    WebIndex::open(db, search, WorkerOptions::default()).await.unwrap()
}

/// Loads a site with redirects. Returns the URLs of the pages and the counts of the site.
async fn load(db: &Percolator, search: &Path) -> (Vec<String>, Made) {
    let site = tempfile::tempdir().unwrap();
    let made = Site { pages: 120, seed: 1 }.write(site.path()).unwrap();
    let index = open(db, search).await;
    let base = Base::parse("https://site.example/").unwrap();
    let (options, progress) = (LoadOptions::default(), Progress::default());
    index.load(site.path(), &base, &options, &progress).await.unwrap();
    index.wait(None).await.unwrap();
    let mut urls = Vec::new();
    let mut scan = db.snapshot().await.unwrap();
    let rows = scan_all(&mut scan, &index.tables.documents).await;
    urls.extend(
        rows.into_iter().map(|(row, _)| String::from_utf8(row.as_bytes().to_vec()).unwrap()),
    );
    index.stop().await;
    (urls, made)
}

type Rows = Vec<(RowKey, BTreeMap<Column, Bytes>)>;

async fn scan_all(snapshot: &mut percolator::Snapshot, table: &Table) -> Rows {
    let rows = snapshot.scan(table).collect().await.unwrap();
    rows.into_iter().map(|row| (row.row, row.cells.into_iter().collect())).collect()
}

/// The keys of layout 1.
fn registered(keys: &Keys, url: &str) -> Vec<(Kind, Vec<u8>)> {
    let own = url.as_bytes().to_vec();
    let mut rows = vec![(Kind::Redirect, own.clone()), (Kind::Canonical, own)];
    rows.extend(keys.content.map(|hash| (Kind::Content, hash.to_vec())));
    rows.extend(keys.redirect.iter().map(|url| (Kind::Redirect, url.as_bytes().to_vec())));
    rows.extend(keys.canonical.iter().map(|url| (Kind::Canonical, url.as_bytes().to_vec())));
    rows
}

/// Places the in-links of the hidden pages at the page shown, as layout 1 did.
async fn place_at(db: &Percolator, tables: &Tables, shown: &str, hidden: &[String]) {
    let mut snapshot = db.snapshot().await.unwrap();
    let links = scan_all(&mut snapshot, &tables.inlinks).await;
    for (row, cells) in links {
        let place = LinkRow::parse(&row).unwrap();
        db.transact(async |mut tx| {
            for (column, value) in &cells {
                let is_link = in_link_source(column).is_some();
                if !place.is_home() || *column == PLACED {
                    tx.delete(&tables.inlinks, &row, column)?;
                } else if is_link && hidden.contains(&place.target) {
                    tx.set(&tables.inlinks, place.at(shown).key(), column, value.clone())?;
                    tx.set(&tables.inlinks, &row, &PLACED, shown.to_owned())?;
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// Turns the whole store into layout 1. All redirects and their targets are one cluster, and a
/// redirect is shown.
async fn downgrade(db: &Percolator, search: &Path) -> usize {
    let tables = Tables::open(db).await.unwrap();
    let mut by_key = Vec::new();
    for name in BY_KEY {
        by_key.push(db.table(name).await.unwrap());
    }
    let old = |table: &str, column: &'static str, observer: &str, strength| Observed {
        table: table.to_owned(),
        column: Column::literal(column),
        observer: observer.to_owned(),
        strength,
    };
    let elect = Column::literal("elect");
    db.declare(&[old("by_redirect", "elect", "elect", Strength::Weak)]).await.unwrap();
    db.declare(&[old("documents", "doc:canonical", "move", Strength::Strong)]).await.unwrap();
    let mut snapshot = db.snapshot().await.unwrap();
    let documents = scan_all(&mut snapshot, &tables.documents).await;
    let keys = |cells: &BTreeMap<Column, Bytes>| decode::<Keys>(cells.get(&KEYS).cloned()).unwrap();
    let stubs: Vec<Keys> = documents.iter().filter_map(|(_, cells)| keys(cells)).collect();
    let targets: Vec<String> = stubs.iter().filter_map(|keys| keys.redirect.clone()).collect();
    let joined = |url: &str, keys: &Keys| {
        keys.redirect.is_some() || targets.iter().any(|target| target == url)
    };
    let url_of = |row: &RowKey| String::from_utf8(row.as_bytes().to_vec()).unwrap();
    let is_redirect = |cells| keys(cells).is_some_and(|keys| keys.redirect.is_some());
    let shown = documents.iter().find(|(_, cells)| is_redirect(cells)).unwrap();
    let (shown, mut hidden) = (url_of(&shown.0), Vec::new());
    for (row, cells) in &documents {
        let url = url_of(row);
        let keys = keys(cells).unwrap();
        let rows = registered(&keys, &url);
        let canonical = (joined(&url, &keys) && url != shown).then(|| shown.clone());
        hidden.extend(canonical.as_ref().map(|_| url.clone()));
        db.transact(async |mut tx| {
            tx.delete(&tables.documents, row, &MEMBER)?;
            tx.set(&tables.documents, row, &REGISTERED, encode(&rows))?;
            for (kind, key) in &rows {
                let member = Column::new(format!("member:{url}").into_bytes())?;
                tx.set(&by_key[*kind as usize], key.clone(), &member, "")?;
            }
            tx.notify(&by_key[1], row, &elect)?;
            match &canonical {
                Some(canonical) => tx.set(&tables.documents, row, &CANONICAL, canonical.clone()),
                None => Ok(()),
            }
        })
        .await
        .unwrap();
    }
    place_at(db, &tables, &shown, &hidden).await;
    for table in [&tables.clusters, &tables.by_target, &tables.format] {
        for (row, cells) in scan_all(&mut snapshot, table).await {
            db.transact(async |mut tx| {
                cells.keys().try_for_each(|column| tx.delete(table, &row, column))
            })
            .await
            .unwrap();
        }
    }
    let seq = db.begin().await.unwrap().start_ts().as_u64();
    let gone = |url: &String| Update { url: url.clone(), seq, page: None };
    SearchIndex::open(search).unwrap().apply(hidden.iter().map(gone).collect()).unwrap();
    hidden.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_layout_1_is_upgraded_when_it_is_opened() {
    let (db, search) = (Percolator::in_memory().await.unwrap(), tempfile::tempdir().unwrap());
    let (urls, made) = load(&db, search.path()).await;
    assert_eq!(urls.len(), made.urls());
    assert!(downgrade(&db, search.path()).await > made.redirects);
    // Pages that stand for others may settle before the upgrade has come to those others.
    let tables = Tables::open(&db).await.unwrap();
    let (documents, record) = (&tables.documents, encode(&Member::default()));
    db.transact(async |mut tx| {
        for url in &urls {
            tx.set(documents, url.as_str(), &MEMBER, record.clone())?;
        }
        Ok(())
    })
    .await
    .unwrap();
    let index = open(&db, search.path()).await;
    let idle = index.wait(None).await.unwrap();
    assert!(idle.idle && idle.missing.is_empty() && idle.set_aside.is_empty(), "{idle:?}");
    let report = index.verify().await.unwrap();
    assert!(report.is_ok(), "{:#?}", report.named);
    assert_eq!(index.stats().await.unwrap().searchable, made.texts);
    // No record of layout 1 is left, and opening the store again finds nothing to do.
    for name in BY_KEY {
        let table = db.table(name).await.unwrap();
        assert_eq!(db.snapshot().await.unwrap().scan(&table).collect().await.unwrap(), []);
    }
    assert!(is_current(&db, &index.tables).await.unwrap());
    index.stop().await;
    assert!(open(&db, search.path()).await.upgrade.is_none());
}

/// The clusters at which in-links are placed.
async fn holders(db: &Percolator, tables: &Tables) -> BTreeSet<ClusterId> {
    let mut snapshot = db.snapshot().await.unwrap();
    let links = scan_all(&mut snapshot, &tables.inlinks).await;
    let rows = links.iter().filter_map(|(row, _)| LinkRow::parse(row));
    rows.filter_map(|row| ClusterId::of_holder(&row.holder)).collect()
}

/// The clusters whose rows say that they hold in-links.
async fn marked(db: &Percolator, tables: &Tables) -> BTreeSet<ClusterId> {
    let mut snapshot = db.snapshot().await.unwrap();
    let clusters = scan_all(&mut snapshot, &tables.clusters).await;
    let marked = clusters.iter().filter(|(_, cells)| cells.contains_key(&HOLDS));
    marked.filter_map(|(row, _)| ClusterId::of_row(row)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_layout_2_is_upgraded_when_it_is_opened() {
    let (db, search) = (Percolator::in_memory().await.unwrap(), tempfile::tempdir().unwrap());
    load(&db, search.path()).await;
    let tables = Tables::open(&db).await.unwrap();
    let holders = holders(&db, &tables).await;
    assert!(!holders.is_empty(), "the site has duplicates with in-links");
    // A cluster that has lost its in-links stays marked.
    assert!(marked(&db, &tables).await.is_superset(&holders));
    db.transact(async |mut tx| {
        for cluster in marked(&db, &tables).await {
            tx.delete(&tables.clusters, cluster.row(), &HOLDS)?;
        }
        tx.set(&tables.format, VERSION_ROW, &VERSION_COLUMN, LAYOUT_2)
    })
    .await
    .unwrap();
    // An exporter without those cells would have left these pages' placed in-links out.
    let begun = db.begin().await.unwrap();
    let mut outdated = Vec::new();
    for cluster in &holders {
        let url = tables.shown(&begun, *cluster).await.unwrap().unwrap();
        outdated.push(Update { url, seq: begun.start_ts().as_u64(), page: None });
    }
    drop(begun);
    SearchIndex::open(search.path()).unwrap().apply(outdated).unwrap();

    let index = open(&db, search.path()).await;
    assert!(index.wait(None).await.unwrap().idle);
    assert_eq!(marked(&db, &tables).await, holders);
    let report = index.verify().await.unwrap();
    assert!(report.is_ok(), "{:#?}", report.named);
    // A missing mark is a difference, also while the search index still shows all anchors.
    let unmarked = *holders.first().unwrap();
    db.transact(async |mut tx| tx.delete(&tables.clusters, unmarked.row(), &HOLDS)).await.unwrap();
    let report = index.verify().await.unwrap();
    assert_eq!(report.differences, 1, "{:#?}", report.named);
    index.stop().await;
    assert!(open(&db, search.path()).await.upgrade.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_layout_3_is_upgraded_when_it_is_opened() {
    let (db, search) = (Percolator::in_memory().await.unwrap(), tempfile::tempdir().unwrap());
    let (site, base) = (tempfile::tempdir().unwrap(), Base::parse("https://s.example/").unwrap());
    let write = |name: &str, html: &str| std::fs::write(site.path().join(name), html).unwrap();
    write("a.html", "<title>Old</title><meta http-equiv=refresh content='0; url=z.html'>");
    let load = async |index: &WebIndex| {
        let (options, progress) = (LoadOptions::default(), Progress::default());
        index.load(site.path(), &base, &options, &progress).await.unwrap();
        assert!(index.wait(None).await.unwrap().idle);
    };
    let index = open(&db, search.path()).await;
    load(&index).await;
    let target = "https://s.example/z.html";
    let tables = index.tables.clone();
    index.stop().await;
    db.transact(async |mut tx| {
        let record: Option<Member> = decode(tx.get(&tables.documents, target, &MEMBER).await?)?;
        assert_eq!(record, Some(Member::default()));
        tx.delete(&tables.documents, target, &MEMBER)?;
        tx.set(&tables.format, VERSION_ROW, &VERSION_COLUMN, LAYOUT_3)
    })
    .await
    .unwrap();

    let index = open(&db, search.path()).await;
    assert!(index.wait(None).await.unwrap().idle);
    let report = index.verify().await.unwrap();
    assert!(report.is_ok(), "{:#?}", report.named);
    // The target is loaded for the first time, and finds the page that stands for it.
    write("z.html", "<title>New</title><p>The page itself.");
    load(&index).await;
    let report = index.verify().await.unwrap();
    assert!(report.is_ok(), "{:#?}", report.named);
    let cluster = index.cluster("https://s.example/a.html").await.unwrap().unwrap();
    assert_eq!((cluster.canonical.as_str(), cluster.members.len()), (target, 2));
    // Without the record, it would not have looked for that page.
    assert!(index.remove(target).await.unwrap());
    assert!(index.wait(None).await.unwrap().idle);
    let deleted = db.transact(async |mut tx| tx.delete(&tables.documents, target, &MEMBER));
    deleted.await.unwrap();
    let report = index.verify().await.unwrap();
    assert_eq!(report.differences, 1, "{:#?}", report.named);
    load(&index).await;
    assert!(!index.verify().await.unwrap().is_ok());
    index.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_a_later_layout_is_refused() {
    let (db, search) = (Percolator::in_memory().await.unwrap(), tempfile::tempdir().unwrap());
    let tables = Tables::open(&db).await.unwrap();
    db.transact(async |mut tx| tx.set(&tables.format, VERSION_ROW, &VERSION_COLUMN, "5"))
        .await
        .unwrap();
    let refused = WebIndex::open(db, search.path(), WorkerOptions::default()).await.unwrap_err();
    assert!(matches!(refused, Error::StoreLayout { .. }), "{refused}");
}

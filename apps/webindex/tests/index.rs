//! Tests of the whole index: whatever is loaded, changed or deleted, the observers' results
//! equal those of a batch over the stored documents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod site;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use percolator::{Percolator, WorkerOptions};
use webindex::address::Base;
use webindex::generate::Site;
use webindex::search::{Entry, IndexedPage, SearchIndex, Update};
use webindex::{HitCounts, LoadOptions, Progress, WebIndex};

use crate::site::{BASE, Fixture, page};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_site_survives_ranking_and_recrawls() {
    let fixture = Fixture::new().await;
    let site = fixture.site.path().join("site");
    let made = Site { pages: 60, seed: 3 }.write(&site).unwrap();
    let report = fixture.load_from(&site).await;
    assert_eq!(report.warnings, 0, "{:?}", report.skipped);
    let stats = fixture.index.stats().await.unwrap();
    assert_eq!(stats.searchable, made.texts, "every text is found, and once");
    assert!(stats.clusters > 0 && stats.redirects > 0 && stats.duplicates > 0, "{stats:?}");
    let ranked = fixture.index.rank(&Progress::default()).await.unwrap();
    assert_eq!(ranked.changed, stats.pages);
    fixture.verified().await;
    for seed in 1..4 {
        let recrawl = fixture.index.recrawl(20.0, seed, &Progress::default()).await.unwrap();
        assert!(recrawl.edited > 0, "{recrawl:?}");
        fixture.verified().await;
    }
    // Pages that the recrawl edited or deleted are loaded again. The rest is left alone.
    let again = fixture.load_from(&site).await;
    assert!(again.loaded > 0 && again.unchanged > 0, "{again:?}");
    assert_eq!(fixture.index.stats().await.unwrap().pages, stats.pages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_links_move_with_the_canonical_of_their_cluster() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("Fish", "the same text", &[]));
    fixture.write("b.html", page("Fish", "the same text", &[]));
    fixture.write("x.html", page("X", "links to the duplicate", &["b.html"]));
    fixture.write("y.html", page("Y", "does so too", &["b.html"]));
    fixture.load().await;
    // Before any ranking, the first URL wins a tie.
    assert_eq!(fixture.canonical("b.html").await, "a.html");
    assert_eq!(fixture.in_links("a.html").await, 2);
    let hits = fixture.index.search("fish", 10).await.unwrap();
    let counts = fixture.index.counts(&hits).await.unwrap();
    assert_eq!(counts, [HitCounts { in_links: 2, duplicates: 1 }]);
    // Two pages link to b.html and none to a.html, so b.html has the higher rank.
    fixture.index.rank(&Progress::default()).await.unwrap();
    fixture.verified().await;
    assert_eq!(fixture.canonical("a.html").await, "b.html");
    assert_eq!((fixture.in_links("a.html").await, fixture.in_links("b.html").await), (0, 2));
    let cluster = fixture.index.cluster(&format!("{BASE}a.html")).await.unwrap().unwrap();
    assert_eq!(cluster.members.len(), 2);
    // Retract: y.html no longer has the link, and a.html has another text now.
    fixture.write("y.html", page("Y", "has changed its mind", &[]));
    fixture.write("a.html", page("Meat", "another text", &[]));
    fixture.load().await;
    assert_eq!(fixture.canonical("a.html").await, "a.html");
    assert_eq!(fixture.in_links("b.html").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_links_to_a_duplicate_go_on_to_its_canonical_and_come_back() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("Fish", "the same text", &[]));
    fixture.write("b.html", page("Fish", "the same text", &[]));
    fixture.load().await;
    assert_eq!(fixture.canonical("b.html").await, "a.html");
    let anchors = async || fixture.index.search("\"to b.html\"", 10).await.unwrap();
    // The cluster is settled. From here on, only its links change.
    fixture.write("x.html", page("X", "a late link", &["b.html"]));
    fixture.load().await;
    assert_eq!(fixture.in_links("a.html").await, 1);
    let shown: Vec<String> = anchors().await.into_iter().map(|hit| hit.url).collect();
    assert!(shown.contains(&format!("{BASE}a.html")), "{shown:?}");
    // The canonical page is removed, and comes back with another text: the links return home.
    fs::remove_file(fixture.site.path().join("a.html")).unwrap();
    fixture.write("a.html", page("Meat", "another text", &[]));
    fixture.load().await;
    assert_eq!((fixture.in_links("a.html").await, fixture.in_links("b.html").await), (0, 1));
    fixture.write("x.html", page("X", "no link", &[]));
    fixture.load().await;
    assert_eq!(fixture.in_links("b.html").await, 0);
    assert_eq!(anchors().await, [], "no page is found by the anchors of a link that is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_and_declared_canonicals_cluster_with_their_target() {
    let fixture = Fixture::new().await;
    let redirect = |to: &str| format!("<meta http-equiv=refresh content=\"0; url={to}\">to {to}");
    fixture.write("old.html", redirect("new.html"));
    fixture.write("older.html", redirect("old.html"));
    fixture.write("new.html", page("New", "the page itself", &[]));
    fixture
        .write("print.html", format!("<link rel=canonical href=new.html>{}", page("P", "x", &[])));
    fixture.write("z.html", page("Z", "unrelated", &["older.html"]));
    fixture.load().await;
    let cluster = fixture.index.cluster(&format!("{BASE}print.html")).await.unwrap().unwrap();
    assert_eq!(cluster.members.len(), 4, "{cluster:?}");
    // The middle page of the chain no longer redirects, so the chain falls apart.
    fixture.write("old.html", page("Old", "a page of its own", &[]));
    fixture.load().await;
    let cluster = fixture.index.cluster(&format!("{BASE}print.html")).await.unwrap().unwrap();
    assert_eq!(cluster.members.len(), 2, "{cluster:?}");
    let cluster = fixture.index.cluster(&format!("{BASE}older.html")).await.unwrap().unwrap();
    assert_eq!(cluster.members.len(), 2, "{cluster:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_with_many_links_is_placed_in_several_transactions() {
    let fixture = Fixture::new().await;
    let targets: Vec<String> = (0..4_500).map(|n| format!("t{n}.html")).collect();
    let links: Vec<&str> = targets.iter().map(String::as_str).collect();
    fixture.write("index.html", page("Index", "of everything", &links));
    fixture.write("t7.html", page("Seven", "one of them", &[]));
    fixture.load().await;
    assert_eq!(fixture.in_links("t7.html").await, 1);
    // However many links there are, every transaction is small enough for a one-step commit.
    let counts = fixture.index.database().stats();
    assert_eq!(counts.committed, counts.committed_one_step, "{counts:?}");
    fixture.write("index.html", page("Index", "of much less", &links[..10]));
    fixture.load().await;
    assert_eq!(fixture.index.stats().await.unwrap().edges, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_links_to_one_page_are_no_conflict_storm() {
    let fixture = Fixture::new().await;
    fixture.write("hot.html", page("Hot", "everyone links here", &[]));
    for n in 0..300 {
        fixture
            .write(&format!("p{n}.html"), page(&format!("P{n}"), &format!("{n}"), &["hot.html"]));
    }
    fixture.load().await;
    assert_eq!(fixture.in_links("hot.html").await, 300);
    let hits = fixture.index.search("everyone", 10).await.unwrap();
    let counts = fixture.index.counts(&hits).await.unwrap();
    assert_eq!(counts, [HitCounts { in_links: HitCounts::MAX, duplicates: 0 }]);
    let counts = fixture.index.database().stats();
    assert!(counts.conflicts * 20 < counts.committed, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_page_is_counted_and_named_and_the_load_goes_on() {
    let fixture = Fixture::new().await;
    fixture.write("good.html", page("Good", "a page", &[]));
    fixture.write("cut.html", "<title>Cut</title><p>in the midd<a href=\"go");
    fixture.write("empty.html", "");
    fixture.write("binary.html", b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00");
    fixture.write("latin.html", b"<meta charset=iso-8859-1><title>caf\xe9</title><p>au lait");
    fixture.write("plain.html", "no markup at all");
    #[cfg(unix)]
    {
        let link = |to: &str, from: &str| {
            std::os::unix::fs::symlink(to, fixture.site.path().join(from)).unwrap();
        };
        link(".", "loop");
        link("good.html", "again.html");
        link("nowhere.html", "dangling.html");
    }
    let report = fixture.load().await;
    let reasons: Vec<&str> = report.skipped.iter().map(|s| s.reason.as_str()).collect();
    assert!(reasons.iter().any(|r| r.contains("empty")), "{reasons:?}");
    assert!(reasons.iter().any(|r| r.contains("binary")), "{reasons:?}");
    let stats = fixture.index.stats().await.unwrap();
    // Only parsing shows that it is not a page. So it is stored, and counted as not indexed.
    assert_eq!(stats.skipped.get("no-markup"), Some(&1));
    let hits = fixture.index.search("café", 10).await.unwrap();
    assert_eq!(hits.len(), 1, "{hits:?}");
    if cfg!(unix) {
        assert!(reasons.iter().any(|r| r.contains("leads back")), "{reasons:?}");
        assert_eq!(fixture.canonical("good.html").await, "again.html");
        assert_eq!((stats.pages, stats.duplicates), (4, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tampered_index_does_not_verify() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("A", "a page", &["b.html"]));
    fixture.write("b.html", page("B", "another", &[]));
    fixture.load().await;
    let db = fixture.index.database();
    let documents = db.table("documents").await.unwrap();
    let linked = percolator::Column::literal("doc:linked");
    let url = format!("{BASE}a.html");
    db.transact(async |mut tx| tx.delete(&documents, url.as_str(), &linked)).await.unwrap();
    let report = fixture.index.verify().await.unwrap();
    assert_eq!(report.differences, 1, "{:?}", report.named);
    assert!(report.named[0].contains("placed links"), "{:?}", report.named);
}

/// Reads the search index in a directory: URLs with their numbers and ranks.
fn held(dir: &Path) -> BTreeMap<String, (u64, f64)> {
    let mut held = BTreeMap::new();
    let index = SearchIndex::open_existing(dir).unwrap();
    let mut add = |entry: Entry| held.insert(entry.url, (entry.seq, entry.rank));
    index.dump(|entry| assert_eq!(add(entry), None, "held once")).unwrap();
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ranking_reaches_searches_and_writes_no_page_again() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("A", "about fish", &["b.html"]));
    fixture.write("b.html", page("B", "about fish", &[]));
    fixture.write("c.html", page("C", "about fish", &["b.html"]));
    fixture.load().await;
    let before = held(fixture.search.path());
    assert!(before.values().all(|(_, rank)| *rank == 0.0), "{before:?}");
    fixture.index.rank(&Progress::default()).await.unwrap();
    fixture.verified().await;
    let after = held(fixture.search.path());
    let numbers = |held: &BTreeMap<String, (u64, f64)>| -> Vec<u64> {
        held.values().map(|(seq, _)| *seq).collect()
    };
    assert_eq!(numbers(&before), numbers(&after), "no page was written again");
    let sum: f64 = after.values().map(|(_, rank)| rank).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{after:?}");
    let hits = fixture.index.search("fish", 10).await.unwrap();
    assert_eq!((hits.len(), hits[0].url.as_str()), (3, "https://site.example/b.html"));
    // A ranking that changes no rank still restores a lost file of ranks.
    fs::remove_file(fixture.search.path().join("RANKS")).unwrap();
    assert_eq!(fixture.index.rank(&Progress::default()).await.unwrap().changed, 0);
    fixture.verified().await;
    assert_eq!(held(fixture.search.path()), after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_index_that_is_old_or_gone_is_made_anew_from_the_documents() {
    let (site, search) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Percolator::in_memory().await.unwrap();
    let open = async || {
        let db = db.another_client().await.unwrap();
        let index = WebIndex::open(db, search.path(), WorkerOptions::default()).await.unwrap();
        assert!(index.wait(None).await.unwrap().idle);
        index
    };
    for n in 0..40 {
        let text = format!("<title>Cod {n}</title><p>number {n} <a href=p0.html>first</a>");
        fs::write(site.path().join(format!("p{n}.html")), text).unwrap();
    }
    let index = open().await;
    let base = Base::parse(BASE).unwrap();
    index.load(site.path(), &base, &LoadOptions::default(), &Progress::default()).await.unwrap();
    index.wait(None).await.unwrap();
    index.rank(&Progress::default()).await.unwrap();
    index.wait(None).await.unwrap();
    index.stop().await;
    let ranks = |held: BTreeMap<String, (u64, f64)>| -> Vec<f64> {
        held.values().map(|(_, rank)| *rank).collect()
    };
    let before = ranks(held(search.path()));
    assert!(before.len() == 40 && before.iter().all(|rank| *rank > 0.0), "{before:?}");
    for is_gone in [false, true] {
        if is_gone {
            fs::remove_dir_all(search.path()).unwrap()
        } else {
            fs::write(search.path().join("FORMAT"), "webindex search index 1").unwrap()
        }
        let index = open().await;
        assert!(index.verify().await.unwrap().is_ok());
        index.stop().await;
        assert_eq!(ranks(held(search.path())), before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_searched_with_another_number_of_links_does_not_verify() {
    let (site, search) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Percolator::in_memory().await.unwrap();
    let open = async || {
        let db = db.another_client().await.unwrap();
        WebIndex::open(db, search.path(), WorkerOptions::default()).await.unwrap()
    };
    let html = "<title>Cod</title><p>about <a href=b.html>fish</a>, <a href=c.html>fresh</a>";
    fs::write(site.path().join("a.html"), html).unwrap();
    let index = open().await;
    let base = Base::parse(BASE).unwrap();
    index.load(site.path(), &base, &LoadOptions::default(), &Progress::default()).await.unwrap();
    index.wait(None).await.unwrap();
    index.stop().await;
    for (seq, hyperlinks) in [(u64::MAX - 1, 3), (u64::MAX, 2)] {
        let page = IndexedPage {
            title: "Cod".into(),
            text: "about fish, fresh".into(),
            hyperlinks,
            ..IndexedPage::default()
        };
        let url = format!("{BASE}a.html");
        let writer = SearchIndex::open(search.path()).unwrap();
        writer.apply(vec![Update { url, seq, page: Some(page) }]).unwrap();
        drop(writer);
        let index = open().await;
        let report = index.verify().await.unwrap();
        index.stop().await;
        assert_eq!(report.differences, usize::from(hyperlinks != 2), "{:?}", report.named);
        assert!(report.named.iter().all(|named| named.contains("other text, links or anchors")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_not_shown_does_not_verify() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("A", "a page", &[]));
    fixture.write("b.html", page("B", "another", &[]));
    fixture.load().await;
    let db = fixture.index.database();
    let clusters = db.table("clusters").await.unwrap();
    let (shown, a, b) =
        (percolator::Column::literal("shown"), format!("{BASE}a.html"), format!("{BASE}b.html"));
    let snapshot = db.snapshot().await.unwrap();
    let rows = snapshot.scan(&clusters).columns([&shown]).collect().await.unwrap();
    let of_a = rows.iter().find(|row| row.cells[0].1 == a.as_bytes()).unwrap();
    let change = db.transact(async |mut tx| tx.set(&clusters, &of_a.row, &shown, b.clone()));
    change.await.unwrap();
    let report = fixture.index.verify().await.unwrap();
    let sentence = format!("neither {a} nor a page with equal title and text is shown");
    assert!(report.named.iter().any(|named| named.contains(&sentence)), "{:?}", report.named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_links_that_are_missing_changed_or_too_many() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("A", "links to b and c", &["b.html", "c.html"]));
    fixture.write("b.html", page("B", "is linked to", &[]));
    fixture.write("c.html", page("C", "is linked to, too", &[]));
    fixture.load().await;
    let db = fixture.index.database();
    let inlinks = db.table("inlinks").await.unwrap();
    let mut rows = db.snapshot().await.unwrap().scan(&inlinks).collect().await.unwrap();
    rows.retain(|row| row.cells.iter().any(|(column, _)| column.as_bytes().starts_with(b"in:")));
    let [to_b, to_c] = &rows[..] else { panic!("two links: {rows:?}") };
    let ((source, anchors), c) = (&to_b.cells[0], to_c.row.clone());
    // b.html has lost its link. c.html has other anchors, and an in-link from a page without
    // links.
    let other = percolator::Column::new(format!("in:{BASE}b.html").into_bytes()).unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.delete(&inlinks, to_b.row.clone(), source).unwrap();
    tx.set(&inlinks, c.clone(), source, anchors.clone()).unwrap();
    tx.set(&inlinks, c, &other, anchors.clone()).unwrap();
    tx.commit().await.unwrap();
    let report = fixture.index.verify().await.unwrap();
    let of_links: Vec<&String> =
        report.named.iter().filter(|named| named.starts_with("in-links")).collect();
    let expected = [
        format!("in-links of {BASE}c.html at {BASE}c.html: the entry does not match {BASE}a.html"),
        format!("in-links of {BASE}c.html at {BASE}c.html: the entry does not match {BASE}b.html"),
        format!("in-links of {BASE}b.html at {BASE}b.html: {BASE}a.html is missing"),
        format!("in-links of {BASE}c.html at {BASE}c.html: {BASE}a.html is missing"),
    ];
    assert_eq!(of_links, expected.iter().collect::<Vec<_>>(), "{:#?}", report.named);
}

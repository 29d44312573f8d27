//! Tests in which threads change pages and ranks at random, while the observers run.

use std::collections::{BTreeMap, BTreeSet};

use percolator::observe::BatchObserver;
use percolator::{Change, Percolator, Registration, Result, Transaction, WorkerOptions};

use super::*;
use crate::observers::keepers;
use crate::prng::Prng;
use crate::records::{Keys, Member, decode, decode_rank, encode};
use crate::tables::{
    DOCUMENTS, EXPORT_ANCHORS, EXPORT_PAGE, EXPORT_RANKS, KEYS, MEMBER, RANK, RANKING,
};

const THREADS: u64 = 16;
const CHANGES: u64 = 10_000;
const ROUNDS: u64 = 10;
const PAGES: usize = 30;

/// Accepts the notifications of the exporter, and does nothing.
struct Ignore;

impl BatchObserver for Ignore {
    async fn observe(&self, _tx: &mut Transaction, _changes: &[Change]) -> Result<()> {
        Ok(())
    }
}

/// An index without parser and search index, to test clusters alone.
async fn clusters_alone() -> WebIndex {
    let db = Percolator::in_memory().await.unwrap();
    let tables = Tables::open(&db).await.unwrap();
    let latency = Arc::new(latency::Latency::new());
    let mut registrations = keepers(&tables, &latency);
    let exported = [(DOCUMENTS, EXPORT_PAGE), (DOCUMENTS, EXPORT_ANCHORS), (RANKING, EXPORT_RANKS)];
    for (table, column) in exported {
        let batch = percolator::observe::Batch::default();
        registrations.push(Registration::batched("export", table, &column, batch, Ignore));
    }
    let options = WorkerOptions { threads: THREADS as usize, ..WorkerOptions::default() };
    let workers = std::sync::Mutex::new(Some(db.observe(registrations, options).await.unwrap()));
    assert!(upgrade::is_current(&db, &tables).await.unwrap());
    let outage_max = OUTAGE_MAX;
    WebIndex { db, tables, search: None, latency, workers, upgrade: None, outage_max }
}

fn url(page: usize) -> String {
    format!("https://site.example/{page:02}.html")
}

/// The next state of a page: gone, one of four texts, a redirect, or a declaration.
fn keys(prng: &mut Prng) -> Option<Keys> {
    let other = url(prng.below(PAGES));
    let content = Some([prng.below(4) as u8; 32]);
    match prng.below(8) {
        0 => None,
        1..=3 => Some(Keys { content, redirect: Some(other), canonical: None }),
        4 => Some(Keys { content, redirect: None, canonical: Some(other) }),
        _ => Some(Keys { content, redirect: None, canonical: None }),
    }
}

async fn change(index: &WebIndex, prng: &mut Prng) {
    let (page, documents) = (url(prng.below(PAGES)), &index.tables.documents);
    if prng.below(4) == 0 {
        let rank = prng.below(5) as f64 / 10.0;
        index.write_ranks(&[(&page, rank)]).await.unwrap();
        return;
    }
    let mut keys = keys(prng);
    if let Some(keys) = &mut keys {
        keys.redirect.take_if(|target| *target == page);
    }
    let written = index.db.transact(async |mut tx| match &keys {
        Some(keys) => tx.set(documents, page.as_str(), &KEYS, encode(keys)),
        None => tx.delete(documents, page.as_str(), &KEYS),
    });
    written.await.unwrap();
}

/// A page in the recomputation.
struct Seen {
    keys: Keys,
    rank: f64,
    member: Member,
}

async fn read(index: &WebIndex) -> BTreeMap<String, Seen> {
    let snapshot = index.db.snapshot().await.unwrap();
    let mut pages = BTreeMap::new();
    for url in (0..PAGES).map(url) {
        let columns = [&KEYS, &MEMBER, &RANK];
        let cells = snapshot.get_row(&index.tables.documents, url.as_str(), columns).await;
        let [keys, member, rank] = cells.unwrap();
        let member: Option<Member> = decode(member).unwrap();
        let Some(keys) = decode::<Keys>(keys).unwrap() else {
            assert!(member.is_none_or(|member| member == Member::default()), "{url} is gone");
            continue;
        };
        let rank = decode_rank(rank.as_ref());
        pages.insert(url, Seen { keys, rank, member: member.expect("it is registered") });
    }
    pages
}

/// Returns where a page's redirects end: at a text, at an address, or at the first address of
/// a circle.
fn end_of(pages: &BTreeMap<String, Seen>, url: &str) -> String {
    let (mut here, mut way) = (url.to_owned(), Vec::<String>::new());
    loop {
        if let Some(at) = way.iter().position(|seen| *seen == here) {
            return way[at..].iter().min().unwrap().clone();
        }
        let Some(page) = pages.get(&here) else { return here };
        way.push(here.clone());
        match page.keys.stands_for(&here) {
            Some(target) => here = target.to_owned(),
            None => return format!("text {:?}", page.keys.content),
        }
    }
}

async fn compare(index: &WebIndex) {
    let pages = read(index).await;
    let mut clusters: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for url in pages.keys() {
        clusters.entry(end_of(&pages, url)).or_default().push(url);
    }
    let tx = index.db.begin().await.unwrap();
    let mut members_seen = 0;
    for (end, members) in &clusters {
        let preferred = |a: &&&String, b: &&&String| {
            let kind = |url: &str| pages[url].keys.stands_for(url).is_some();
            let by_rank = pages[**b].rank.total_cmp(&pages[**a].rank);
            kind(a).cmp(&kind(b)).then(by_rank).then(a.cmp(b))
        };
        let best = members.iter().min_by(preferred).unwrap();
        let ids: BTreeSet<_> = members.iter().map(|url| pages[*url].member.cluster()).collect();
        assert_eq!(ids.len(), 1, "{end}: {members:?} share a cluster");
        let id = ids.first().copied().flatten().expect("all pages are settled");
        assert_eq!(index.tables.shown(&tx, id).await.unwrap().as_ref(), Some(*best), "{end}");
        let listed = index.tables.first_members(&tx, id, usize::MAX).await.unwrap();
        assert_eq!(listed.len(), members.len(), "{end}");
        members_seen += listed.len();
    }
    let all = tx.scan(&index.tables.clusters).columns([&crate::tables::PLACE]);
    assert_eq!(all.collect().await.unwrap().len(), members_seen, "no member is left over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn sixteen_threads_of_joins_and_leaves_end_as_a_recomputation_says() {
    let index = Arc::new(clusters_alone().await);
    for round in 0..ROUNDS {
        let threads = (0..THREADS).map(|thread| {
            let index = index.clone();
            tokio::spawn(async move {
                let mut prng = Prng::for_item(round, thread);
                for _ in 0..CHANGES / THREADS / ROUNDS {
                    change(&index, &mut prng).await;
                }
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.await.unwrap();
        }
        let idle = index.wait(None).await.unwrap();
        assert_eq!(idle.set_aside, []);
        compare(&index).await;
    }
}

#[tokio::test]
async fn an_election_conflicts_with_a_new_rank_of_a_page_that_is_alone() {
    let index = clusters_alone().await;
    let (page, tables) = (url(0), &index.tables);
    let keys = Keys { content: Some([1; 32]), redirect: None, canonical: None };
    let loaded = index
        .db
        .transact(async |mut tx| tx.set(&tables.documents, page.as_str(), &KEYS, encode(&keys)));
    loaded.await.unwrap();
    index.wait(None).await.unwrap();
    let mut election = index.db.begin().await.unwrap();
    index.write_ranks(&[(&page, 0.5)]).await.unwrap();
    let cluster = crate::tables::ClusterId::of_content([1; 32]).row();
    election.set(&tables.clusters, cluster, &crate::tables::SHOWN, page.clone()).unwrap();
    // The election has read the old place. Without the conflict, it would miss that the page
    // comes first now.
    let error = election.commit().await.unwrap_err();
    assert!(matches!(error, percolator::Error::Aborted { .. }), "{error}");
}

//! Runs every example and checks its results.

#![allow(missing_docs, unreachable_pub, reason = "the examples are programs")]

#[path = "../examples/bank.rs"]
mod bank;
#[path = "../examples/catalogue.rs"]
mod catalogue;
#[path = "../examples/dedup.rs"]
mod dedup;
#[path = "../examples/word_count.rs"]
mod word_count;
#[path = "../examples/write_skew.rs"]
mod write_skew;

#[tokio::test]
async fn bank_keeps_its_money_at_every_crash() {
    let found = bank::run().await.unwrap();
    let balances: Vec<_> = found.iter().map(|(_, bob, joe)| (*bob, *joe)).collect();
    // Before the commit point no payment is visible, after it the whole payment is.
    assert_eq!(balances, [(10, 2), (10, 2), (3, 9), (3, 9)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dedup_finds_one_canonical_for_each_content() {
    assert_eq!(dedup::run().await.unwrap().len(), 4);
}

#[tokio::test]
async fn write_skew_is_possible_and_can_be_prevented() {
    assert_eq!(write_skew::run().await.unwrap(), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn word_count_follows_a_change() {
    let totals = word_count::run().await.unwrap();
    assert_eq!(totals["to"], 3);
    assert_eq!(totals["is"], 2);
    // The first version of document `a` no longer counts.
    assert_eq!(totals["or"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalogue_knows_all_offers_of_each_product() {
    for backlog_max in [100, usize::MAX] {
        let report = catalogue::run(2_000, backlog_max).await.unwrap();
        assert_eq!(report.products, 500);
        assert!(!report.delays.is_empty());
        let (loaded, hints, done) = report.time;
        assert!(loaded <= hints && hints <= done, "{report:?}");
        assert!(report.cpu.is_none_or(|(loaded, done)| loaded <= done), "{report:?}");
        // Each of the eight loaders may be admitted when the backlog is at the bound.
        assert!(report.backlog <= backlog_max.saturating_add(16), "{}", report.backlog);
    }
}

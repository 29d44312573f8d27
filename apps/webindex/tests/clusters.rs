//! Tests of clusters: which pages share one, which page is shown, and what an election costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod site;

use std::fs;

use webindex::generate::Site;

use crate::site::{Fixture, declares, moved, page};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stubs_with_equal_words_do_not_join_their_targets() {
    let fixture = Fixture::new().await;
    let site = fixture.site.path().join("site");
    let made = Site { pages: 120, seed: 1 }.write(&site).unwrap();
    assert!(made.redirects > 3, "{made:?}");
    fixture.load_from(&site).await;
    assert_eq!(fixture.index.stats().await.unwrap().searchable, made.texts);
    fixture.rank().await;
    assert_eq!(fixture.index.stats().await.unwrap().searchable, made.texts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_page_is_found_under_its_new_address_at_once() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", page("Vacuum", "garbage-collect a database", &[]));
    fixture.write("x.html", page("X", "links to it", &["a.html"]));
    fixture.load().await;
    fixture.rank().await;
    fs::rename(fixture.site.path().join("a.html"), fixture.site.path().join("z.html")).unwrap();
    fixture.write("a.html", moved("z.html"));
    fixture.load().await;
    assert_eq!(fixture.found("\"garbage collect\"").await, ["z.html"]);
    assert_eq!(fixture.canonical("a.html").await, "z.html");
    // Links to the old address count for the new one.
    assert_eq!((fixture.in_links("z.html").await, fixture.in_links("a.html").await), (1, 1));
    assert!(fixture.found("\"to a.html\"").await.contains(&"z.html".to_owned()));
    // The redirect is the old address's only link, so the new address gets its rank.
    fixture.rank().await;
    let rank = async |name: &str| {
        fixture.index.page(&format!("{}{name}", site::BASE)).await.unwrap().unwrap().rank
    };
    assert!(rank("z.html").await > rank("a.html").await);
    assert_eq!(fixture.found("\"garbage collect\"").await, ["z.html"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_page_is_shown_however_popular_the_declaring_one_is() {
    let fixture = Fixture::new().await;
    fixture.write("a.html", declares("z.html", "an old version"));
    fixture.write("z.html", page("Z", "the newest version", &[]));
    for n in 0..5 {
        fixture.write(&format!("x{n}.html"), page("X", &format!("page {n}"), &["a.html"]));
    }
    // Equal texts that declare different pages: neither the text nor the declaration joins
    // them.
    fixture.write("b.html", declares("y.html", "an old version"));
    fixture.write("y.html", page("Y", "another page", &[]));
    fixture.load().await;
    fixture.rank().await;
    assert_eq!(fixture.cluster("a.html").await, ["z.html", "a.html"]);
    assert_eq!(fixture.cluster("b.html").await, ["y.html", "b.html"]);
    // A page that declares itself has its own text.
    fixture.write("b.html", declares("b.html", "an old version"));
    fixture.load().await;
    assert_eq!(fixture.found("\"old version\"").await, ["b.html"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_stand_for_an_address_that_is_not_stored_share_a_cluster() {
    let fixture = Fixture::new().await;
    fixture.write("b.html", declares("login.html", "the members' news"));
    fixture.write("c.html", moved("login.html"));
    fixture.write("x.html", page("X", "links", &["c.html"]));
    fixture.load().await;
    assert_eq!(fixture.cluster("c.html").await, ["b.html", "c.html"]);
    fixture.rank().await;
    assert_eq!(fixture.cluster("c.html").await, ["c.html", "b.html"], "the higher rank");
    fixture.write("login.html", page("Login", "who are you", &[]));
    fixture.load().await;
    assert_eq!(fixture.cluster("c.html").await, ["login.html", "c.html", "b.html"]);
    // The page is stored, but no longer a page of the index.
    fixture.write("login.html", "no markup");
    let report = fixture.load().await;
    assert_eq!(report.warnings, 1, "{report:?}");
    assert_eq!(fixture.cluster("c.html").await, ["c.html", "b.html"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_and_circles_follow_what_becomes_of_each_link() {
    let fixture = Fixture::new().await;
    for n in 1..6 {
        fixture.write(&format!("{n}.html"), moved(&format!("{}.html", n - 1)));
    }
    fixture.write("0.html", page("End", "the end of a chain", &[]));
    fixture.write("equal.html", page("End", "the end of a chain", &[]));
    fixture.load().await;
    let all = ["0.html", "equal.html", "1.html", "2.html", "3.html", "4.html", "5.html"];
    assert_eq!(fixture.cluster("5.html").await, all);
    // The last page redirects to the middle. This makes a circle of three, and three pages
    // lead into it.
    fixture.write("0.html", moved("2.html"));
    fixture.load().await;
    assert_eq!(fixture.cluster("5.html").await, [all[0], all[2], all[3], all[4], all[5], all[6]]);
    assert_eq!(fixture.cluster("equal.html").await, ["equal.html"]);
    // Open the circle in its middle.
    fixture.write("1.html", page("One", "a page of its own", &[]));
    fixture.load().await;
    assert_eq!(fixture.cluster("5.html").await[0], "1.html");
    assert_eq!(fixture.cluster("0.html").await.len(), 6);
    // Remove that page, too.
    assert!(fixture.index.remove(&format!("{}1.html", site::BASE)).await.unwrap());
    fixture.verified().await;
    assert_eq!(fixture.canonical("5.html").await, "0.html");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_redirects_follow_their_target() {
    let fixture = Fixture::new().await;
    for n in 0..450 {
        fixture.write(&format!("{n}.html"), moved("login.html"));
    }
    fixture.write("login.html", page("Login", "who are you", &[]));
    fixture.load().await;
    assert_eq!(fixture.cluster("7.html").await.len(), 451);
    fixture.write("login.html", page("Login", "who are you today", &[]));
    fixture.load().await;
    assert_eq!(fixture.cluster("7.html").await.len(), 451);
    assert_eq!(fixture.found("who").await, ["login.html"]);
    assert!(fixture.index.remove(&format!("{}login.html", site::BASE)).await.unwrap());
    fixture.verified().await;
    assert_eq!(fixture.cluster("7.html").await.len(), 450);
}

/// Loads and ranks equal pages. Returns how many cells the database has read.
async fn reads_for_equal_pages(pages: usize) -> u64 {
    let fixture = Fixture::new().await;
    for n in 0..pages {
        fixture.write(&format!("{n}.html"), page("404", "Not found.", &[]));
    }
    let reads = || {
        let entries = fixture.index.database().stats().entries();
        entries.into_iter().find(|(name, _)| *name == "reads").unwrap().1
    };
    fixture.load().await;
    fixture.rank().await;
    assert_eq!(fixture.found("not").await.len(), 1);
    reads()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_pages_cost_linear_time() {
    let (some, more) = (reads_for_equal_pages(100).await, reads_for_equal_pages(400).await);
    assert!(more < 5 * some, "{some} reads for 100 equal pages, {more} for 400");
}

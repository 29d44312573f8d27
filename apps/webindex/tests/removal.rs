//! Tests of pages that leave the index: files that are no longer pages, files that are gone,
//! single pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod site;

use std::fs;

use webindex::address::Base;
use webindex::{LoadOptions, Mirror, MirrorReport, Progress};

use crate::site::{BASE, Fixture, page};

fn mirroring(mirror: Mirror) -> LoadOptions {
    LoadOptions { mirror: Some(mirror), ..LoadOptions::default() }
}

/// Loads a site of `pages` pages, each of which is found by the word `page`.
async fn loaded(pages: usize) -> Fixture {
    let fixture = Fixture::new().await;
    for n in 0..pages {
        fixture.write(&format!("{n}.html"), page("P", &format!("page {n}"), &["0.html"]));
    }
    fixture.load().await;
    fixture
}

impl Fixture {
    fn delete(&self, name: &str) {
        fs::remove_file(self.site.path().join(name)).unwrap();
    }

    async fn mirror(&self, options: LoadOptions) -> MirrorReport {
        self.load_with(self.site.path(), &options).await.mirror.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_page_any_more_takes_its_page_out() {
    let fixture = loaded(6).await;
    fixture.write("1.html", "");
    fixture.write("2.html", b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00");
    fixture.write("3.html", "<meta name=robots content=noindex><p>page 3");
    fs::File::create(fixture.site.path().join("4.html")).unwrap().set_len(17 << 20).unwrap();
    let report = fixture.load().await;
    assert_eq!((report.retracted, report.loaded, report.warnings), (3, 1, 4), "{report:?}");
    assert!(report.skipped.iter().any(|skipped| skipped.reason.contains("noindex")));
    assert_eq!(fixture.found("page").await.len(), 2);
    assert_eq!(fixture.in_links("0.html").await, 1, "from the one other page that is left");
    let again = fixture.load().await;
    assert_eq!((again.retracted, again.unchanged, again.warnings), (0, 3, 4), "{again:?}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_read_leaves_its_page_alone() {
    let fixture = loaded(2).await;
    fixture.delete("1.html");
    let path = fixture.site.path().join("1.html");
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    let report = fixture.load_with(fixture.site.path(), &mirroring(Mirror::All)).await;
    assert_eq!(report.skipped[0].path, path.display().to_string());
    let mirror = report.mirror.unwrap();
    assert_eq!(mirror.removed, 0);
    assert!(mirror.refused.unwrap().contains("1.html"), "it names what was not read");
    assert_eq!(fixture.found("page").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirroring_removes_pages_whose_files_are_gone() {
    let fixture = loaded(20).await;
    fixture.delete("7.html");
    fixture.delete("8.html");
    assert_eq!(fixture.load().await.mirror, None);
    assert_eq!(fixture.found("page").await.len(), 20, "nobody asked for it");
    let mirror = fixture.mirror(mirroring(Mirror::ATenth)).await;
    assert_eq!((mirror.stored, mirror.gone, mirror.removed, mirror.refused), (20, 2, 2, None));
    assert_eq!(fixture.found("page").await.len(), 18);
    assert_eq!(fixture.in_links("0.html").await, 17);
    // The links' target is now known only by its links, and is left alone.
    fixture.delete("0.html");
    let mirror = fixture.mirror(mirroring(Mirror::ATenth)).await;
    assert_eq!((mirror.stored, mirror.removed), (18, 1));
    let mirror = fixture.mirror(mirroring(Mirror::ATenth)).await;
    assert_eq!((mirror.stored, mirror.gone, mirror.refused), (17, 0, None));
    assert_eq!(fixture.index.stats().await.unwrap().edges, 17);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirroring_is_refused_where_files_may_have_been_missed() {
    let fixture = loaded(20).await;
    for name in ["7.html", "8.html", "9.html"] {
        fixture.delete(name);
    }
    let refused = async |options: LoadOptions, why: &str| {
        let mirror = fixture.mirror(options).await;
        assert_eq!(mirror.removed, 0);
        assert!(mirror.refused.as_ref().unwrap().contains(why), "{mirror:?}");
    };
    refused(mirroring(Mirror::ATenth), "3 of 20").await;
    refused(LoadOptions { limit: Some(16), ..mirroring(Mirror::All) }, "--limit").await;
    let exclude = vec!["1.html".to_owned()];
    refused(LoadOptions { exclude, ..mirroring(Mirror::All) }, "--exclude").await;
    let empty = tempfile::tempdir().unwrap();
    let report = fixture.load_with(empty.path(), &mirroring(Mirror::All)).await;
    assert!(report.mirror.unwrap().refused.unwrap().contains("no page"));
    assert_eq!((report.found, fixture.found("page").await.len()), (0, 20));
    let stopped = Progress::default();
    stopped.stop();
    let (base, options) = (Base::parse(BASE).unwrap(), mirroring(Mirror::All));
    let report = fixture.index.load(fixture.site.path(), &base, &options, &stopped).await.unwrap();
    assert!(report.mirror.unwrap().refused.unwrap().contains("stopped"));
    // A limit that cuts nothing and an excluded name that matches nothing do not prevent the
    // removal.
    let exclude = vec!["nosuch".to_owned()];
    let options = LoadOptions { limit: Some(17), exclude, ..mirroring(Mirror::All) };
    let report = fixture.load_with(fixture.site.path(), &options).await;
    assert_eq!(report.unmatched, ["nosuch"]);
    assert_eq!(report.mirror.unwrap().removed, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirroring_ends_where_the_base_does() {
    let fixture = Fixture::new().await;
    for name in ["docs/a.html", "docs/b.html", "docs2/c.html", "docs.html"] {
        fixture.write(name, page("P", &format!("page {name}"), &[]));
    }
    fixture.load().await;
    let base = Base::parse(&format!("{BASE}docs/")).unwrap();
    fixture.delete("docs/b.html");
    let (dir, options) = (fixture.site.path().join("docs"), mirroring(Mirror::All));
    let report = fixture.index.load(&dir, &base, &options, &Progress::default()).await.unwrap();
    let mirror = report.mirror.unwrap();
    assert_eq!((mirror.stored, mirror.removed), (2, 1), "{mirror:?}");
    fixture.verified().await;
    let mut found = fixture.found("page").await;
    found.sort();
    assert_eq!(found, ["docs.html", "docs/a.html", "docs2/c.html"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_removed_by_its_address() {
    let fixture = loaded(3).await;
    let url = format!("{BASE}1.html");
    assert!(fixture.index.remove(&format!("{url}#top")).await.unwrap());
    fixture.verified().await;
    assert_eq!(fixture.index.page(&url).await.unwrap(), None);
    assert_eq!(fixture.found("page").await.len(), 2);
    assert!(!fixture.index.remove(&url).await.unwrap(), "it is gone already");
    assert!(fixture.index.remove("no URL").await.is_err());
    // Loading again brings the page back.
    assert_eq!(fixture.load().await.loaded, 1);
    assert_eq!(fixture.found("page").await.len(), 3);
}

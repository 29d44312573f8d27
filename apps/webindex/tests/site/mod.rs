//! A site in a directory, and an index that loads it. The tests of the index share this
//! module.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use percolator::{Percolator, WorkerOptions};
use webindex::address::Base;
use webindex::{LoadOptions, LoadReport, Progress, WebIndex};

pub(crate) const BASE: &str = "https://site.example/";

/// A directory to load, and the index into which it is loaded.
pub(crate) struct Fixture {
    pub(crate) site: tempfile::TempDir,
    pub(crate) search: tempfile::TempDir,
    pub(crate) index: WebIndex,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let (site, search) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Percolator::in_memory().await.unwrap();
        let workers = WorkerOptions::default();
        let index = WebIndex::open(db, search.path(), workers).await.unwrap();
        Fixture { site, search, index }
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.site.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) async fn load(&self) -> LoadReport {
        self.load_from(self.site.path()).await
    }

    pub(crate) async fn load_from(&self, dir: &Path) -> LoadReport {
        self.load_with(dir, &LoadOptions::default()).await
    }

    /// Loads, waits until idle, and verifies the index.
    pub(crate) async fn load_with(&self, dir: &Path, options: &LoadOptions) -> LoadReport {
        let base = Base::parse(BASE).unwrap();
        let progress = Progress::default();
        let mut report = self.index.load(dir, &base, options, &progress).await.unwrap();
        self.verified().await;
        self.index.name_refused(&mut report).await.unwrap();
        report
    }

    /// Waits until idle, and verifies the index.
    pub(crate) async fn verified(&self) {
        let idle = self.index.wait(None).await.unwrap();
        assert_eq!(idle.set_aside, [], "no observer keeps failing");
        let report = self.index.verify().await.unwrap();
        assert!(report.is_ok(), "{:#?}", report.named);
    }

    pub(crate) async fn canonical(&self, name: &str) -> String {
        let page = self.index.page(&format!("{BASE}{name}")).await.unwrap().unwrap();
        page.canonical.strip_prefix(BASE).unwrap().to_owned()
    }

    /// The pages that a search finds, by their names below the base.
    pub(crate) async fn found(&self, query: &str) -> Vec<String> {
        let hits = self.index.search(query, 100).await.unwrap();
        hits.into_iter().map(|hit| hit.url.strip_prefix(BASE).unwrap().to_owned()).collect()
    }

    /// The members of a page's cluster, the shown one first.
    pub(crate) async fn cluster(&self, name: &str) -> Vec<String> {
        let cluster = self.index.cluster(&format!("{BASE}{name}")).await.unwrap().unwrap();
        let members = cluster.members.into_iter();
        members.map(|member| member.url.strip_prefix(BASE).unwrap().to_owned()).collect()
    }

    pub(crate) async fn rank(&self) {
        self.index.rank(&Progress::default()).await.unwrap();
        self.verified().await;
    }

    pub(crate) async fn in_links(&self, name: &str) -> usize {
        self.index.page(&format!("{BASE}{name}")).await.unwrap().unwrap().in_links
    }
}

/// A page with a title, a text and links.
pub(crate) fn page(title: &str, text: &str, links: &[&str]) -> String {
    let mut html = format!("<!doctype html><title>{title}</title><p>{text}");
    for link in links {
        write!(html, " <a href=\"{link}\">to {link}</a>").unwrap();
    }
    html
}

/// A page that redirects. All such pages have the same text.
pub(crate) fn moved(to: &str) -> String {
    format!("<title>Moved</title><meta http-equiv=refresh content=\"0; url={to}\"><p>It has moved.")
}

/// A page that declares another one as canonical.
pub(crate) fn declares(to: &str, text: &str) -> String {
    format!("<title>Declares</title><link rel=canonical href=\"{to}\"><p>{text}")
}

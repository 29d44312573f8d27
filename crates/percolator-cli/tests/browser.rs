//! Tests the console in a real browser. Starts a web index that a load is filling and an empty
//! database, each with a console. Runs `tests/browser/console.test.mjs` on them, with Playwright
//! and the system's Chromium. Prints SKIPPED where node, Chromium or the packages are not
//! installed:
//!
//! ```text
//! npm ci --prefix crates/percolator-cli/tests/browser
//! PERCOLATOR_SCREENSHOTS=docs/images cargo test -p percolator-cli --test browser
//! ```

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use percolator::watch::{Sampling, Watch};
use percolator::{Change, Column, Error, Observer, OpenOptions, Options, Percolator, Registration};
use percolator::{Table, Transaction, WorkerOptions};
use percolator_cli::WebPanel;
use percolator_console::{Console, Listening, Recorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use webindex::address::Base;
use webindex::generate::Site;
use webindex::{LoadOptions, Progress, WebIndex};

const TEXT: Column = Column::literal("doc:text");
/// Text with which a hostile page tries to make a browser run code.
const HOSTILE: &str =
    "<img src=https://evil.example/x onerror=window.pwned=1><script>alert(1)</script>";
const BASE: &str = "https://whales.example/";

/// An observer that fails on the text `bad` until its cause is mended.
struct Picky(Arc<AtomicBool>);

impl Observer for Picky {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        if !self.0.load(Ordering::Relaxed) && change.value(tx).await?.is_some_and(|v| v == "bad") {
            return Err(Error::application(format!("cannot read {HOSTILE}")));
        }
        Ok(())
    }
}

/// Returns the path of Chromium, if node and the packages are installed, too.
fn chromium(tests: &Path) -> Result<PathBuf, &'static str> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        return Err("node is not installed");
    }
    if !tests.join("node_modules/playwright-core").is_dir() {
        return Err("run `npm ci --prefix crates/percolator-cli/tests/browser` first");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|file| file.is_file())
        .ok_or("Chromium is not installed")
}

/// A database in a directory, its recorder, and its console.
async fn open(dir: &Path) -> (Percolator, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::new());
    let watch = Some(recorder.clone() as Arc<dyn Watch>);
    let client = Options { watch, trace: Sampling::All, ..Options::default() };
    let options = OpenOptions { client, ..OpenOptions::default() };
    (Percolator::open_with(dir, options).await.unwrap(), recorder)
}

fn console(db: &Percolator, recorder: Arc<Recorder>) -> Console {
    Console::new(db).recorder(recorder).learn(true)
}

/// Makes pages about whales that link to each other, one of them with a hostile title and text.
fn write_pages(dir: &Path) {
    let escaped = HOSTILE.replace('<', "&lt;");
    for n in 0..30 {
        let page = format!(
            "<title>Whale {n}</title><p>The whale number {n} swims with \
             <a href=whale{}.html>another whale</a> in the sea of {n} waves.",
            (n + 1) % 30
        );
        std::fs::write(dir.join(format!("whale{n}.html")), page).unwrap();
    }
    let page = format!(
        "<title>hostile {escaped}</title><p>hostile text {escaped} \
         <a href=whale1.html>{escaped}</a><a href='javascript:window.pwned=1'>hostile</a>"
    );
    std::fs::write(dir.join("hostile.html"), page).unwrap();
}

/// Answers `/change` and `/break`. `/change` writes the cell that the inspectors watch. `/break`
/// makes an observer give up on a cell, and then mends the cause.
async fn control(listener: TcpListener, db: Percolator, live: Table, mended: Arc<AtomicBool>) {
    let writes = AtomicUsize::new(0);
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.unwrap_or(0);
        if request[..read].starts_with(b"GET /break") {
            mended.store(false, Ordering::Relaxed);
            db.transact(async |mut tx| tx.set(&live, "broken", &TEXT, "bad")).await.unwrap();
            while db.set_aside().await.unwrap().is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            mended.store(true, Ordering::Relaxed);
        } else {
            let n = writes.fetch_add(1, Ordering::Relaxed).to_string();
            db.transact(async |mut tx| tx.set(&live, "counter", &TEXT, n.clone())).await.unwrap();
        }
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    }
}

/// Loads a generated site slowly, again and again, until it is aborted.
async fn keep_loading(index: Arc<WebIndex>, dir: PathBuf) {
    let base = Base::parse("https://example.org/").unwrap();
    let options = LoadOptions { pages_per_s: Some(40.0), ..LoadOptions::default() };
    loop {
        index.load(&dir, &base, &options, &Progress::default()).await.unwrap();
    }
}

fn run(tests: &Path, chromium: &Path, full: &Listening, empty: &Listening, control: &str) {
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "console.test.mjs"]).current_dir(tests);
    node.env("CHROMIUM", chromium).env("HOSTILE", HOSTILE);
    node.env("FULL", full.url()).env("EMPTY", empty.url()).env("CONTROL", control);
    if let Some(dir) = std::env::var_os("PERCOLATOR_SCREENSHOTS") {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::create_dir_all(root.join(&dir)).unwrap();
        node.env("SHOTS", root.join(dir).canonicalize().unwrap());
    }
    assert!(node.status().unwrap().success(), "the console's tests in the browser failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_in_a_browser() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let chromium = match chromium(&tests) {
        Ok(found) => found,
        Err(why) => {
            println!("SKIPPED: the console in a browser: {why}");
            return;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let (site, whales) = (dir.path().join("site"), dir.path().join("whales"));
    // Its load takes five minutes, longer than all tests. A recrawl would delete whales.
    Site { pages: 12_000, seed: 1 }.write(&site).unwrap();
    std::fs::create_dir(&whales).unwrap();
    write_pages(&whales);

    let (db, recorder) = open(&dir.path().join("full")).await;
    let search = dir.path().join("search");
    let index = WebIndex::open(db.clone(), &search, WorkerOptions::default()).await.unwrap();
    let index = Arc::new(index);
    let (base, options) = (Base::parse(BASE).unwrap(), LoadOptions::default());
    index.load(&whales, &base, &options, &Progress::default()).await.unwrap();
    let (live, mended) = (db.table("live").await.unwrap(), Arc::new(AtomicBool::new(true)));
    let picky = Registration::strong("picky", "live", &TEXT, Picky(mended.clone()));
    let workers = WorkerOptions {
        failures_max: 2,
        failure_delay: std::time::Duration::from_millis(10),
        ..WorkerOptions::default()
    };
    let workers = db.observe(vec![picky], workers).await.unwrap();
    let set = async |mut tx: percolator::Attempt| {
        tx.set(&live, "counter", &TEXT, "begin")?;
        tx.set(&live, HOSTILE, &TEXT, HOSTILE)
    };
    db.transact(set).await.unwrap();
    db.wait_idle(None).await.unwrap();

    let panel = Arc::new(WebPanel::new(index.clone()));
    let full = console(&db, recorder).panel(panel).title("whales").open_search(true);
    let full = full.listen("127.0.0.1:0").await.unwrap();
    let (nothing, recorder) = open(&dir.path().join("empty")).await;
    let empty = console(&nothing, recorder).listen("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let controlled = tokio::spawn(control(listener, db.clone(), live, mended));
    let loading = tokio::spawn(keep_loading(index.clone(), site));

    let ran =
        tokio::task::spawn_blocking(move || run(&tests, &chromium, &full, &empty, &url)).await;
    controlled.abort();
    assert!(!loading.is_finished(), "the load has failed: {:?}", loading.await);
    loading.abort();
    workers.stop().await;
    index.stop().await;
    db.close().await.unwrap();
    ran.unwrap();
}

//! Measures the search index: `cargo run --release -p webindex --example search_rate DIR [NAME]`.
//!
//! Parses all pages below DIR (without the entry NAME), and applies them in batches to an
//! index in a temporary directory. Then prints the rates of parsing and of applying (commits
//! included), the size on disk, and the times of some searches.

#![allow(clippy::print_stdout, reason = "the numbers are what this program is for")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use url::Url;
use webindex::address::Base;
use webindex::html;
use webindex::search::{IndexedPage, SearchIndex, Update};
use webindex::walk::Walk;

/// The batch size of an exporter that commits once a second.
const BATCH_PAGES: usize = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: search_rate DIR [EXCLUDED_NAME]")?);
    let exclude = args.next();
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    let base = Base::parse("https://doc.example.org/")?;
    let scratch = tempfile::tempdir()?;
    let index = SearchIndex::open(scratch.path())?;
    let mut applying = Duration::ZERO;
    let (mut batch, mut pages, mut text_bytes, mut slowest) = (Vec::new(), 0, 0, Duration::ZERO);
    let mut walk = Walk::new(&dir, &base, &exclude)?.flatten().peekable();
    while let Some(found) = walk.next() {
        let url = Url::parse(&found.url)?;
        if let Ok(page) = html::parse(&url, &std::fs::read(&found.path)?) {
            text_bytes += page.text.len();
            pages += 1;
            let (title, text) = (page.title, page.text);
            let page = IndexedPage { title, text, ..IndexedPage::default() };
            batch.push(Update { url: found.url, seq: 1, page: Some(page) });
        }
        if batch.len() == BATCH_PAGES || walk.peek().is_none() {
            let start = Instant::now();
            index.apply(std::mem::take(&mut batch))?;
            slowest = slowest.max(start.elapsed());
            applying += start.elapsed();
        }
    }
    let rate = f64::from(pages) / applying.as_secs_f64();
    let megabytes = text_bytes as f64 / 1e6 / applying.as_secs_f64();
    println!("{pages} pages applied at {rate:.0} pages/s, {megabytes:.1} MB of text/s");
    println!("slowest batch of {BATCH_PAGES}: {} ms", slowest.as_millis());
    for query in ["hash map insert", "\"borrow checker\"", "trait object safety"] {
        let start = Instant::now();
        let hits = index.search(query, 10)?;
        let first = hits.first().map_or("-", |hit| hit.url.as_str());
        println!(
            "{query}: {} hits in {} us, first {first}",
            hits.len(),
            start.elapsed().as_micros()
        );
    }
    let bytes: u64 = std::fs::read_dir(scratch.path())?
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    println!("{bytes} bytes on disk");
    Ok(())
}

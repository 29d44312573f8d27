//! Measures how fast pages are parsed: `cargo run --release -p webindex --example parse_rate DIR`.
//!
//! Prints one line per run: pages, bytes, links, and megabytes per second of parsing, without
//! reading the files. The best of several runs shows the cost of the code.

#![allow(clippy::print_stdout, reason = "the numbers are what this program is for")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use url::Url;
use webindex::address::Base;
use webindex::html;
use webindex::walk::Walk;

const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: parse_rate DIR [EXCLUDED_NAME]")?);
    let exclude = args.next();
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    let base = Base::parse("https://doc.example.org/")?;
    for _ in 0..RUNS {
        let mut spent = Duration::ZERO;
        let (mut pages, mut skipped, mut problems) = (0_usize, 0_usize, 0_usize);
        let (mut bytes, mut text, mut hyperlinks, mut targets) = (0, 0, 0, 0);
        for found in Walk::new(&dir, &base, &exclude)? {
            let Ok(found) = found else {
                problems += 1;
                continue;
            };
            let content = std::fs::read(&found.path)?;
            let url = Url::parse(&found.url)?;
            let start = Instant::now();
            let parsed = html::parse(&url, &content);
            spent += start.elapsed();
            bytes += content.len();
            match parsed {
                Ok(page) => {
                    pages += 1;
                    text += page.text.len();
                    hyperlinks += page.hyperlinks;
                    targets += page.links.len();
                }
                Err(_) => skipped += 1,
            }
        }
        let rate = bytes as f64 / 1e6 / spent.as_secs_f64();
        println!(
            "{pages} pages, {skipped} skipped, {problems} problems, {bytes} bytes, {text} bytes \
             of text, {hyperlinks} links, {targets} targets, {rate:.1} MB/s"
        );
    }
    Ok(())
}

//! Holds an embedded web index open until its input ends. Its observers run, and nobody uses
//! it: `cargo run --release -p webindex --example hold DIR`. `scripts/idle.sh --embedded`
//! measures it.

#![allow(clippy::print_stdout, reason = "it says when it is ready")]

use std::io::Read;
use std::path::PathBuf;

use percolator::{Percolator, WorkerOptions};
use webindex::WebIndex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("usage: hold DIR")?);
    tokio::runtime::Runtime::new()?.block_on(async {
        let db = Percolator::open(&dir).await?;
        let search = dir.join(webindex::SEARCH_DIR);
        let index = WebIndex::open(db, &search, WorkerOptions::default()).await?;
        println!("ready");
        let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        input.await??;
        index.stop().await;
        Ok(())
    })
}

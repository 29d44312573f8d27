//! Figure 2 of the paper: clusters documents by the hash of their contents. Loaders run
//! concurrently, and snapshot isolation ensures that each content gets exactly one canonical
//! URL.
//!
//! Run it with `cargo run -p percolator --example dedup`.

use percolator::{Bytes, Column, Percolator, Result, Table};

const CONTENTS: Column = Column::literal("contents");
const CANONICAL_URL: Column = Column::literal("canonical-url");

/// The outcome of loading a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The document is the first one with its content.
    New,
    /// The document is a duplicate of the one with this URL.
    Duplicate(Bytes),
}

/// The paper's `UpdateDocument`.
async fn update_document(
    db: &Percolator,
    documents: &Table,
    duplicates: &Table,
    url: &'static str,
    contents: &'static str,
) -> Result<Updated> {
    // The paper uses a cryptographic hash. The contents of this example are short enough to be
    // keys themselves.
    let hash = contents;
    db.transact(async |mut tx| {
        tx.set(documents, url, &CONTENTS, contents)?;
        match tx.get(duplicates, hash, &CANONICAL_URL).await? {
            None => {
                // There is no canonical URL yet: claim it. Two loaders that claim it at the
                // same time conflict, and one of them runs again.
                tx.set(duplicates, hash, &CANONICAL_URL, url)?;
                Ok(Updated::New)
            }
            Some(canonical) if canonical == url => Ok(Updated::New),
            Some(canonical) => Ok(Updated::Duplicate(canonical)),
        }
    })
    .await
}

/// Loads documents concurrently, and returns the outcome of each.
pub async fn run() -> Result<Vec<(&'static str, Updated)>> {
    let db = Percolator::in_memory().await?;
    let (documents, duplicates) = (db.table("documents").await?, db.table("dups").await?);
    let crawled = [
        ("http://usenix.org/", "USENIX"),
        ("http://www.usenix.org/", "USENIX"),
        ("http://usenix.org/index.html", "USENIX"),
        ("http://rust-lang.org/", "Rust"),
    ];
    let mut loads = Vec::new();
    for (url, contents) in crawled {
        let (db, documents, duplicates) = (db.clone(), documents.clone(), duplicates.clone());
        loads.push(tokio::spawn(async move {
            let updated = update_document(&db, &documents, &duplicates, url, contents).await?;
            Ok::<_, percolator::Error>((url, updated))
        }));
    }
    let mut results = Vec::new();
    for load in loads {
        results.push(load.await.map_err(percolator::Error::application)??);
    }
    let new = |contents: &str| {
        let of = |url: &str| crawled.iter().any(|(u, c)| *u == url && *c == contents);
        results.iter().filter(|(url, updated)| of(url) && *updated == Updated::New).count()
    };
    assert_eq!((new("USENIX"), new("Rust")), (1, 1), "each content has one canonical URL");
    Ok(results)
}

#[tokio::main]
#[allow(dead_code, clippy::print_stdout, reason = "an example prints, and a test includes it")]
async fn main() -> Result<()> {
    for (url, updated) in run().await? {
        println!("{url:<30} {updated:?}");
    }
    Ok(())
}

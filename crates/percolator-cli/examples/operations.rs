//! Operations on single cells, so many of one kind, for a profiler to look at: `scripts/profile.sh` counts
//! instructions and system calls of each.
//!
//! `cargo run --release -p percolator-cli --example operations -- KIND COUNT`

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bigtable::{Family, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Selection};
use bigtable::{Store, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{Durability, FjallStore};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use percolator::{Bytes, Client, Column, CommitPath, Options, Percolator, RowKey};

/// How many cells there are.
const CELLS: usize = 1000;
const VALUE_BYTES: usize = 100;
/// What our store adds to each version, and how many it puts together.
const STAMP_BYTES: usize = 8;
const PACK_VERSIONS: usize = 4;
const QUALIFIER: &[u8] = b"v";
const COLUMN: Column = Column::literal("v");
const NEWEST: Family = Family::from_static("newest");
const VERSIONS: Family = Family::from_static("versions");
const LOCKS: Family = Family::from_static("locks");

const KINDS: &str = "fjall-get, fjall-insert, fjall-packs, raw-get, get, raw-set-blind, raw-set, tx, \
                     two-mutations, two-phases";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count] = &words[..] else { anyhow::bail!("give KIND and COUNT; kinds: {KINDS}") };
    let count: usize = count.parse().context("COUNT is a number")?;
    let dir = tempfile::tempdir()?;
    let keys: Vec<RowKey> = (0..CELLS).map(|cell| RowKey::from(format!("{cell:024}"))).collect();
    // Every cell has as many versions as there are before a pack is full.
    let loads = CELLS * PACK_VERSIONS;
    match kind.as_str() {
        "fjall-get" | "fjall-insert" | "fjall-packs" => {
            let bare = Bare::open(dir.path())?;
            for number in 0..loads {
                bare.set(&keys[number % CELLS], number, kind == "fjall-packs")?;
            }
            for number in loads..loads + count {
                let key = &keys[number % CELLS];
                match kind.as_str() {
                    "fjall-get" => anyhow::ensure!(bare.newest.get(key.as_bytes())?.is_some()),
                    _ => bare.set(key, number, kind == "fjall-packs")?,
                }
            }
        }
        "raw-get" | "raw-set-blind" | "raw-set" | "two-mutations" => {
            let raw = Raw::open(dir.path()).await?;
            for number in 0..loads {
                raw.operation(kind.replace("raw-get", "raw-set").as_str(), &keys, number).await?;
            }
            for number in loads..loads + count {
                raw.operation(kind, &keys, number).await?;
            }
        }
        "get" | "tx" | "two-phases" => {
            let commit_path =
                if kind == "two-phases" { CommitPath::TwoPhases } else { CommitPath::OneStep };
            transactions(dir.path(), kind == "get", commit_path, &keys, [loads, count]).await?;
        }
        unknown => anyhow::bail!("{unknown} is no kind; there are {KINDS}"),
    }
    Ok(())
}

fn value() -> Bytes {
    Bytes::from(vec![b'v'; VALUE_BYTES])
}

fn store(dir: &Path) -> anyhow::Result<Arc<FjallStore>> {
    let options =
        bigtable_fjall::Options { durability: Durability::Buffered, ..Default::default() };
    Ok(Arc::new(FjallStore::open(dir.join("db"), options)?))
}

/// The engine alone.
struct Bare {
    db: Database,
    newest: Keyspace,
    history: Keyspace,
}

impl Bare {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let db = Database::builder(dir.join("db")).open()?;
        let keyspace = |name: &str| db.keyspace(name, KeyspaceCreateOptions::default);
        let (newest, history) = (keyspace("newest")?, keyspace("history")?);
        Ok(Bare { db, newest, history })
    }

    /// A value, or what a raw write of ours puts: the versions before it as well, or, when they are so many,
    /// these elsewhere.
    fn set(&self, key: &RowKey, number: usize, packs: bool) -> anyhow::Result<()> {
        if !packs {
            return Ok(self.newest.insert(key.as_bytes(), &*value())?);
        }
        let before = number / CELLS % PACK_VERSIONS;
        let versions = |count: usize| vec![b'v'; count * (STAMP_BYTES + VALUE_BYTES)];
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        if before == 0 && number >= CELLS {
            let older = [key.as_bytes(), &number.to_be_bytes()].concat();
            batch.insert(&self.history, older, versions(PACK_VERSIONS));
        }
        batch.insert(&self.newest, key.as_bytes(), versions(before + 1));
        Ok(batch.commit()?)
    }
}

/// A table of our store, without transactions.
struct Raw(Arc<dyn bigtable::Table>);

impl Raw {
    async fn open(dir: &Path) -> anyhow::Result<Self> {
        let groups = vec![
            LocalityGroup::in_memory("locks", OnFull::Refuse { cells_max: CELLS }),
            LocalityGroup::on_disk("newest", Layout::NewestApart),
            LocalityGroup::on_disk("versions", Layout::Versions),
        ];
        Ok(Raw(store(dir)?.open_table("raw", &TableSchema { groups }).await?))
    }

    async fn operation(&self, kind: &str, keys: &[RowKey], number: usize) -> anyhow::Result<()> {
        let key = &keys[number % CELLS];
        let version = Timestamp::new(number as u64 + 1).context("a version")?;
        let set = |family: Family| Mutation::set(family, QUALIFIER, version, value());
        let row = || RowMutation::new(key);
        match kind {
            "raw-get" => {
                let newest = Selection::default().column(NEWEST, QUALIFIER, TimeRange::ALL, 1);
                let found = self.0.read_row(key, &newest).await?;
                anyhow::ensure!(found.newest(&NEWEST, QUALIFIER).is_some());
            }
            "raw-set-blind" => self.0.mutate_row(row().mutation(set(VERSIONS))).await?,
            "raw-set" => self.0.mutate_row(row().mutation(set(NEWEST))).await?,
            _ => {
                let unlock = Mutation::delete(LOCKS, QUALIFIER, TimeRange::at(version));
                self.0.mutate_row(row().mutation(set(LOCKS))).await?;
                self.0.mutate_row(row().mutation(set(NEWEST)).mutation(unlock)).await?;
            }
        }
        Ok(())
    }
}

/// Writes so many cells in transactions of their own, and then does as many operations.
async fn transactions(
    dir: &Path,
    reads: bool,
    commit_path: CommitPath,
    keys: &[RowKey],
    [loads, count]: [usize; 2],
) -> anyhow::Result<()> {
    let db = Percolator::over(store(dir)?, Options::default()).await?;
    let options = Options { commit_path, ..Options::default() };
    let client = Client::open(db.services().clone(), options).await?;
    let table = client.table("cells").await?;
    let writes = if reads { loads } else { loads + count };
    for number in 0..writes {
        let mut tx = client.begin().await?;
        tx.set(&table, &keys[number % CELLS], &COLUMN, value())?;
        tx.commit().await?;
    }
    if reads {
        let snapshot = client.snapshot().await?;
        for number in 0..count {
            anyhow::ensure!(snapshot.get(&table, &keys[number % CELLS], &COLUMN).await?.is_some());
        }
    }
    Ok(())
}

//! Writes stores to be kept, and lists the cells of a store.
//!
//! The stores in `tests/formats` were written by [`store`] and [`webindex`] of their day. These
//! functions may change, so that the stores of a later format hold more. The kept stores do not.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bigtable_fjall::FjallStore;
use percolator::observe::{Observed, Strength};
use percolator::store::{
    Family, Layout, LocalityGroup, PageLimit, Selection, Store, TableSchema, TimeRange,
    table_schema, upkeep_tables,
};
use percolator::{
    Change, Client, Column, Error, Observer, Options, Percolator, Registration, Result, RowRange,
    Transaction, WorkerOptions,
};

use crate::shell::{program, run};

const BAL: Column = Column::literal("bal");
const TEXT: Column = Column::literal("doc:text");
const TITLE: Column = Column::literal("doc:title");
const LENGTH: Column = Column::literal("doc:length");
const QUEUE: Column = Column::literal("doc:queue");

/// A value in a listing that is longer is named by its length and its checksum.
const SHOWN_MAX: usize = 80;

/// The address of the kept web index.
pub(crate) const BASE: &str = "https://fish.example/";

/// Lists every cell of a store that no process has open, in a line each.
pub(crate) fn listing(data: &Path) -> String {
    let store = FjallStore::open(data, bigtable_fjall::Options::default()).unwrap();
    let mut listing = String::new();
    futures::executor::block_on(async {
        for name in store.table_names().await.unwrap() {
            let schema = schema_of(&name);
            let families = schema.groups.iter().flat_map(|group| &group.families);
            let families = families.map(|family| family.family.clone());
            let all =
                |select: Selection, family: Family| select.family(family, TimeRange::ALL, u32::MAX);
            let select = families.fold(Selection::default(), all);
            let table = store.open_table(&name, &schema).await.unwrap();
            let mut left = Some(RowRange::all());
            while let Some(range) = left {
                let page = table.scan(&range, &select, PageLimit::default()).await.unwrap();
                for row in page.rows {
                    for cell in row.cells {
                        let (row, column) = (shown(row.key.as_bytes()), shown(&cell.qualifier));
                        let (family, at) = (cell.family, cell.timestamp.as_u64());
                        let value = shown(&cell.value);
                        writeln!(listing, "{name}\t{row}\t{family}:{column}\t{at}\t{value}")
                            .unwrap();
                    }
                }
                left = page.resume;
            }
        }
    });
    listing
}

fn schema_of(table: &str) -> TableSchema {
    if table.starts_with("percolator.") {
        return TableSchema { groups: vec![LocalityGroup::on_disk("system", Layout::Versions)] };
    }
    table_schema()
}

fn shown(bytes: &[u8]) -> String {
    if bytes.len() > SHOWN_MAX {
        let sum = blake3::hash(bytes).to_hex();
        return format!("<{} bytes, BLAKE3 {}>", bytes.len(), &sum[..16]);
    }
    bytes.escape_ascii().to_string()
}

/// Notes how long a text is.
struct Measure;

impl Observer for Measure {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let text = tx.get(&change.table, &change.row, &TEXT).await?.unwrap_or_default();
        tx.set(&change.table, &change.row, &LENGTH, text.len().to_string())
    }
}

struct Fails;

impl Observer for Fails {
    async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
        Err(Error::application("cannot parse"))
    }
}

/// Writes a store with all kinds of cells into a new directory. Values are collected, deleted, long
/// and packed, in runs and in the journal. There are notifications, acknowledgements, a change that
/// was set aside, and the locks and rollback records of crashed transactions.
pub(crate) fn store(data: &Path) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        // Small buffers, so that a few cells fill them and are written out.
        let options = bigtable_fjall::Options {
            write_buffer_bytes: 8 << 10,
            upkeep_tables: upkeep_tables(),
            ..bigtable_fjall::Options::default()
        };
        let store = FjallStore::open(data, options).unwrap();
        let db = Percolator::over(Arc::new(store.clone()), Options::default()).await.unwrap();
        write_accounts(&db).await.unwrap();
        write_documents(&db).await.unwrap();
        db.close().await.unwrap();
        while runs(data) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        store.close().unwrap();
    });
    let data = data.to_str().unwrap();
    let script = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        fs::write(&file, text).unwrap();
        let tx = ["tx", "--data", data];
        program().args(tx).arg(file).output().unwrap();
    };
    script("begin\nset Kim bal 1\nset Lea bal 2\nprewrite\ncrash\n");
    // Leaves rollback records.
    run(&["locks", "resolve", "--table", "default", "--prefix", "Kim", "--data", data]).with(0);
    script("begin\nset Bob bal 3\nset Joe bal 9\nprewrite\ncommit-primary\ncrash\n");
    script("begin\nset Ann bal 5\nset Eve bal 6\nprewrite\ncrash\n");
    finish(Path::new(data));
}

async fn write_accounts(client: &Client) -> Result<()> {
    let table = client.table("accounts").await?;
    let set = async |row: &[u8], column: &Column, value: Vec<u8>| {
        let (row, value) = (row.to_vec(), value);
        client.transact(async |mut tx| tx.set(&table, row.clone(), column, value.clone())).await
    };
    let delete = async |row: &str| {
        client.transact(async |mut tx| tx.delete(&table, row.to_owned(), &BAL)).await
    };
    set(b"collected", &BAL, b"first".to_vec()).await?;
    set(b"collected", &BAL, b"second".to_vec()).await?;
    set(b"gone", &BAL, b"collected with its deletion".to_vec()).await?;
    delete("gone").await?;
    client.gc(Duration::ZERO).await?;

    for n in 0..40 {
        set(b"hot", &BAL, format!("version {n} {}", "of a long history ".repeat(10)).into())
            .await?;
    }
    for n in 0..2 {
        set(format!("large-{n}").as_bytes(), &BAL, format!("{n} ").repeat(2200).into()).await?;
    }
    set(b"short", &BAL, vec![b'x'; 1024]).await?;
    set(b"long", &BAL, vec![b'x'; 1025]).await?;
    set(b"\x00\xff", &Column::new(b"doc:\xff\x00".to_vec())?, vec![0, 1, 255]).await?;
    set(b"empty", &BAL, Vec::new()).await?;
    set(b"Ann", &BAL, b"1".to_vec()).await?;
    set(b"Ann", &BAL, b"2".to_vec()).await?;
    set(b"deleted", &BAL, b"1".to_vec()).await?;
    delete("deleted").await?;
    Ok(())
}

async fn write_documents(client: &Client) -> Result<()> {
    let table = client.table("docs").await?;
    let set = async |row: &str, column: &Column, value: &str| {
        client.transact(async |mut tx| tx.set(&table, row, column, value)).await
    };
    let queue = Observed {
        table: "docs".to_owned(),
        column: QUEUE,
        observer: "queue".to_owned(),
        strength: Strength::Weak,
    };
    client.declare(&[queue]).await?;
    let observers = vec![
        Registration::strong("measure", "docs", &TEXT, Measure),
        Registration::strong("fails", "docs", &TITLE, Fails),
    ];
    let options = WorkerOptions { failures_max: 1, ..WorkerOptions::default() };
    let workers = client.observe(observers, options).await?;
    set("a", &TEXT, "to be").await?;
    set("b", &TEXT, "or not").await?;
    set("a", &TITLE, "Hamlet").await?;
    client.wait_idle(None).await?;
    workers.stop().await;
    // These changes wait for the observers.
    set("b", &TEXT, "or not to be").await?;
    set("c", &TEXT, "that is the question").await?;
    client.transact(async |mut tx| tx.delete(&table, "a", &TEXT)).await?;
    client.transact(async |mut tx| tx.notify(&table, "c", &QUEUE)).await
}

/// Writes a store with a web index into a new directory.
pub(crate) fn webindex(data: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let page = |name: &str, body: &str| {
        let page = format!("<title>{name}</title><p>{body}");
        fs::write(dir.path().join(format!("{name}.html")), page).unwrap();
    };
    let work = |command: &[&str]| {
        let all = [&["webindex"], command, &["--data", data.to_str().unwrap()]].concat();
        run(&all).with(0);
    };
    let site = dir.path().to_str().unwrap();
    page("cod", "A long fish. <a href=ray.html>a flat one</a> <a href=eel.html>thin</a>");
    page("ray", "A flat fish. <a href=cod.html>long</a> <a href=copy.html>the copy</a>");
    page("eel", "A thin fish, as its copy says.");
    page("copy", "A thin fish, as its copy says.");
    page("gone", "A fish that is removed again. <a href=cod.html>long</a>");
    page("moved", "<meta http-equiv=refresh content='0; url=ray.html'>");
    work(&["load", site, "--base", BASE]);
    work(&["rank"]);
    page("cod", "A very long fish. <a href=ray.html>a very flat one</a>");
    work(&["load", site, "--base", BASE]);
    work(&["remove", &format!("{BASE}gone.html")]);
    finish(data);
}

/// Closes a store properly, and removes what needs not be kept: the locks of processes, and the
/// zeroes at the ends of journals.
fn finish(data: &Path) {
    FjallStore::open(data, bigtable_fjall::Options::default()).unwrap().close().unwrap();
    for path in files(data) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if ["LOCK", "lock", "owner.sock"].contains(&name) {
            fs::remove_file(&path).unwrap();
        } else if name.ends_with(".jnl") {
            let mut journal = fs::read(&path).unwrap();
            let end = journal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            journal.truncate(end);
            fs::remove_file(&path).unwrap();
            fs::write(&path, journal).unwrap();
        }
    }
}

/// How many kinds of files with cells there are: runs, and files of large values.
fn runs(data: &Path) -> usize {
    let is_run = |path: &PathBuf| {
        let folder = path.parent().unwrap().file_name().unwrap();
        folder == "blobs"
            || (folder == "tables" && !path.starts_with(data.join("engine/keyspaces/0")))
    };
    let folders = files(data).into_iter().filter(is_run);
    let folders: BTreeSet<PathBuf> = folders.map(|path| path.parent().unwrap().into()).collect();
    folders.len()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let is_dir = entry.file_type().unwrap().is_dir();
            if is_dir { &mut left } else { &mut files }.push(entry.path());
        }
    }
    files
}

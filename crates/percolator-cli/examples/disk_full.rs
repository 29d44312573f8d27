//! Writes and reads rows while a disk fails and recovers, then reads every acknowledged row back.
//! `scripts/disk-full.sh` runs this program and supplies the commands that make the disk fail.
//!
//! ```text
//!   disk_full STORE BREAK HEAL     STORE: bigtable://HOST:PORT/PROJECT/INSTANCE, or a directory
//! ```
//!
//! `BREAK` and `HEAL` are shell commands; in them `$DISK_FULL_PID` is the number of this process.
//! The program prints its result as one line. It exits with status 1 if a row is lost, a read
//! fails, writes do not resume, or no read completes while writes are refused.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program of its own")]

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bigtable::{Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation, Selection, Store};
use bigtable::{Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{FjallStore, Options};
use bigtable_grpc::{Address, ClientOptions, GrpcStore};

const CELLS: Family = Family::from_static("cells");
const VALUE_BYTES: u64 = 64 << 10;
/// Rows that are written before the disk fails, and again after it has recovered.
const CALM_ROWS: u64 = 50;
/// The most rows up to which the program writes while it waits for the disk to refuse one.
const ROWS_MAX: u64 = 600;
/// How long reads are counted while writes are refused.
const REFUSING: Duration = Duration::from_secs(3);
/// How long writes may take to resume.
const RESUMING_MAX: Duration = Duration::from_secs(30);
const READERS: u64 = 2;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Shared state of the writer and the readers: what may be read, and what the readers counted.
#[derive(Debug, Default)]
struct Reads {
    acknowledged: AtomicU64,
    refusing: AtomicBool,
    over: AtomicBool,
    count: AtomicU64,
    while_refusing: AtomicU64,
    failed: AtomicU64,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .init();
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<bool, Failed> {
    let mut args = std::env::args().skip(1);
    let (Some(store), Some(breaks), Some(heals)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: disk_full STORE BREAK HEAL".into());
    };
    let store = open(&store).await?;
    let schema = TableSchema { groups: vec![LocalityGroup::on_disk("cells", Layout::Versions)] };
    let table = store.open_table("rows", &schema).await?;
    for row in 0..CALM_ROWS {
        write(&*table, row).await?;
    }
    let reads = Arc::new(Reads::default());
    reads.acknowledged.store(CALM_ROWS, Ordering::SeqCst);
    let readers: Vec<_> =
        (0..READERS).map(|seed| tokio::spawn(reader(table.clone(), reads.clone(), seed))).collect();

    shell(&breaks)?;
    let mut refusal = None;
    let mut rows = CALM_ROWS;
    while rows < ROWS_MAX && refusal.is_none() {
        match write(&*table, rows).await {
            Ok(()) => rows += 1,
            Err(error) => refusal = Some(error.to_string()),
        }
        reads.acknowledged.store(rows, Ordering::SeqCst);
    }
    if refusal.is_some() {
        reads.refusing.store(true, Ordering::SeqCst);
        tokio::time::sleep(REFUSING).await;
        reads.refusing.store(false, Ordering::SeqCst);
    }
    shell(&heals)?;
    let healed = Instant::now();
    let resumed = loop {
        match write(&*table, rows).await {
            Ok(()) => break Some(healed.elapsed()),
            Err(_) if healed.elapsed() > RESUMING_MAX => break None,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    if resumed.is_some() {
        for row in rows + 1..rows + CALM_ROWS {
            write(&*table, row).await?;
        }
        rows += CALM_ROWS;
    }
    reads.over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await?;
    }
    let mut lost = 0;
    for row in 0..rows {
        lost += u64::from(!read(&*table, row).await?);
    }
    let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
    let (failed, refusing) = (of(&reads.failed), of(&reads.while_refusing));
    println!(
        "acknowledged {rows}, lost {lost}, reads {} of which {failed} failed, reads while writes were \
         refused {refusing}, writes resumed {}",
        of(&reads.count),
        resumed.map_or("never".to_owned(), |after| format!("after {} ms", after.as_millis())),
    );
    if let Some(refusal) = &refusal {
        println!("  refused with: {}", refusal.lines().next().unwrap_or_default());
    }
    let read_meanwhile = refusal.is_none() || refusing > 0;
    Ok(lost == 0 && failed == 0 && resumed.is_some() && read_meanwhile)
}

async fn open(store: &str) -> Result<Arc<dyn Store>, Failed> {
    if store.starts_with("bigtable://") {
        let address: Address = store.parse()?;
        return Ok(Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?));
    }
    Ok(Arc::new(FjallStore::open(store, Options::default())?))
}

/// Reads acknowledged rows at random until `over` is set.
async fn reader(table: Arc<dyn Table>, reads: Arc<Reads>, seed: u64) {
    let mut random = seed;
    while !reads.over.load(Ordering::SeqCst) {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let row = (random >> 33) % reads.acknowledged.load(Ordering::SeqCst);
        let refusing = reads.refusing.load(Ordering::SeqCst);
        let right = read(&*table, row).await;
        reads.count.fetch_add(1, Ordering::SeqCst);
        reads.while_refusing.fetch_add(u64::from(refusing), Ordering::SeqCst);
        if !matches!(right, Ok(true)) {
            eprintln!("row {row}: {right:?}");
            reads.failed.fetch_add(1, Ordering::SeqCst);
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the value of a row. No part of a value repeats, so it takes its full size on the disk.
fn value(row: u64) -> Vec<u8> {
    let part = |at: u64| {
        let mixed = (row * VALUE_BYTES + at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (mixed >> 32)).to_le_bytes()
    };
    (0..VALUE_BYTES / 8).flat_map(part).collect()
}

fn key(row: u64) -> RowKey {
    RowKey::from(format!("{row:08}"))
}

async fn write(table: &dyn Table, row: u64) -> bigtable::Result<()> {
    let at = Timestamp::new(1).unwrap_or(Timestamp::ZERO);
    let cell = Mutation::set(CELLS, "q", at, value(row));
    table.mutate_row(RowMutation::new(key(row)).mutation(cell)).await
}

async fn read(table: &dyn Table, row: u64) -> bigtable::Result<bool> {
    let select = Selection::default().column(CELLS, "q", TimeRange::ALL, 1);
    let read = table.read_row(&key(row), &select).await?;
    Ok(read.cells.iter().map(|cell| &*cell.value).eq([&value(row)[..]]))
}

fn shell(command: &str) -> Result<(), Failed> {
    let pid = std::process::id().to_string();
    let status = Command::new("sh").args(["-c", command]).env("DISK_FULL_PID", pid).status()?;
    if status.success() { Ok(()) } else { Err(format!("`{command}` ended with {status}").into()) }
}

//! Writes and reads rows while a disk fails and recovers, then reads every acknowledged row back.
//! `scripts/disk-full.sh` supplies the commands that make the disk fail.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bigtable::{Family, Layout, LocalityGroup, Mutation, RowKey, RowMutation, Selection, Store};
use bigtable::{Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{FjallStore, Options};
use bigtable_grpc::{Address, ClientOptions, GrpcStore};
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

const CELLS: Family = Family::from_static("cells");
const VALUE_BYTES: usize = 64 << 10;
/// Rows that are written before the disk fails, and again after it has recovered.
const CALM_ROWS: u64 = 50;
/// The most rows up to which the program writes while it waits for the disk to refuse one.
const ROWS_MAX: u64 = 600;
/// How long reads are counted while writes are refused.
const REFUSING: Duration = Duration::from_secs(3);
/// How long writes may take to resume.
const RESUMING_MAX: Duration = Duration::from_secs(30);
const READERS: u64 = 2;

/// Write and read rows while a disk fails and recovers, then read every acknowledged row back.
///
/// Prints the result, and the first refusal. If a row is lost, a read fails, writes do not resume,
/// or no read completes while writes are refused, the exit status is 3.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-torture disk-full ./small true 'rm ./small/ballast'")]
pub(crate) struct DiskFull {
    /// The store: bigtable://HOST:PORT/PROJECT/INSTANCE, or a directory.
    store: String,
    /// The shell command that makes the disk fail; in it $DISK_FULL_PID is the id of this process.
    #[arg(value_name = "BREAK")]
    breaks: String,
    /// The shell command after which the disk is sound again.
    #[arg(value_name = "HEAL")]
    heals: String,
}

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

impl DiskFull {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let store = open(&self.store).await?;
        let schema =
            TableSchema { groups: vec![LocalityGroup::on_disk("cells", Layout::Versions)] };
        let table = store.open_table("rows", &schema).await?;
        write_rows(&*table, 0..CALM_ROWS).await?;
        let reads = Arc::new(Reads::default());
        reads.acknowledged.store(CALM_ROWS, Ordering::SeqCst);
        let readers: Vec<_> = (0..READERS)
            .map(|seed| tokio::spawn(reader(table.clone(), reads.clone(), seed)))
            .collect();

        shell(&self.breaks)?;
        let (mut rows, refusal) = write_until_refused(&*table, &reads).await;
        shell(&self.heals)?;
        let resumed = resume(&*table, rows).await;
        if resumed.is_some() {
            write_rows(&*table, rows + 1..rows + CALM_ROWS).await?;
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
        context.out.line(&format!(
            "acknowledged {rows}, lost {lost}, reads {} of which {failed} failed, reads while writes \
             were refused {refusing}, writes resumed {}",
            of(&reads.count),
            resumed.map_or("never".to_owned(), |after| format!("after {} ms", after.as_millis())),
        ))?;
        if let Some(refusal) = &refusal {
            let line = refusal.lines().next().unwrap_or_default();
            context.out.line(&format!("  refused with: {line}"))?;
        }
        let read_meanwhile = refusal.is_none() || refusing > 0;
        let right = lost == 0 && failed == 0 && resumed.is_some() && read_meanwhile;
        Ok(if right { Exit::Done } else { Exit::Violated })
    }
}

async fn write_rows(table: &dyn Table, rows: std::ops::Range<u64>) -> bigtable::Result<()> {
    for row in rows {
        write(table, row).await?;
    }
    Ok(())
}

/// Writes rows until one is refused, and lets the readers go on for a while. Returns how many rows
/// the table has then, and the refusal, if there was one.
async fn write_until_refused(table: &dyn Table, reads: &Reads) -> (u64, Option<String>) {
    for rows in CALM_ROWS..ROWS_MAX {
        reads.acknowledged.store(rows, Ordering::SeqCst);
        if let Err(error) = write(table, rows).await {
            reads.refusing.store(true, Ordering::SeqCst);
            tokio::time::sleep(REFUSING).await;
            reads.refusing.store(false, Ordering::SeqCst);
            return (rows, Some(error.to_string()));
        }
    }
    (ROWS_MAX, None)
}

/// Tries to write this row until that succeeds. Returns how long it took, or `None` if it took too
/// long.
async fn resume(table: &dyn Table, row: u64) -> Option<Duration> {
    let healed = Instant::now();
    loop {
        match write(table, row).await {
            Ok(()) => return Some(healed.elapsed()),
            Err(_) if healed.elapsed() > RESUMING_MAX => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn open(store: &str) -> anyhow::Result<Arc<dyn Store>> {
    if store.starts_with("bigtable://") {
        let address: Address = store.parse()?;
        return Ok(Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?));
    }
    Ok(Arc::new(FjallStore::open(store, Options::default())?))
}

/// Reads acknowledged rows at random until `over` is set.
async fn reader(table: Arc<dyn Table>, reads: Arc<Reads>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    while !reads.over.load(Ordering::SeqCst) {
        let row = random.random_range(0..reads.acknowledged.load(Ordering::SeqCst));
        let refusing = reads.refusing.load(Ordering::SeqCst);
        let right = read(&*table, row).await;
        reads.count.fetch_add(1, Ordering::SeqCst);
        reads.while_refusing.fetch_add(u64::from(refusing), Ordering::SeqCst);
        if !matches!(right, Ok(true)) {
            tracing::warn!(row, ?right, "a read failed, or found another value than was written");
            reads.failed.fetch_add(1, Ordering::SeqCst);
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the value of a row. No part of a value repeats, so it takes its full size on the disk.
fn value(row: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    StdRng::seed_from_u64(row).fill_bytes(&mut value);
    value
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

fn shell(command: &str) -> anyhow::Result<()> {
    let pid = std::process::id().to_string();
    let status = Command::new("sh")
        .args(["-c", command])
        .env("DISK_FULL_PID", pid)
        .status()
        .context("starting sh")?;
    if status.success() {
        return Ok(());
    }
    let help = "try the command in a shell, then give one that succeeds";
    Err(Failure::usage(format!("`{command}` ended with {status}"), help))
}

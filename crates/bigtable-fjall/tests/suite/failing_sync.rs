//! Tests failing syncs: of the journal, of a file that the engine writes in the background,
//! and of all files.
//!
//! After a failed sync the system may have dropped the unwritten data. Another sync of the
//! same file then succeeds and proves nothing. So the store continues with another file. When
//! the next row is acknowledged, no file whose sync failed is part of the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use bigtable::{Error, Mutation, RowKey, RowMutation, Selection, Store, Table, TimeRange};
use bigtable_fjall::{Condition, Durability, FjallStore, Options};
use futures::executor::block_on;

use crate::damage::noise;
use crate::failing::{FailingSync, VARIABLE};
use crate::{PLAIN, options, schema, ts};

const CHILD_DIR: &str = "BIGTABLE_FJALL_SYNC_DIR";
const CHILD_CASE: &str = "BIGTABLE_FJALL_SYNC_CASE";
const VALUE: usize = 3000;
const BUFFER_BYTES: u64 = 64 << 10;
/// The number of rows that a merge gets.
const ROWS: u64 = 8_000;

type Opened = (FjallStore, std::sync::Arc<dyn Table>);

fn open(dir: &Path, durability: Durability) -> Opened {
    open_with(dir, durability, BUFFER_BYTES)
}

fn open_with(dir: &Path, durability: Durability, write_buffer_bytes: u64) -> Opened {
    let options = Options { write_buffer_bytes, ..options(durability) };
    let store = FjallStore::open(dir, options).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    (store, table)
}

fn write(table: &dyn Table, row: u64) -> Result<(), Error> {
    let cell = Mutation::set(PLAIN, "q", ts(1), noise(VALUE, row));
    block_on(table.mutate_row(RowMutation::new(format!("{row:08}")).mutation(cell)))
}

fn is_there(table: &dyn Table, row: u64) -> bool {
    let select = Selection::default().column(PLAIN, "q", TimeRange::ALL, 1);
    let read = block_on(table.read_row(&RowKey::from(format!("{row:08}")), &select)).unwrap();
    assert!(read.cells.iter().all(|cell| *cell.value == noise(VALUE, row)), "row {row} is whole");
    !read.cells.is_empty()
}

/// Opens the store in its directory again and compares its content.
fn compare(dir: &Path, acknowledged: &[u64], refused: &[u64]) {
    let (_store, table) = open(dir, Durability::Sync);
    for row in acknowledged {
        assert!(is_there(&*table, *row), "acknowledged row {row} is there");
    }
    for row in refused {
        assert!(!is_there(&*table, *row), "row {row} was refused");
    }
}

/// Writes rows until a sync has failed and a row was refused. Returns the acknowledged rows and
/// the refused ones.
fn write_until_refused(disk: &FailingSync, table: &dyn Table) -> (Vec<u64>, Vec<u64>) {
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for row in 0..5000 {
        match write(table, row) {
            Ok(()) => acknowledged.push(row),
            Err(Error::Unavailable { .. }) => refused.push(row),
            Err(error) => panic!("row {row}: {error}"),
        }
        if !disk.is_armed() && !refused.is_empty() {
            break;
        }
    }
    (acknowledged, refused)
}

/// Several callers share a batch that cannot be synced. All learn that it was not applied. The
/// engine is opened anew under their handles, and no file whose sync failed is kept.
fn the_journal(disk: &FailingSync, dir: &Path) {
    let (store, table) = open(dir, Durability::Sync);
    let mut acknowledged: Vec<u64> = (0..20).collect();
    acknowledged.iter().for_each(|row| write(&*table, *row).unwrap());
    disk.fail_once(".jnl");
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (table, results) = (&*table, &results);
            scope.spawn(move || {
                for row in (100 * (caller + 1)..).take(10) {
                    let result = write(table, row);
                    results.lock().unwrap().push((row, result));
                }
            });
        }
    });
    assert!(!disk.is_armed(), "a sync has failed");
    let mut refused = Vec::new();
    for (row, result) in results.into_inner().unwrap() {
        match result {
            Ok(()) => acknowledged.push(row),
            // The outcome is known: the request was not applied.
            Err(Error::Unavailable { .. }) => refused.push(row),
            Err(error) => panic!("row {row}: {error}"),
        }
    }
    assert!(!refused.is_empty(), "somebody's batch was not synced");
    write(&*table, 9000).unwrap();
    acknowledged.push(9000);
    assert_eq!(store.condition(), Condition::Writable);
    let failed = disk.none_is_kept(dir);
    assert!(failed.len() == 1 && failed[0].ends_with("engine/0.jnl"), "{failed:?}");
    assert!(acknowledged.iter().all(|row| is_there(&*table, *row)));
    assert!(!refused.iter().any(|row| is_there(&*table, *row)), "what was refused is not shown");
    // The engine syncs its journal again when it closes. That sync proves nothing, and the
    // store does not rely on it.
    let calls = disk.calls();
    let at = calls.iter().position(|call| call.what == "failed").unwrap();
    let after = calls[at..].iter().filter(|call| call.what == "repeated");
    assert!(after.count() <= 1, "{calls:?}");
    drop((store, table));
    compare(dir, &acknowledged, &refused);
}

/// A store that does not sync each batch is asked to sync, and its journal cannot be synced.
/// It continues with another journal that holds everything acknowledged, and syncs that one.
fn the_journal_when_asked(disk: &FailingSync, dir: &Path) {
    let (store, table) = open(dir, Durability::Buffered);
    let acknowledged: Vec<u64> = (0..20).collect();
    acknowledged.iter().for_each(|row| write(&*table, *row).unwrap());
    let synced = || disk.calls().iter().filter(|call| call.path.ends_with(".jnl")).count();
    let before = synced();
    block_on(store.sync()).unwrap();
    assert!(synced() > before, "the journal was synced");
    disk.fail_once(".jnl");
    block_on(store.sync()).unwrap();
    assert!(!disk.is_armed(), "a sync has failed");
    let failed = disk.none_is_kept(dir);
    assert!(failed.len() == 1 && failed[0].ends_with(".jnl"), "{failed:?}");
    assert!(acknowledged.iter().all(|row| is_there(&*table, *row)));
    assert_eq!(store.condition(), Condition::Writable);
    drop((store, table));
    compare(dir, &acknowledged, &[]);
}

/// A store that does not sync each batch syncs its journal early, and cannot. It continues with
/// another journal that holds everything acknowledged.
fn the_journal_early(disk: &FailingSync, dir: &Path) {
    let (store, table) = open(dir, Durability::Buffered);
    disk.fail_once(".jnl");
    let (mut acknowledged, refused) = write_until_refused(disk, &*table);
    assert_eq!(refused.len(), 1, "the engine was opened anew");
    // The journal was synced before a buffer was full.
    assert!(acknowledged.len() * VALUE < BUFFER_BYTES as usize, "{} rows", acknowledged.len());
    write(&*table, 9000).unwrap();
    acknowledged.push(9000);
    let failed = disk.none_is_kept(dir);
    assert!(failed.len() == 1 && failed[0].ends_with("engine/0.jnl"), "{failed:?}");
    assert!(acknowledged.iter().all(|row| is_there(&*table, *row)));
    assert!(!refused.iter().any(|row| is_there(&*table, *row)));
    assert_eq!(store.condition(), Condition::Writable);
    drop((store, table));
    compare(dir, &acknowledged, &refused);
}

/// The engine cannot sync a run that it writes out, and stops. No request is in doubt.
fn a_run(disk: &FailingSync, dir: &Path) {
    let (store, table) = open(dir, Durability::Buffered);
    disk.fail_once("/tables/");
    let (mut acknowledged, refused) = write_until_refused(disk, &*table);
    assert!(!disk.is_armed() && !refused.is_empty(), "the engine has stopped");
    // The store has opened the engine anew.
    write(&*table, 9000).unwrap();
    acknowledged.push(9000);
    assert!(acknowledged.iter().all(|row| is_there(&*table, *row)));
    assert!(!refused.iter().any(|row| is_there(&*table, *row)));
    drop((store, table));
    compare(dir, &acknowledged, &refused);
    let failed = disk.none_is_kept(dir);
    assert!(failed.len() == 1 && failed[0].contains("/tables/"), "{failed:?}");
}

/// A merge syncs its files while it writes them, and the engine syncs each at its end.
fn a_merge(disk: &FailingSync, dir: &Path) {
    // The first merge is one of four buffers, and is then synced early at least once.
    let (store, table) = open_with(dir, Durability::Buffered, 4 << 20);
    // In this order, each buffer overlaps all files.
    let row = |n: u64| (n % ROWS).wrapping_mul(0x9E37_79B9) % 1_000_003;
    let is_synced_early = || {
        let calls = disk.calls();
        let runs = calls.iter().filter(|call| call.path.contains("/tables/"));
        let mut files = std::collections::HashMap::<&str, usize>::new();
        runs.for_each(|call| *files.entry(&call.path).or_default() += 1);
        files.values().any(|syncs| *syncs > 1)
    };
    let mut written = 0;
    while !is_synced_early() {
        assert!(written < 10 * ROWS, "no merge syncs early");
        (written..written + 100).for_each(|n| write(&*table, row(n)).unwrap());
        written += 100;
    }
    let acknowledged: Vec<u64> = (0..written.min(ROWS)).map(row).collect();
    // The next sync of a run fails, also if it is an early one. The store goes on without it.
    disk.fail_once("/tables/");
    for _ in 0..2 * ROWS {
        // Some are refused, until the engine is opened anew.
        let _ = write(&*table, row(written));
        written += 1;
    }
    assert!(!disk.is_armed(), "a sync has failed");
    write(&*table, row(0)).unwrap();
    drop((store, table));
    disk.none_is_kept(dir);
    compare(dir, &acknowledged, &[]);
}

/// If the journal cannot be cut either, the content of the disk is unknown, and the store
/// halts.
fn every_file(disk: &FailingSync, dir: &Path) {
    let (store, table) = open(dir, Durability::Sync);
    let acknowledged: Vec<u64> = (0..20).collect();
    acknowledged.iter().for_each(|row| write(&*table, *row).unwrap());
    disk.fail_always("/engine/");
    let error = write(&*table, 20).unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    let error = write(&*table, 21).unwrap_err();
    assert!(matches!(error, Error::Halted { .. }), "{error}");
    let select = Selection::default().column(PLAIN, "q", TimeRange::ALL, 1);
    let read = block_on(table.read_row(&RowKey::from("00000000"), &select));
    assert!(matches!(read, Err(Error::Halted { .. })), "{read:?}");
    assert!(matches!(store.condition(), Condition::Halted { .. }));
}

#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else { return };
    let disk = FailingSync::own().unwrap_or_else(|| panic!("{VARIABLE} names its directory"));
    match std::env::var(CHILD_CASE).unwrap().as_str() {
        "the journal" => the_journal(&disk, &dir),
        "the journal when asked" => the_journal_when_asked(&disk, &dir),
        "the journal early" => the_journal_early(&disk, &dir),
        "a run" => a_run(&disk, &dir),
        "a merge" => a_merge(&disk, &dir),
        "every file" => every_file(&disk, &dir),
        other => panic!("there is no case {other}"),
    }
    assert!(disk.calls().iter().any(|call| call.what == "failed"), "the disk was asked");
}

/// Runs a case in a separate process. Returns `None` where that is not possible.
fn run(case: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let disk = FailingSync::build(dir.path())?;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "failing_sync::child", "--nocapture"]);
    child.env(CHILD_DIR, dir.path().join("s")).env(CHILD_CASE, case);
    disk.under(&mut child);
    let done = child.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    Some(dir)
}

#[test]
fn a_journal_whose_sync_failed_is_replaced_and_nothing_of_the_batch_is_shown() {
    run("the journal");
}

#[test]
fn a_journal_that_cannot_be_synced_when_asked_to_is_replaced() {
    run("the journal when asked");
}

#[test]
fn a_journal_that_cannot_be_synced_early_is_replaced() {
    run("the journal early");
}

#[test]
fn an_engine_that_cannot_sync_a_run_is_opened_anew() {
    run("a run");
}

#[test]
fn a_merge_syncs_its_files_early() {
    run("a merge");
}

#[test]
fn a_store_that_can_sync_nothing_halts_and_has_what_was_acknowledged_when_it_is_opened() {
    let Some(dir) = run("every file") else { return };
    compare(&dir.path().join("s"), &(0..20).collect::<Vec<_>>(), &[21]);
}

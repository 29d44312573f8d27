//! Tests a disk that fills up under an open store. The store refuses writes but not reads, and
//! accepts writes again by itself when there is space.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bigtable::{Error, Mutation, RowKey, RowMutation, Selection, Store, Table, TimeRange};
use bigtable_fjall::{Condition, Durability, FjallStore, Options};
use futures::FutureExt;
use futures::executor::block_on;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{PLAIN, options, schema, ts};

const MIB: u64 = 1 << 20;
/// The length of a value in bytes.
const VALUE: u64 = 16 << 10;

/// A small file system, mounted until this is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the file system. Prints that `what` is skipped, and returns `None`, if this user may
    /// not mount.
    pub(crate) fn new(dir: &Path, mib: u64, what: &str) -> Option<Self> {
        let options = format!("size={mib}m");
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir).output() {
            Ok(done) if done.status.success() => Some(SmallDisk(dir.to_owned())),
            _ => {
                let why = "this user may not mount a tmpfs";
                let _ = writeln!(std::io::stderr(), "SKIPPED: {what}, because {why}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The value of a row. It differs for each row, and cannot be compressed.
fn value(row: u64) -> Vec<u8> {
    let part = |part: u64| xxh3_64_with_seed(&part.to_le_bytes(), row).to_le_bytes();
    (0..VALUE / 8).flat_map(part).collect()
}

fn cell(value: Vec<u8>) -> Mutation {
    Mutation::set(PLAIN, "q", ts(1), value)
}

fn write(table: &dyn Table, row: u64) -> Result<(), Error> {
    block_on(table.mutate_row(RowMutation::new(format!("{row:08}")).mutation(cell(value(row)))))
}

fn is_there(table: &dyn Table, row: u64) -> Result<bool, Error> {
    let select = Selection::default().column(PLAIN, "q", TimeRange::ALL, 1);
    let read = block_on(table.read_row(&RowKey::from(format!("{row:08}")), &select))?;
    Ok(read.cells.iter().map(|cell| &*cell.value).eq([value(row)]))
}

fn small(durability: Durability) -> Options {
    let upkeep_tables = vec!["leases".to_owned()];
    Options { write_buffer_bytes: MIB, upkeep_tables, ..options(durability) }
}

/// Writes rows from `from` on until a write is refused. Returns the refused row and the error.
fn fill(table: &dyn Table, from: u64) -> (u64, Error) {
    let refused = (from..).find_map(|row| write(table, row).err().map(|error| (row, error)));
    refused.expect("a small disk becomes full")
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::new(dir.path(), 48, "a full disk") else { return };
        let ballast = disk.0.join("ballast");
        std::fs::write(&ballast, vec![1; 12 << 20]).unwrap();
        let store = FjallStore::open(disk.0.join("s"), small(durability)).unwrap();
        let table = block_on(store.open_table("t", &schema())).unwrap();
        let leases = block_on(store.open_table("leases", &schema())).unwrap();
        assert_eq!(store.condition(), Condition::Writable);
        let writable = Condition::Writable;
        let mut changed = Box::pin(store.other_condition_than(&writable));
        assert_eq!((&mut changed).now_or_never(), None);

        let (acknowledged, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let known = acknowledged.load(Ordering::SeqCst).max(1);
                    let row = reads.fetch_add(1, Ordering::SeqCst) % known;
                    let read = is_there(&*table, row);
                    assert!(known == 1 || matches!(read, Ok(true)), "row {row}: {read:?}");
                }
            });
            let done = || over.store(true, Ordering::SeqCst);
            let _done = Finally(&done);
            let (rows, error) = fill(&*table, 0);
            acknowledged.store(rows, Ordering::SeqCst);
            let Error::Full { free, wanted, .. } = error else { panic!("{error}") };
            assert!(rows > 100 && free > 2 * MIB && free < wanted, "{rows} {free} {wanted}");
            assert!(matches!((&mut changed).now_or_never(), Some(Condition::Full { .. })));
            // Further writes change nothing: each is refused in the same way.
            for _ in 0..100 {
                assert!(matches!(write(&*table, rows), Err(Error::Full { .. })));
            }
            let before = reads.load(Ordering::SeqCst);
            let rows = upkeep_goes_on(&store, &*table, &*leases, rows);
            acknowledged.store(rows, Ordering::SeqCst);
            while reads.load(Ordering::SeqCst) < before + 2 * rows {
                std::thread::yield_now();
            }
            std::fs::remove_file(&ballast).unwrap();
            assert_eq!(store.condition(), Condition::Writable, "without a write");
            write(&*table, rows).unwrap();
            acknowledged.store(rows + 1, Ordering::SeqCst);
        });
        let rows = acknowledged.load(Ordering::SeqCst);
        drop(changed);
        drop((table, leases, store));
        let store = FjallStore::open(disk.0.join("s"), small(durability)).unwrap();
        let table = block_on(store.open_table("t", &schema())).unwrap();
        for row in 0..rows {
            assert!(is_there(&*table, row).unwrap(), "row {row} of {rows}");
        }
    }
}

/// Removals, the floor and the upkeep tables are written while growth is refused.
fn upkeep_goes_on(store: &FjallStore, table: &dyn Table, leases: &dyn Table, rows: u64) -> u64 {
    let clear = Mutation::delete(PLAIN, "other", TimeRange::ALL);
    block_on(table.mutate_row(RowMutation::new("a lock").mutation(clear.clone())))
        .expect("a removal");
    write(leases, 1).expect("what others depend on");
    let floor = ts(store.floor().as_u64() + 1);
    block_on(store.raise_floor(floor)).expect("the floor");
    assert_eq!(store.floor(), floor);
    // A large request does not count as upkeep, even if it removes something.
    let large = cell(value(1).repeat(8));
    let both = RowMutation::new("both").mutation(clear).mutation(large);
    assert!(matches!(block_on(table.mutate_row(both)), Err(Error::Full { .. })));
    // A merge may have ended meanwhile, and made space for some more rows.
    let (rows, _) = fill(table, rows);
    let another = block_on(store.open_table("another", &schema()));
    assert!(matches!(another, Err(Error::Full { .. })), "{another:?}");
    rows
}

struct Finally<'a>(&'a dyn Fn());

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

const LIMITED_DIR: &str = "BIGTABLE_FJALL_LIMITED_DIR";
const LIMITED_SYNC: &str = "BIGTABLE_FJALL_LIMITED_SYNC";

/// The part of the test that runs under a limit on file sizes. Without the variable it does
/// nothing.
#[test]
fn limited_child() {
    let Some(dir) = std::env::var_os(LIMITED_DIR) else { return };
    let sync = std::env::var_os(LIMITED_SYNC).is_some();
    let durability = if sync { Durability::Sync } else { Durability::Buffered };
    let options = Options { write_buffer_bytes: 8 * MIB, ..options(durability) };
    let store = FjallStore::open(&dir, options.clone()).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    (0..10).for_each(|row| write(&*table, row).unwrap());
    let limit = |current| {
        let limit = Rlimit { current, maximum: getrlimit(Resource::Fsize).maximum };
        setrlimit(Resource::Fsize, limit).unwrap();
    };
    // The journal is below the limit, and soon reaches it.
    limit(Some(2 * MIB));
    let (rows, error) = fill(&*table, 10);
    // The outcome is known: the request was not applied.
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert!((0..rows).all(|row| is_there(&*table, row).unwrap()));
    assert!(!is_there(&*table, rows).unwrap());
    // The full journal may not grow, but a new journal may.
    (rows..rows + 20).for_each(|row| write(&*table, row).unwrap());
    limit(None);
    (rows + 20..rows + 40).for_each(|row| write(&*table, row).unwrap());
    drop((table, store));
    let store = FjallStore::open(&dir, options).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    assert!((0..rows + 40).all(|row| is_there(&*table, row).unwrap()));
    assert!(!is_there(&*table, rows + 40).unwrap());
}

#[test]
fn a_limit_of_the_size_of_files_is_survived() {
    for sync in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        // The signal for a file that is too large ends a program that does not ignore it.
        let run = "trap '' XFSZ; exec \"$0\" --exact full::limited_child --nocapture";
        let mut child = Command::new("sh");
        child.arg("-c").arg(run).arg(std::env::current_exe().unwrap());
        child.env(LIMITED_DIR, dir.path().join("s"));
        if sync {
            child.env(LIMITED_SYNC, "1");
        }
        let done = child.output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "sync {sync}: {}", String::from_utf8_lossy(&said));
    }
}

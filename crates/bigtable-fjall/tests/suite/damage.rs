//! Tests damage: a store whose files were changed is refused, reports a cut, or reads as
//! before. It never silently reads something else.
//!
//! The sweep damages one place at a time: it flips bits, writes zeroes, cuts files and removes
//! them. A store that opens must hold everything acknowledged, unless it reports a cut or a
//! read fails. A store that is refused must be unchanged. `DAMAGE_EVERY=1` visits every byte
//! of the journal outside of long values; without it, the sweep takes a sample. `check` must
//! find each damage that changes the result of a read.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::print_stdout, reason = "the sweep says what became of the places")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bigtable::{Error, Mutation, PageLimit, Row, RowMutation, RowRange, Store, Table, TimeRange};
use bigtable_fjall::{Durability, FjallStore, Options, check};
use futures::executor::block_on;

use crate::power_cut::data_of;
use crate::{EACH, MEMORY, NEWEST, PLAIN, everything, files_error, options, schema, set};

/// The tables of the store that is damaged. The store has dropped another one, `DROPPED`.
pub(crate) const TABLES: [&str; 3] = ["t", "u", "v"];
const DROPPED: &str = "w";
/// The length of a value in the sweep that has a separate file.
const LONG: usize = 1_000_000;

const SECTOR: usize = 4096;
/// The number of damaged places without [`EVERY`].
const SAMPLE: usize = 600;
const EVERY: &str = "DAMAGE_EVERY";

pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;
pub(crate) type Tables = BTreeMap<&'static str, Vec<Row>>;

/// All files of a directory. Journals are without the zeroes that were allocated ahead.
pub(crate) fn files_of(dir: &Path) -> Files {
    let file = |path: PathBuf| (path.strip_prefix(dir).unwrap().to_owned(), content(&path));
    paths(dir).into_iter().map(file).collect()
}

fn content(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|e| e == "jnl") {
        data_of(path)
    } else {
        fs::read(path).unwrap()
    }
}

/// The paths of all files of a directory.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let (mut paths, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let is_dir = entry.file_type().unwrap().is_dir();
            if is_dir { &mut left } else { &mut paths }.push(entry.path());
        }
    }
    paths
}

pub(crate) fn write(dir: &Path, files: &Files) {
    for (name, data) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }
    // The engine creates folders for large values in some keyspaces.
    let inventory = fs::read_to_string(dir.join("INVENTORY")).unwrap_or_default();
    for keyspace in fs::read_dir(dir.join("engine/keyspaces")).into_iter().flatten() {
        let path = keyspace.unwrap().path();
        fs::create_dir_all(path.join("tables")).unwrap();
        let number = path.file_name().unwrap().to_str().unwrap();
        let is = |name: &str| inventory.contains(&format!("keyspace {number} {name}\n"));
        if is("plain") || is("newest.history") {
            fs::create_dir_all(path.join("blobs")).unwrap();
        }
    }
}

fn small(durability: Durability) -> Options {
    Options { write_buffer_bytes: 64 << 10, ..options(durability) }
}

/// Bytes that cannot be compressed, and that differ for each `state`.
pub(crate) fn noise(length: usize, mut state: u64) -> Vec<u8> {
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// Makes changes like those of transactions: locks, then writes, and several cells at once.
fn work(table: &dyn Table, rows: u64, long: usize) {
    let apply = |row: RowMutation| block_on(table.mutate_row(row)).unwrap();
    for n in 0..rows {
        let row = || RowMutation::new(format!("row{n:03}"));
        let all = EACH.iter().map(|f| set(f, 2 * n + 1, "together"));
        apply(all.fold(row(), RowMutation::mutation));
        apply(row().mutation(set(&MEMORY, 2 * n + 2, "lock")));
        let unlock = Mutation::delete(MEMORY, "q", TimeRange::at(crate::ts(2 * n + 2)));
        apply(row().mutation(set(&NEWEST, 2 * n + 3, "write")).mutation(unlock));
    }
    let value = Mutation::set(PLAIN, "long", crate::ts(9), noise(long, rows));
    apply(RowMutation::new("long").mutation(value));
}

pub(crate) fn read(store: &FjallStore) -> Result<Tables, Error> {
    let mut tables = Tables::new();
    for name in TABLES {
        let table = block_on(store.open_table(name, &schema()))?;
        let rows = tables.entry(name).or_default();
        let mut next = Some(RowRange::all());
        while let Some(range) = next {
            let mut page = block_on(table.scan(&range, &everything(), PageLimit::default()))?;
            rows.append(&mut page.rows);
            next = page.resume;
        }
    }
    Ok(tables)
}

/// A store with three tables and a dropped one. Some of its data is in runs, some in the
/// journal. With `killed`, the files are those of the moment before the store is closed.
pub(crate) fn store(durability: Durability, killed: bool) -> (Files, Tables) {
    let dir = directory();
    let store = FjallStore::open(dir.path(), small(durability)).unwrap();
    for name in TABLES.into_iter().chain([DROPPED]) {
        let table = block_on(store.open_table(name, &schema())).unwrap();
        work(&*table, 30, LONG);
    }
    store.drop_table(DROPPED).unwrap();
    drop(store);
    // Everything written now stays in the journal.
    let store = FjallStore::open(dir.path(), options(durability)).unwrap();
    for name in TABLES {
        let table = block_on(store.open_table(name, &schema())).unwrap();
        work(&*table, 5, LONG / 100);
    }
    let tables = read(&store).unwrap();
    if killed {
        return (files_at_rest(dir.path()), tables);
    }
    drop(store);
    (files_of(dir.path()), tables)
}

/// The files of an open store, once its threads change none of them while they are read.
fn files_at_rest(dir: &Path) -> Files {
    let mut files = files_of(dir);
    loop {
        let again = files_of(dir);
        if again == files {
            return files;
        }
        files = again;
    }
}

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The result of opening a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Reported,
    ReadFails,
    Unchanged,
}

/// Opens the store and compares its content with everything acknowledged.
fn outcome(what: &str, dir: &Path, acknowledged: &Tables) -> Outcome {
    outcome_of(what, dir, acknowledged, files_of)
}

/// Like [`outcome`], where `state` returns the content of the files.
fn outcome_of<S: PartialEq>(
    what: &str,
    dir: &Path,
    acknowledged: &Tables,
    state: impl Fn(&Path) -> S,
) -> Outcome {
    let before = state(dir);
    let store = match FjallStore::open(dir, options(Durability::Sync)) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error, Error::Files { .. }), "{what}: {error}");
            assert!(state(dir) == before, "{what}: a store that was refused has changed: {error}");
            return Outcome::Refused;
        }
    };
    let reported = store.recovery().is_some();
    match read(&store) {
        Err(_) => Outcome::ReadFails,
        Ok(found) if found == *acknowledged => Outcome::Unchanged,
        Ok(_) if reported => Outcome::Reported,
        Ok(found) => {
            let lost = |name| (found.get(name).map(Vec::len), acknowledged.get(name).map(Vec::len));
            panic!(
                "{what}: acknowledged cells are gone or differ in silence: {:?}",
                TABLES.map(lost)
            )
        }
    }
}

/// The files of a store that is damaged many times. Runs and long values make up most of the
/// bytes and are never changed in place, so copies of the store share them.
struct Original {
    dir: tempfile::TempDir,
    shared: Files,
    own: Files,
}

/// A file of a copy: the number of a shared file, or the bytes of its own file.
#[derive(PartialEq)]
enum Held {
    Shared(u64),
    Own(Vec<u8>),
}

impl Original {
    fn new(files: &Files) -> Self {
        let is_shared =
            |name: &PathBuf| name.iter().any(|part| part == "tables" || part == "blobs");
        let (shared, own) =
            files.clone().into_iter().partition(|(name, _): &(PathBuf, _)| is_shared(name));
        let original = Original { dir: directory(), shared, own };
        write(original.dir.path(), &original.shared);
        original
    }

    /// A copy of the store with one damage.
    fn damaged(&self, name: &Path, data: &[u8], harm: &Harm) -> tempfile::TempDir {
        let dir = directory();
        for shared in self.shared.keys() {
            let path = dir.path().join(shared);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::hard_link(self.dir.path().join(shared), path).unwrap();
        }
        write(dir.path(), &self.own);
        if self.shared.contains_key(name) {
            fs::remove_file(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name), data).unwrap();
        }
        harm.apply(dir.path(), name, data);
        dir
    }

    fn state(&self, dir: &Path) -> BTreeMap<PathBuf, Held> {
        let held = |path: PathBuf| {
            let name = path.strip_prefix(dir).unwrap();
            let number = fs::metadata(&path).unwrap().ino();
            let original = self.dir.path().join(name);
            let held = match fs::metadata(original) {
                Ok(original) if original.ino() == number => Held::Shared(number),
                _ => Held::Own(content(&path)),
            };
            (name.to_owned(), held)
        };
        paths(dir).into_iter().map(held).collect()
    }

    /// Checks that no copy has changed the shared files.
    fn check(&self) {
        for (name, data) in &self.shared {
            assert!(fs::read(self.dir.path().join(name)).unwrap() == *data, "{}", name.display());
        }
    }
}

/// One damage.
#[derive(Debug, Clone)]
pub(crate) enum Harm {
    Flip(usize, u8),
    Zero(std::ops::Range<usize>),
    Cut(usize),
    Remove,
}

impl Harm {
    pub(crate) fn apply(&self, dir: &Path, name: &Path, data: &[u8]) {
        let path = dir.join(name);
        let mut data = data.to_vec();
        match self {
            Harm::Flip(at, bits) => data[*at] ^= bits,
            Harm::Zero(range) => data[range.clone()].fill(0),
            Harm::Cut(at) => data.truncate(*at),
            Harm::Remove => return fs::remove_file(path).unwrap(),
        }
        fs::write(path, data).unwrap();
    }
}

/// The distance in bytes between two damaged places.
fn every() -> usize {
    std::env::var(EVERY).map_or(1009, |text| text.parse().expect("a number of bytes"))
}

fn is_full() -> bool {
    std::env::var_os(EVERY).is_some()
}

/// The places at which a journal is damaged: every `every` bytes, and every `every` sectors
/// within a long value.
fn places(data: &[u8], every: usize) -> Vec<usize> {
    let number = |at: usize, bytes: usize| {
        data[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let mut places = Vec::new();
    let (mut at, mut next) = (0, 0);
    while at < data.len() {
        // The head of a batch, its end, or an item. The value is the last part of an item.
        let length = match data[at] {
            1 => 13,
            3 => 13,
            4 => 9,
            _ => 21 + number(at + 11, 2) + number(at + 17, 4),
        };
        let end = at + length;
        while next < end {
            places.push(next);
            next += if length > 2 * SECTOR && next > at + SECTOR { SECTOR * every } else { every };
        }
        at = end;
    }
    places.retain(|place| *place < data.len());
    places
}

/// The damages of one file. Runs get fewer, because their checksums cover every byte equally.
/// So do second names of journals, which are read only if the first name is lost.
fn harms(name: &Path, data: &[u8]) -> Vec<Harm> {
    let length = data.len();
    let mut harms = vec![Harm::Remove, Harm::Cut(0), Harm::Cut(length / 2), Harm::Zero(0..length)];
    let is_journal = name.extension().is_some_and(|e| e == "jnl") && name.starts_with("engine");
    let places = if is_journal {
        places(data, every())
    } else {
        (0..length).step_by(every().max(length / 5).max(1)).collect()
    };
    for (count, at) in places.into_iter().enumerate() {
        harms.push(match count % 2 {
            0 => Harm::Flip(at, 0x55),
            _ => Harm::Flip(at, 1 << (count / 2 % 8)),
        });
        if count % 8 == 0 {
            harms.extend([Harm::Cut(at), Harm::Zero(at..(at + 512).min(length))]);
        }
    }
    harms.retain(|harm| length > 0 || matches!(harm, Harm::Remove));
    harms
}

fn sweep(durability: Durability, killed: bool) {
    let (files, tables) = store(durability, killed);
    let all: Vec<_> = files
        .iter()
        .filter(|(name, _)| !name.ends_with("LOCK"))
        .flat_map(|(name, data)| harms(name, data).into_iter().map(move |harm| (name, data, harm)))
        .collect();
    let part = if is_full() { 1 } else { all.len().div_ceil(SAMPLE) };
    let all: Vec<_> = all.into_iter().step_by(part).collect();
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let original = Original::new(&files);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, data, harm)) = all.get(number) else { break };
                    if is_full() && number % 5000 == 0 {
                        println!("{number} of {} damages", all.len());
                    }
                    let what = format!("{} {harm:?}, killed: {killed}", name.display());
                    let cut_short =
                        killed && name.ends_with("0.jnl") && matches!(harm, Harm::Cut(_));
                    if cut_short && is_between_batches(harm, data) {
                        continue;
                    }
                    let mut dir = original.damaged(name, data, harm);
                    let state = |dir: &Path| original.state(dir);
                    let outcome = outcome_of(&what, dir.path(), &tables, state);
                    if outcome != Outcome::Unchanged {
                        if outcome != Outcome::Refused {
                            dir = original.damaged(name, data, harm);
                        }
                        // A directory that is no store any more is refused.
                        let found = check(dir.path(), |_| Vec::new());
                        let found = found.map_or(true, |found| !found.problems.is_empty());
                        assert!(found, "{what}: {outcome:?}, and the check finds nothing");
                    }
                    *counts.lock().unwrap().entry(outcome).or_insert(0) += 1;
                }
            });
        }
    });
    original.check();
    println!("{durability:?}, killed: {killed}: {} damages: {:?}", all.len(), counts.into_inner());
}

/// A journal that ends between two batches looks like one that was never longer. If the store
/// was not closed, no file records where the journal ended.
fn is_between_batches(harm: &Harm, data: &[u8]) -> bool {
    let Harm::Cut(at) = harm else { return false };
    *at == 0 || data[..*at].ends_with(b"FJL\x03")
}

#[test]
fn no_damage_of_a_closed_store_is_silent() {
    sweep(Durability::Sync, false);
}

#[test]
fn no_damage_of_a_killed_store_is_silent() {
    sweep(Durability::Buffered, true);
}

#[test]
fn a_damaged_batch_with_sound_ones_behind_it_is_refused_by_its_place() {
    let (files, _) = store(Durability::Sync, false);
    let (name, data) = files.iter().find(|(name, _)| name.ends_with("engine/0.jnl")).unwrap();
    let dir = directory();
    write(dir.path(), &files);
    Harm::Flip(40, 0x55).apply(dir.path(), name, data);
    let (problem, remedy) = files_error(FjallStore::open(dir.path(), Options::default()));
    assert!(problem.contains("damaged at byte 0"), "{problem}");
    assert!(problem.contains("sound batches follow"), "{problem}");
    assert!(remedy.contains("percolator check"), "{remedy}");
}

#[test]
fn lost_files_are_named() {
    let (files, tables) = store(Durability::Sync, false);
    for (lost, says) in [
        ("engine/keyspaces/2", "files of keyspace plain"),
        ("engine/keyspaces/2/current", "files of keyspace plain"),
        ("engine/keyspaces/0", "files of a keyspace"),
        ("engine/version", "missing"),
        ("INVENTORY", "missing"),
    ] {
        let dir = directory();
        write(dir.path(), &files);
        let path = dir.path().join(lost);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        for _ in 0..2 {
            let (problem, _) = files_error(FjallStore::open(dir.path(), Options::default()));
            assert!(problem.contains(says), "{lost}: {problem}");
        }
    }
    // A lost journal is read through its second name.
    for lost in ["engine/0.jnl", "journals/0.jnl", "engine/lock"] {
        let dir = directory();
        write(dir.path(), &files);
        fs::remove_file(dir.path().join(lost)).unwrap();
        assert_eq!(outcome(lost, dir.path(), &tables), Outcome::Unchanged);
        assert!(dir.path().join(lost).exists());
    }
    let dir = directory();
    write(dir.path(), &files);
    fs::remove_file(dir.path().join("engine/0.jnl")).unwrap();
    fs::remove_file(dir.path().join("journals/0.jnl")).unwrap();
    let (problem, _) = files_error(FjallStore::open(dir.path(), Options::default()));
    assert!(problem.contains("journal is missing"), "{problem}");
}

#[test]
fn a_store_of_the_format_without_an_inventory_is_taken_over() {
    let (mut files, tables) = store(Durability::Sync, false);
    files.insert("FORMAT".into(), b"bigtable-fjall\nformat 3\n".to_vec());
    files.remove(Path::new("INVENTORY"));
    files.remove(Path::new("journals/0.jnl"));
    let dir = directory();
    write(dir.path(), &files);
    assert_eq!(outcome("format 3", dir.path(), &tables), Outcome::Unchanged);
    let format = fs::read_to_string(dir.path().join("FORMAT")).unwrap();
    assert_eq!(format, "bigtable-fjall\nformat 5\n");
    fs::remove_dir_all(dir.path().join("engine/keyspaces/2")).unwrap();
    files_error(FjallStore::open(dir.path(), Options::default()));
}

#[test]
fn a_sound_store_passes_the_check_and_is_not_touched() {
    for killed in [false, true] {
        let (files, tables) = store(Durability::Sync, killed);
        let dir = directory();
        write(dir.path(), &files);
        let before = files_of(dir.path());
        let checked = check(dir.path(), |_| Vec::new()).unwrap();
        assert_eq!(checked.problems, []);
        for (name, rows) in tables {
            let cells: usize = rows.iter().map(|row| row.cells.len()).sum();
            assert_eq!(checked.tables[name], cells as u64);
        }
        assert_eq!(checked.newest, crate::ts(61));
        assert!(files_of(dir.path()) == before, "the check has changed the store");
    }
}

#[test]
fn a_store_that_is_open_or_none_is_not_checked() {
    let dir = directory();
    files_error(check(dir.path(), |_| Vec::new()));
    files_error(check(dir.path().join("nothing"), |_| Vec::new()));
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    let _store = FjallStore::open(dir.path(), Options::default()).unwrap();
    let checked = check(dir.path(), |_| Vec::new());
    assert!(matches!(checked, Err(Error::InUse { .. })), "{checked:?}");
}

//! Reads the files of one of the engine's keyspaces: its manifest, its runs, and its files of
//! large values.
//!
//! ```text
//!   current        number of the manifest, its checksum
//!   v<number>      the manifest: the runs of each level and the value files, each with its
//!                  checksum
//!   tables/<id>    a file of a sorted run
//!   blobs/<id>     a file of large values
//! ```
//!
//! The engine writes a file before the manifest that names it, and the manifest before
//! `current`, with a sync in between. So after every crash, all files that `current` refers to
//! exist and are whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::{Cache, Checksum, Table};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::damage::Damage;

const CURRENT: &str = "current";
/// The size of `current`: a manifest's number, its checksum, and the type of the checksum.
const CURRENT_BYTES: usize = 25;
/// The only type of checksum that the engine knows.
const XXH3: u8 = 0;
/// The value of `tree_type` in the manifest of a keyspace with separate files of large values.
const BLOB_TREE: u8 = 1;
const BUFFER_BYTES: usize = 256 << 10;

/// A file that a manifest lists.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) checksum: u128,
    /// The offset that the engine adds to the numbers of the file's entries.
    added: u64,
    /// The file's entry in the manifest.
    entry: Vec<u8>,
}

/// The keys and numbers that a file of a run covers.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// The highest number of an entry.
    pub(super) newest: u64,
}

/// A manifest that lists some of the files.
pub(crate) struct Manifest {
    pub(crate) content: Vec<u8>,
    /// The content of `current` for this manifest.
    pub(crate) current: Vec<u8>,
}

/// The content of a keyspace's manifest.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(super) manifest: PathBuf,
    /// The manifest's number.
    pub(crate) number: u64,
    /// The files of runs, by level and run.
    levels: Vec<Vec<Vec<Named>>>,
    pub(super) values: Vec<Named>,
    /// The sections of the manifest: name and content.
    sections: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Runs {
    /// Reads the manifest of the keyspace in `dir`. Returns `None` if the creation of the
    /// keyspace was never finished.
    pub(crate) fn read(dir: &Path) -> Result<Option<Runs>, Damage> {
        let current = dir.join(CURRENT);
        let bytes = match fs::read(&current) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|e| Damage::io(&current, &e))?,
        };
        let Ok(bytes) = <[u8; CURRENT_BYTES]>::try_from(bytes) else {
            return Err(Damage::new(&current, "its length is wrong"));
        };
        let number = number(&bytes[..8]);
        let manifest = dir.join(format!("v{number}"));
        let content = fs::read(&manifest).map_err(|e| Damage::io(&manifest, &e))?;
        let stored = checksum(&bytes[8..24]);
        if xxh3_128(&content) != stored || bytes[24] != XXH3 {
            return Err(Damage::new(&manifest, "its checksum is not the one in `current`"));
        }
        Runs::parse(dir, manifest, number, &content).map(Some)
    }

    /// Whether the keyspace has separate files of large values.
    pub(super) fn has_values(&self) -> bool {
        self.sections.iter().any(|(name, bytes)| name == b"tree_type" && bytes[..] == [BLOB_TREE])
    }

    /// The same manifest with the files of another. Returns `self` as the error if their
    /// numbers of levels differ.
    pub(super) fn with_files_of(self, other: Runs) -> Result<Runs, Runs> {
        if self.levels.len() == other.levels.len() {
            Ok(Runs { levels: other.levels, values: other.values, ..self })
        } else {
            Err(self)
        }
    }

    /// The same manifest with other files: `runs` in its first level, and `values` as files of
    /// large values.
    pub(super) fn with_files(mut self, runs: Vec<Vec<Named>>, values: Vec<Named>) -> Runs {
        if let Some(first) = self.levels.first_mut() {
            *first = runs;
        }
        Runs { values, ..self }
    }

    /// The files of all runs.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Named> {
        self.levels.iter().flatten().flatten()
    }

    /// The files of all runs, and those of large values.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Named> {
        self.tables().chain(&self.values)
    }

    /// The manifest that lists only the files for which `keep` returns true.
    pub(crate) fn manifest_of(&self, keep: impl Fn(&Path) -> bool) -> io::Result<Manifest> {
        let kept = |files: &[Named]| {
            let kept: Vec<_> = files.iter().filter(|file| keep(&file.path)).collect();
            let entries: Vec<u8> = kept.iter().flat_map(|file| file.entry.clone()).collect();
            let count = u32::try_from(kept.len()).expect("a manifest counts files in 32 bits");
            (count, [&count.to_le_bytes()[..], &entries].concat())
        };
        let small = |count: usize| u8::try_from(count).expect("a manifest counts runs in 8 bits");
        let mut tables = vec![small(self.levels.len())];
        for level in &self.levels {
            let runs: Vec<_> = level.iter().map(|run| kept(run)).collect();
            let runs: Vec<_> = runs.iter().filter(|(count, _)| *count > 0).collect();
            tables.push(small(runs.len()));
            runs.iter().for_each(|(_, entries)| tables.extend(entries));
        }
        let (_, values) = kept(&self.values);
        let mut writer = sfa::Writer::from_writer(io::Cursor::new(Vec::new()));
        for (name, bytes) in &self.sections {
            writer.start(&**name)?;
            writer.write_all(match &name[..] {
                b"tables" => &tables,
                b"blob_files" => &values,
                _ => bytes,
            })?;
        }
        let content = writer.into_inner().map_err(io::Error::other)?.into_inner();
        let sum = xxh3_128(&content).to_le_bytes();
        let current = [&self.number.to_le_bytes()[..], &sum, &[XXH3]].concat();
        Ok(Manifest { content, current })
    }

    /// Opens each file as far as the engine does when it opens. Returns the files that cannot
    /// be opened.
    pub(crate) fn check_openable(&self) -> Vec<Damage> {
        let cache = Arc::new(Cache::with_capacity_bytes(0));
        let tables = self.tables().filter_map(|file| file.open_table(&cache).err());
        let values = self.values.iter().filter_map(|file| file.open_values().err());
        tables.chain(values).collect()
    }

    /// Compares the checksums of all files. Returns the files that differ.
    pub(crate) fn verify(&self) -> Vec<Damage> {
        self.files().filter_map(|file| file.verify().err()).collect()
    }
}

impl Named {
    /// A file that is in no manifest. Its checksum is computed from its content.
    pub(super) fn found(folder: &Path, number: u64, table: bool) -> Result<Named, Damage> {
        let path = folder.join(number.to_string());
        let (checksum, added) = (checksum_of(&path)?, 0);
        let mut entry = [&number.to_le_bytes()[..], &[XXH3], &checksum.to_le_bytes()].concat();
        if table {
            entry.extend(u64::to_le_bytes(added));
        }
        Ok(Named { path, checksum, added, entry })
    }

    fn open_table(&self, cache: &Arc<Cache>) -> Result<Table, Damage> {
        let Named { path, checksum, added, .. } = self;
        let (sum, cache) = (Checksum::from_raw(*checksum), cache.clone());
        let table = Table::recover(path.clone(), sum, *added, 0, cache, None, false, false);
        table.map_err(|error| of_engine(path, error))
    }

    /// Reads a whole file of a run. Returns the keys and numbers that it covers.
    pub(super) fn span(&self) -> Result<Span, Damage> {
        let table = self.open_table(&Arc::new(Cache::with_capacity_bytes(0)))?;
        table.iter().try_for_each(|entry| entry.map(drop)).map_err(|e| of_engine(&self.path, e))?;
        let keys = &table.metadata.key_range;
        let (first, last) = (keys.min().to_vec(), keys.max().to_vec());
        Ok(Span { first, last, newest: table.get_highest_seqno() })
    }

    pub(super) fn open_values(&self) -> Result<(), Damage> {
        let sections = sfa::Reader::new(&self.path);
        let sections = sections.map_err(|e| of_engine(&self.path, e.into()))?;
        match sections.toc().section(b"meta") {
            Some(_) => Ok(()),
            None => Err(Damage::new(&self.path, "its description is missing")),
        }
    }

    fn verify(&self) -> Result<(), Damage> {
        if checksum_of(&self.path)? == self.checksum {
            Ok(())
        } else {
            Err(Damage::new(&self.path, "its checksum is not the one in the manifest"))
        }
    }
}

fn checksum_of(path: &Path) -> Result<u128, Damage> {
    let io = |e: io::Error| Damage::io(path, &e);
    let mut file = File::open(path).map_err(io)?;
    copy_summed(&mut file, &mut io::sink(), |_| Ok(())).map(|(sum, _)| sum).map_err(io)
}

/// Copies all that there is to read; returns the checksum of it and its length. `between` is called
/// with the length so far, and may end the copy.
pub(crate) fn copy_summed(
    from: &mut impl Read,
    to: &mut impl Write,
    mut between: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<(u128, u64)> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut sum, mut bytes) = (Xxh3::new(), 0);
    loop {
        let length = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        if length == 0 {
            return Ok((sum.digest128(), bytes));
        }
        sum.update(&buffer[..length]);
        to.write_all(&buffer[..length])?;
        bytes += length as u64;
        between(bytes)?;
    }
}

fn of_engine(path: &Path, error: lsm_tree::Error) -> Damage {
    match error {
        lsm_tree::Error::Io(error) => Damage::io(path, &error),
        error => Damage::new(path, format!("it cannot be read: {error:?}")),
    }
}

impl Runs {
    /// Parses a manifest.
    pub(super) fn parse(
        dir: &Path,
        manifest: PathBuf,
        number: u64,
        content: &[u8],
    ) -> Result<Runs, Damage> {
        let bad = |what: &str| Damage::new(&manifest, format!("its {what} cannot be read"));
        let contents = sfa::Reader::from_reader(&mut io::Cursor::new(content));
        let contents = contents.map_err(|_| bad("table of contents"))?;
        let mut sections = Vec::new();
        for entry in contents.toc().iter() {
            let (from, length) = (usize::try_from(entry.pos()), usize::try_from(entry.len()));
            let (Ok(from), Ok(length)) = (from, length) else {
                return Err(bad("table of contents"));
            };
            let bytes = from.checked_add(length).and_then(|to| content.get(from..to));
            let bytes = bytes.ok_or_else(|| bad("table of contents"))?;
            sections.push((entry.name().to_vec(), bytes.to_vec()));
        }
        let section = |name: &str| {
            let found = sections.iter().find(|(known, _)| known == name.as_bytes());
            found.map(|(_, bytes)| Bytes(bytes)).ok_or_else(|| bad(name))
        };
        let (tables, values) = (dir.join("tables"), dir.join("blobs"));
        let levels = section("tables")?.levels(&tables).ok_or_else(|| bad("tables"))?;
        let values =
            section("blob_files")?.files(&values, false).ok_or_else(|| bad("blob_files"))?;
        Ok(Runs { manifest, number, levels, values, sections })
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn count(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn levels(&mut self, dir: &Path) -> Option<Vec<Vec<Vec<Named>>>> {
        let levels = self.take(1)?[0];
        let level = |bytes: &mut Self| {
            let runs = bytes.take(1)?[0];
            (0..runs).map(|_| bytes.files(dir, true)).collect()
        };
        (0..levels).map(|_| level(self)).collect()
    }

    fn files(&mut self, dir: &Path, tables: bool) -> Option<Vec<Named>> {
        let count = self.count()?;
        (0..count).map(|_| self.named(dir, tables)).collect()
    }

    fn named(&mut self, dir: &Path, table: bool) -> Option<Named> {
        let entry = self.take(if table { 33 } else { 25 })?;
        let mut rest = Bytes(entry);
        let id = number(rest.take(8)?);
        let [XXH3] = *rest.take(1)? else { return None };
        let checksum = checksum(rest.take(16)?);
        let added = if table { number(rest.take(8)?) } else { 0 };
        Some(Named { path: dir.join(id.to_string()), checksum, added, entry: entry.to_vec() })
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller gives eight bytes"))
}

fn checksum(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(bytes.try_into().expect("the caller gives sixteen bytes"))
}

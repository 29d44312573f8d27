//! Builds a store's directory as a power cut may leave it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// No record holds this many zeroes in a row.
const ZEROES: usize = 64 << 10;
/// Bytes that include a start that the engine never writes, and tags and lengths that it does
/// write.
const GARBAGE: [u8; 7] = [0xa5, 2, 0, 1, 3, 0xff, 9];

/// The rest of the journal after a cut.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tail {
    /// The file ends at the cut.
    Ends(usize),
    /// Zeroes follow, up to the file's length.
    Zeroes(usize),
    /// Garbage follows in the place of what was written.
    Garbage(usize),
    /// Everything was written except this range.
    Hole { from: usize, to: usize },
}

impl Tail {
    /// The position up to which everything is there.
    pub(super) fn cut(self) -> usize {
        match self {
            Tail::Ends(cut) | Tail::Zeroes(cut) | Tail::Garbage(cut) => cut,
            Tail::Hole { from, .. } => from,
        }
    }
}

/// The files of a directory. The newest journal is without the zeroes allocated ahead.
#[derive(Debug)]
pub(super) struct Image {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The second names of journals that are among `files` under their first names.
    second_names: Vec<PathBuf>,
    journal: PathBuf,
    journal_len: u64,
}

impl Image {
    /// Copies a directory at a moment when nothing in it changes.
    pub(super) fn of(dir: &Path) -> Self {
        loop {
            let listing = list(dir);
            let journal = newest_journal(dir);
            let (mut files, mut second_names) = (BTreeMap::new(), Vec::new());
            for path in listing.keys() {
                let name = path.strip_prefix(dir).unwrap().to_owned();
                if first_name(&name).is_some_and(|first| listing.contains_key(&dir.join(first))) {
                    second_names.push(name);
                    continue;
                }
                let data = if path == &journal {
                    data_of(path)
                } else {
                    fs::read(path).unwrap_or_default()
                };
                files.insert(name, data);
            }
            if list(dir) == listing {
                let written = files[journal.strip_prefix(dir).unwrap()].len() as u64;
                // Keep some of the space allocated ahead, so that the file differs from one
                // that ends with its data.
                let journal_len = listing[&journal].0.min(written + (1 << 20));
                let journal = journal.strip_prefix(dir).unwrap().to_owned();
                return Image { files, second_names, journal, journal_len };
            }
        }
    }

    /// Replaces the journal with the current one of `dir`. Everything that a cut leaves of it
    /// was synced after every other file of the image.
    pub(super) fn with_journal_of(mut self, dir: &Path) -> Self {
        let path = dir.join(&self.journal);
        assert_eq!(path, newest_journal(dir), "a new journal was begun meanwhile");
        let data = data_of(&path);
        self.journal_len = self.journal_len.max(data.len() as u64);
        self.files.insert(self.journal.clone(), data);
        self
    }

    /// The position up to which the journal is as written. A hole within zeroes changes
    /// nothing.
    pub(super) fn whole_up_to(&self, tail: Tail) -> usize {
        let Tail::Hole { from, to } = tail else { return tail.cut() };
        let data = &self.files[&self.journal];
        data[from..to].iter().position(|byte| *byte != 0).map_or(data.len(), |first| from + first)
    }

    /// The number of sorted runs.
    pub(super) fn segments(&self) -> usize {
        let in_tables = |path: &&PathBuf| path.parent().is_some_and(|dir| dir.ends_with("tables"));
        self.files.keys().filter(in_tables).count()
    }

    /// Writes the directory as the cut leaves it.
    pub(super) fn write(&self, dir: &Path, tail: Tail) {
        for (path, data) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if path.ends_with(&self.journal) {
                self.write_journal(&path, data, tail);
            } else {
                fs::write(path, data).unwrap();
            }
        }
        for name in &self.second_names {
            let (first, second) = (first_name(name).unwrap(), dir.join(name));
            fs::create_dir_all(second.parent().unwrap()).unwrap();
            fs::hard_link(dir.join(first), second).unwrap();
        }
    }

    fn write_journal(&self, path: &Path, data: &[u8], tail: Tail) {
        let mut file = File::create(path).unwrap();
        file.write_all(&data[..tail.cut()]).unwrap();
        match tail {
            Tail::Ends(_) => {}
            Tail::Zeroes(_) => file.set_len(self.journal_len).unwrap(),
            Tail::Garbage(cut) => {
                let garbage: Vec<u8> = GARBAGE.into_iter().cycle().take(data.len() - cut).collect();
                file.write_all(&garbage[cut % 7 % (garbage.len().max(1))..]).unwrap();
                file.set_len(self.journal_len).unwrap();
            }
            Tail::Hole { from, to } => {
                file.write_all(&vec![0; to - from]).unwrap();
                file.write_all(&data[to..]).unwrap();
                file.set_len(self.journal_len).unwrap();
            }
        }
    }
}

/// The first name of a journal, by its second name.
fn first_name(second: &Path) -> Option<PathBuf> {
    second.strip_prefix("journals").ok().map(|name| Path::new("engine").join(name))
}

/// A directory for an image, in memory if possible, because the tests do not depend on its
/// syncs.
pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The end of the data in the newest journal.
pub(super) fn journal_end(dir: &Path) -> usize {
    data_of(&newest_journal(dir)).len()
}

/// The journal that is being written.
pub(super) fn newest_journal(dir: &Path) -> PathBuf {
    let number = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let files = fs::read_dir(dir.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    let journals = files.filter(|path| path.extension().is_some_and(|e| e == "jnl"));
    journals.max_by_key(|path| number(path)).expect("a journal")
}

/// A journal's content without the zeroes allocated ahead.
pub(crate) fn data_of(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut data = Vec::new();
    loop {
        let read = (&file).take(ZEROES as u64).read_to_end(&mut data).unwrap();
        let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if read < ZEROES || data.len() - end >= ZEROES {
            data.truncate(end);
            return data;
        }
    }
}

/// The lengths and modification times of all files.
fn list(dir: &Path) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(meta) = fs::metadata(&path) else { continue };
        if meta.is_dir() {
            files.append(&mut list(&path));
        } else {
            files.insert(path, (meta.len(), meta.modified().unwrap()));
        }
    }
    files
}

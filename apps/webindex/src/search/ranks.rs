//! Keeps the ranks of pages in a file beside the index.
//!
//! The ranking job changes every page's rank. If the rank were part of a page's document, each
//! ranking would index all pages again. So the ranks have their own file, `RANKS`, which a
//! rename replaces as a whole. A reader sees the ranks of one ranking or of another, never a
//! mixture.
//!
//! ```text
//! "webindex ranks 1"  16 bytes
//! number of the state  8 bytes, little-endian: the file with the higher number is newer
//! pages                8
//! for each page, sorted: the key of its URL 8, its rank 8 (a double)
//! BLAKE3 of all that  32
//! ```

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

const MAGIC: &[u8; 16] = b"webindex ranks 1";
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
const DIGEST_BYTES: usize = 32;

/// The name of the file.
pub(super) const FILE: &str = "RANKS";
pub(super) const TEMPORARY_FILE: &str = "RANKS.tmp";

/// The ranks of pages, by the keys of their URLs.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    seq: u64,
    sorted: Vec<(u64, f64)>,
}

/// The key of a URL, in the file and in the index.
pub(super) fn key(url: &str) -> u64 {
    let hash = blake3::hash(url.as_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

impl Ranks {
    /// Returns the rank of a page. Zero if the page has no usable rank.
    pub(super) fn of(&self, key: u64) -> f64 {
        let found = self.sorted.binary_search_by_key(&key, |(key, _)| *key);
        found.map_or(0.0, |at| self.sorted[at].1)
    }

    pub(super) fn new(seq: u64, ranks: impl IntoIterator<Item = (String, f64)>) -> Self {
        let usable = |(_, rank): &(u64, f64)| rank.is_finite() && *rank > 0.0;
        let keyed = ranks.into_iter().map(|(url, rank)| (key(&url), rank));
        let mut sorted: Vec<_> = keyed.filter(usable).collect();
        sorted.sort_by_key(|(key, _)| *key);
        Ranks { seq, sorted }
    }

    /// Replaces the file in a directory, unless the file is as new. A damaged file is
    /// replaced.
    pub(super) fn write(&self, dir: &Path) -> Result<bool, Error> {
        let file = dir.join(FILE);
        if let Ok(Some(held)) = Ranks::read(dir)
            && held.seq >= self.seq
        {
            return Ok(false);
        }
        let mut bytes =
            Vec::with_capacity(HEADER_BYTES + self.sorted.len() * ENTRY_BYTES + DIGEST_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&(self.sorted.len() as u64).to_le_bytes());
        for (key, rank) in &self.sorted {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&rank.to_le_bytes());
        }
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        let temporary = dir.join(TEMPORARY_FILE);
        let write = || {
            let mut handle = fs::File::create(&temporary)?;
            handle.write_all(&bytes)?;
            handle.sync_all()?;
            fs::rename(&temporary, &file)
        };
        write().map_err(|source| Error::io("write", &file, source))?;
        Ok(true)
    }

    /// Reads the file in a directory. `None` if there is none.
    pub(super) fn read(dir: &Path) -> Result<Option<Ranks>, Error> {
        let file = dir.join(FILE);
        match fs::read(&file) {
            Ok(bytes) => Ranks::decode(&bytes).map(Some).ok_or_else(|| damaged(&file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("read", &file, source)),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Ranks> {
        let (body, digest) = bytes.split_last_chunk::<DIGEST_BYTES>()?;
        let entries = body.strip_prefix(MAGIC)?;
        let (seq, entries) = entries.split_first_chunk()?;
        let (count, entries) = entries.split_first_chunk()?;
        let is_whole = u64::from_le_bytes(*count) == (entries.len() / ENTRY_BYTES) as u64;
        if !is_whole || blake3::hash(body).as_bytes() != digest {
            return None;
        }
        let sorted = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let (key, rank) = entry.split_at(ENTRY_BYTES / 2);
            let rank = f64::from_le_bytes(rank.try_into().ok()?);
            Some((u64::from_le_bytes(key.try_into().ok()?), rank))
        });
        Some(Ranks { seq: u64::from_le_bytes(*seq), sorted: sorted.collect::<Option<_>>()? })
    }
}

fn damaged(file: &Path) -> Error {
    let source = io::Error::new(
        io::ErrorKind::InvalidData,
        "the checksum does not match; `percolator webindex rank` writes the file again",
    );
    Error::io("read", file, source)
}

/// Reads the number of a file's state. `None` if the file is missing or its head is damaged.
fn seq_of(file: &Path) -> Result<Option<u64>, Error> {
    let mut head = [0; MAGIC.len() + 8];
    match fs::File::open(file).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => {
            let seq = head.strip_prefix(MAGIC).and_then(|seq| seq.try_into().ok());
            Ok(seq.map(u64::from_le_bytes))
        }
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(Error::io("read", file, error)),
        },
    }
}

/// The ranks of a directory, which are read again after any process has replaced them.
#[derive(Debug, Default)]
pub(super) struct Current(Mutex<Arc<Ranks>>);

impl Current {
    pub(super) fn get(&self, dir: &Path) -> Result<Arc<Ranks>, Error> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file: PathBuf = dir.join(FILE);
        if seq_of(&file)? != Some(current.seq) {
            *current = Arc::new(Ranks::read(dir)?.unwrap_or_default());
        }
        Ok(current.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(seq: u64, ranks: &[(&str, f64)]) -> Ranks {
        Ranks::new(seq, ranks.iter().map(|(url, rank)| ((*url).to_owned(), *rank)))
    }

    #[test]
    fn what_was_written_is_read_and_only_newer_states_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let current = Current::default();
        assert_eq!(current.get(dir.path()).unwrap().of(key("a")), 0.0);
        let odd = [("a", 0.25), ("b", 0.75), ("c", f64::NAN), ("d", -1.0)];
        assert!(ranks(5, &odd).write(dir.path()).unwrap());
        let held = current.get(dir.path()).unwrap();
        let of = |url| held.of(key(url));
        assert_eq!([of("a"), of("b"), of("c"), of("d"), of("e")], [0.25, 0.75, 0.0, 0.0, 0.0]);
        assert!(!ranks(5, &[]).write(dir.path()).unwrap());
        assert!(!ranks(4, &[]).write(dir.path()).unwrap());
        assert!(ranks(6, &[("a", 0.5)]).write(dir.path()).unwrap());
        let held = current.get(dir.path()).unwrap();
        assert_eq!((held.of(key("a")), held.of(key("b"))), (0.5, 0.0));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        ranks(1, &[("a", 0.25), ("b", 0.75)]).write(dir.path()).unwrap();
        let whole = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(Ranks::decode(&bytes).is_none(), "byte {at}");
            assert!(Ranks::decode(&whole[..at]).is_none(), "cut at {at}");
        }
        fs::write(dir.path().join(FILE), &whole[1..]).unwrap();
        let error = Current::default().get(dir.path()).unwrap_err().to_string();
        assert!(error.contains("RANKS") && error.contains("webindex rank"), "{error}");
        let mut bytes = whole;
        bytes[MAGIC.len() + 7] = 0xff;
        fs::write(dir.path().join(FILE), &bytes).unwrap();
        assert!(ranks(1, &[]).write(dir.path()).unwrap(), "a damaged number is no newer state");
    }
}

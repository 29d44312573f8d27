//! Stores the inventory: the list of keyspaces and journals that the store must have.
//!
//! ```text
//!   bigtable-fjall inventory 1
//!   keyspace 3 data            a keyspace of the engine, by number and name
//!   journal 6 reaches 4711     a journal, and a number that its last batch is at or above
//!   sum 8f3a..                 checksum of the lines above
//! ```
//!
//! The engine assumes that the files it finds are complete: a lost journal or keyspace would
//! look like an empty one. So the store keeps this list outside the engine's directory, and a
//! second name of each journal (`journals.rs`).
//!
//! Invariants:
//! * A keyspace is in the list before the first batch that writes to it.
//! * A journal is in the list before its first batch is acknowledged, unless the list cannot
//!   be written (`journals.rs`). It stays until the store has seen, while it is open, that the
//!   engine no longer needs the journal.
//! * The list is replaced by a rename, with syncs before and after, so a crash leaves the old
//!   list or the new one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::damage::Damage;
use crate::directory::sync_directory;

pub(crate) const FILE: &str = "INVENTORY";
const TITLE: &str = "bigtable-fjall inventory 1";

/// The store's list of keyspaces and journals.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// The names of keyspaces, by number.
    pub(crate) keyspaces: BTreeMap<u64, String>,
    /// The journals by number. The last batch of each journal has at least the number given
    /// here.
    pub(crate) journals: BTreeMap<u64, u64>,
}

impl Inventory {
    /// Reads the inventory of the store in `dir`. Returns `None` if the store has none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Inventory>, Damage> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Damage::io(&path, &error)),
            Ok(text) => match Inventory::parse(&text) {
                Some(inventory) => Ok(Some(inventory)),
                None => Err(Damage::new(&path, "its checksum or its form is not right")),
            },
        }
    }

    /// Replaces the inventory of the store in `dir` with this one.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let new: PathBuf = dir.join("INVENTORY.new");
        let mut file = File::create(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, dir.join(FILE))?;
        sync_directory(dir)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        // Writing to a string cannot fail.
        for (number, name) in &self.keyspaces {
            let _ = writeln!(text, "keyspace {number} {name}");
        }
        for (number, reaches) in &self.journals {
            let _ = writeln!(text, "journal {number} reaches {reaches}");
        }
        let sum = xxh3_64(text.as_bytes());
        let _ = writeln!(text, "sum {sum:016x}");
        text
    }

    fn parse(text: &[u8]) -> Option<Inventory> {
        let text = str::from_utf8(text).ok()?;
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let body = &text[..=body.len()];
        if sum != format!("sum {:016x}", xxh3_64(body.as_bytes())) {
            return None;
        }
        let mut inventory = Inventory::default();
        let mut lines = body.lines();
        if lines.next()? != TITLE {
            return None;
        }
        for line in lines {
            let (kind, rest) = line.split_once(' ')?;
            let (number, rest) = rest.split_once(' ')?;
            let number = number.parse().ok()?;
            match kind {
                "keyspace" => drop(inventory.keyspaces.insert(number, rest.to_owned())),
                "journal" => {
                    let reaches = rest.strip_prefix("reaches ")?.parse().ok()?;
                    inventory.journals.insert(number, reaches);
                }
                _ => return None,
            }
        }
        Some(inventory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_every_flipped_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Inventory::read(dir.path()).unwrap(), None);
        let inventory = Inventory {
            keyspaces: [(1, ".catalog".to_owned()), (3, "data history".to_owned())].into(),
            journals: [(5, 4711), (6, 0)].into(),
        };
        Inventory::default().write(dir.path()).unwrap();
        inventory.write(dir.path()).unwrap();
        assert_eq!(Inventory::read(dir.path()).unwrap(), Some(inventory));
        let text = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            assert_eq!(Inventory::parse(&damaged), None, "byte {at}");
            assert_eq!(Inventory::parse(&text[..at]), None, "cut at {at}");
        }
    }
}

//! Reads and writes the list of a backup, the file `BACKUP`.
//!
//! ```text
//!   bigtable-fjall backup 1
//!   format 5
//!   store 5f0c...                        the id of the store that was backed up
//!   made 1790000000                      in seconds since 1970
//!   file 9d1e...-2048 engine/0.jnl       a content, and where it belongs in a store
//!   sum 0123456789abcdef                 xxh3 of all lines before
//! ```

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use bigtable::{Error, Result, StoreId};
use xxhash_rust::xxh3::xxh3_64;

use crate::directory::{self, FORMAT};
use crate::failure::fault;

pub(super) const FILE: &str = "BACKUP";
pub(super) const FILES_DIR: &str = "files";

/// The origin and the size of a backup.
///
/// See [`FjallStore::backup`](crate::FjallStore::backup) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    /// The id of the store that was backed up.
    pub store: StoreId,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// How many files it has.
    pub files: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many of these files this backup wrote. The others are from an earlier backup.
    pub new_files: usize,
    /// How many of these bytes this backup wrote.
    pub new_bytes: u64,
}

const TITLE: &str = "bigtable-fjall backup 1";
const TITLE_OF_ANY: &str = "bigtable-fjall backup ";

/// The content of a file, as its checksum and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    /// The 128-bit xxh3 checksum, which the engine's manifests also have.
    pub(super) sum: u128,
    pub(super) bytes: u64,
}

impl Content {
    /// The name of the file that holds it in a backup.
    pub(super) fn name(self) -> String {
        format!("{:032x}-{}", self.sum, self.bytes)
    }

    pub(super) fn of_name(name: &str) -> Option<Content> {
        let (sum, bytes) = name.split_once('-')?;
        let content =
            Content { sum: u128::from_str_radix(sum, 16).ok()?, bytes: bytes.parse().ok()? };
        (content.name() == name).then_some(content)
    }
}

/// The files of a backup, and the store that they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    /// The format of the store.
    pub(super) format: u32,
    pub(super) store: StoreId,
    pub(super) made: u64,
    /// Each file of the store, by its path in the store's directory.
    pub(super) files: Vec<(String, Content)>,
}

impl List {
    /// An empty list, made now.
    pub(super) fn new(store: StoreId) -> List {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let made = now.map_or(0, |since| since.as_secs());
        List { format: FORMAT, store, made, files: Vec::new() }
    }

    /// Reads the list of the backup in `dir`; `None` if there is none.
    pub(super) fn read(dir: &Path) -> Result<Option<List>> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault::io(&path, "reading the list of the backup", &error)),
            Ok(text) => text,
        };
        match List::parse(&text) {
            Some(list) if directory::is_known(list.format) => Ok(Some(list)),
            Some(list) => {
                let problem = format!(
                    "the backup is of a store in format {}, and this release reads format {FORMAT}",
                    list.format
                );
                Err(fault::files(&path, problem, "restore it with a newer release"))
            }
            None if is_newer(&text) => {
                let problem = "a newer release of this program wrote this backup";
                Err(fault::files(&path, problem, "restore it with that release"))
            }
            None => {
                let problem =
                    "the list of the backup is damaged: its checksum or form is not right";
                Err(fault::files(&path, problem, "use another backup"))
            }
        }
    }

    /// Makes this the backup in `dir`.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        directory::replace(dir, FILE, self.text().as_bytes())
    }

    /// Describes the backup, and counts none of its files as new.
    pub(super) fn describe(&self) -> BackedUp {
        BackedUp {
            store: self.store,
            made: self.made,
            files: self.files.len(),
            bytes: self.files.iter().map(|(_, content)| content.bytes).sum(),
            new_files: 0,
            new_bytes: 0,
        }
    }

    fn text(&self) -> String {
        let List { format, store, made, files } = self;
        let mut text = format!("{TITLE}\nformat {format}\nstore {store}\nmade {made}\n");
        for (path, content) in files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "file {} {path}", content.name());
        }
        let sum = xxh3_64(text.as_bytes());
        let _ = writeln!(text, "sum {sum:016x}");
        text
    }

    fn parse(text: &[u8]) -> Option<List> {
        let text = str::from_utf8(text).ok()?;
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let body = &text[..=body.len()];
        if sum != format!("sum {:016x}", xxh3_64(body.as_bytes())) {
            return None;
        }
        let mut lines = body.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name);
        field(TITLE)?;
        let format = field("format ")?.parse().ok()?;
        let store = field("store ")?.parse().ok()?;
        let made = field("made ")?.parse().ok()?;
        let mut files = Vec::new();
        for line in lines {
            let (content, path) = line.strip_prefix("file ")?.split_once(' ')?;
            files.push((stays_inside(path)?.to_owned(), Content::of_name(content)?));
        }
        Some(List { format, store, made, files })
    }
}

fn is_newer(text: &[u8]) -> bool {
    let title = text.split(|byte| *byte == b'\n').next();
    let number = title.and_then(|title| str::from_utf8(title).ok()?.strip_prefix(TITLE_OF_ANY));
    number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number > 1)
}

/// The path, if it leads nowhere out of the directory that it is taken in.
fn stays_inside(path: &str) -> Option<&str> {
    let plain = |part| matches!(part, Component::Normal(_));
    (!path.is_empty() && Path::new(path).components().all(plain)).then_some(path)
}

/// Where a content lies in a backup.
pub(super) fn content_file(dir: &Path, content: Content) -> PathBuf {
    dir.join(FILES_DIR).join(content.name())
}

/// The error of a file in a backup that is not as it was written.
pub(super) fn damaged(path: &Path, problem: &str) -> Error {
    fault::files(
        path,
        format!("the backup is damaged: {problem}"),
        "use another backup; another backup into this directory writes the file again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let content = Content { sum: 0xfeed << 64, bytes: 77 };
        let files = vec![
            ("engine/0.jnl".to_owned(), content),
            ("engine/keyspaces/1/tables/3".to_owned(), Content { sum: 5, bytes: 0 }),
        ];
        List { files, made: 1_790_000_000, ..List::new(StoreId::new(9)) }
    }

    #[test]
    fn what_is_written_is_read_and_every_flipped_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(List::read(dir.path()).unwrap(), None);
        list().write(dir.path()).unwrap();
        assert_eq!(List::read(dir.path()).unwrap(), Some(list()));
        let text = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            assert_eq!(List::parse(&damaged), None, "byte {at}");
            assert_eq!(List::parse(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_store() {
        for path in ["../FORMAT", "/etc/passwd", "engine/../../x", "", "./x"] {
            let files = vec![(path.to_owned(), Content { sum: 1, bytes: 1 })];
            let text = List { files, ..list() }.text();
            assert_eq!(List::parse(text.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn a_later_release_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join(FILE), text).unwrap();
            List::read(dir.path()).unwrap_err().to_string()
        };
        let text = list().text();
        let newer = read(&text.replace(TITLE, "bigtable-fjall backup 2"));
        assert!(newer.contains("a newer release"), "{newer}");
        let newer = read(&List { format: FORMAT + 1, ..list() }.text());
        assert!(newer.contains("with a newer release"), "{newer}");
        assert!(read(&text[..text.len() / 2]).contains("damaged"));
    }
}

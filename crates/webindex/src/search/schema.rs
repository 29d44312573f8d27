//! The fields of the search index, and the check that a directory holds an index of this format.
//!
//! A file of our own names the format. It is written before tantivy's files, so that a directory
//! with tantivy's but without ours is somebody else's, and one with ours alone is an index whose
//! making was interrupted.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tantivy::schema::{FAST, Field, INDEXED, STORED, STRING, Schema, TEXT, Value};
use tantivy::{Index, TantivyDocument};

use super::{EXCERPT_BYTES_MAX, IndexedPage, Update, failed};
use crate::{Error, cut};

pub(super) const RANK: &str = "rank";
pub(super) const SEQ: &str = "seq";
pub(super) const DELETED: &str = "deleted";

/// The name of the file that says what the directory holds.
const FORMAT_FILE: &str = "FORMAT";

/// Locked while the index is made. Never deleted: another process may be about to lock it.
const MAKING_FILE: &str = "MAKING";

/// The file in which tantivy keeps what its index consists of.
const META_FILE: &str = "meta.json";

/// The content of the format's file. The number changes with the fields, and with the meaning of the digest.
const FORMAT: &str = "webindex search index 1";

/// The most bytes of a format file that are read, in case it is something else.
const FORMAT_BYTES_MAX: usize = 200;

/// The fields by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) url: Field,
    pub(super) title: Field,
    pub(super) text: Field,
    pub(super) anchors: Field,
    pub(super) excerpt: Field,
    pub(super) digest: Field,
    pub(super) deleted: Field,
    rank: Field,
    seq: Field,
}

impl Fields {
    fn build() -> (Schema, Fields) {
        let mut schema = Schema::builder();
        let fields = Fields {
            url: schema.add_text_field("url", STRING | STORED),
            title: schema.add_text_field("title", TEXT | STORED),
            text: schema.add_text_field("text", TEXT),
            anchors: schema.add_text_field("anchors", TEXT),
            excerpt: schema.add_text_field("excerpt", STORED),
            digest: schema.add_bytes_field("digest", STORED),
            deleted: schema.add_bool_field(DELETED, FAST | INDEXED),
            rank: schema.add_f64_field(RANK, FAST),
            seq: schema.add_u64_field(SEQ, FAST | STORED),
        };
        (schema.build(), fields)
    }

    /// Makes the document of an update; of a deletion, the tombstone.
    pub(super) fn document(&self, update: &Update) -> TantivyDocument {
        let mut document = TantivyDocument::new();
        document.add_text(self.url, &update.url);
        document.add_u64(self.seq, update.seq);
        document.add_bool(self.deleted, update.page.is_none());
        let Some(page) = &update.page else { return document };
        let IndexedPage { title, text, anchors, rank } = page;
        document.add_text(self.title, title);
        document.add_text(self.text, text);
        for anchor in anchors {
            document.add_text(self.anchors, anchor);
        }
        document.add_text(self.excerpt, cut::at_bytes(text, EXCERPT_BYTES_MAX));
        document.add_bytes(self.digest, &page.digest());
        document.add_f64(self.rank, *rank);
        document
    }
}

/// Returns a stored text, or the empty string.
pub(super) fn text_of(document: &TantivyDocument, field: Field) -> String {
    document.get_first(field).and_then(|value| value.as_str()).unwrap_or_default().to_string()
}

/// Opens the index in a directory, or makes it.
pub(super) fn open(path: &Path) -> Result<(Index, Fields), Error> {
    fs::create_dir_all(path).map_err(|source| Error::io("make the directory", path, source))?;
    // Workers that come up together make it once.
    let made = read_format(path)?.is_some() && path.join(META_FILE).exists();
    let _making = if made { None } else { Some(making(path)?) };
    match read_format(path)? {
        Some(found) if found == FORMAT => {}
        Some(found) => {
            let path = path.to_path_buf();
            return Err(Error::IndexFormat { path, found, expected: FORMAT });
        }
        None => write_format(path)?,
    }
    let (schema, fields) = Fields::build();
    let index = if path.join(META_FILE).exists() {
        Index::open_in_dir(path).map_err(|source| failed("open", path, source))?
    } else {
        Index::create_in_dir(path, schema.clone()).map_err(|source| failed("make", path, source))?
    };
    if index.schema() == schema {
        Ok((index, fields))
    } else {
        let found = "other fields".to_string();
        Err(Error::IndexFormat { path: path.to_path_buf(), found, expected: FORMAT })
    }
}

/// Returns what the directory says of itself; `None` if it is empty.
fn read_format(path: &Path) -> Result<Option<String>, Error> {
    let file = path.join(FORMAT_FILE);
    match fs::read(&file) {
        Ok(mut bytes) => {
            bytes.truncate(FORMAT_BYTES_MAX);
            Ok(Some(String::from_utf8_lossy(&bytes).trim().to_string()))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let failed = |source| Error::io("list the directory", path, source);
            for entry in fs::read_dir(path).map_err(failed)? {
                // Left behind when the making was interrupted before it had begun.
                let name = entry.map_err(failed)?.file_name();
                if name != temporary_name().as_str() && name != MAKING_FILE {
                    let expected = "search index";
                    return Err(Error::ForeignDirectory { path: path.to_path_buf(), expected });
                }
            }
            Ok(None)
        }
        Err(source) => Err(Error::io("read", &file, source)),
    }
}

/// Waits for others that make the index, and keeps further ones waiting until it is dropped.
fn making(path: &Path) -> Result<fs::File, Error> {
    let file = path.join(MAKING_FILE);
    let lock = || {
        let file = fs::File::create(&file)?;
        file.lock()?;
        Ok(file)
    };
    lock().map_err(|source| Error::io("lock", &file, source))
}

fn write_format(path: &Path) -> Result<(), Error> {
    let file = path.join(FORMAT_FILE);
    let temporary = path.join(temporary_name());
    let write = || {
        let mut handle = fs::File::create(&temporary)?;
        writeln!(handle, "{FORMAT}")?;
        handle.sync_all()?;
        fs::rename(&temporary, &file)
    };
    write().map_err(|source| Error::io("write", &file, source))
}

fn temporary_name() -> String {
    format!("{FORMAT_FILE}.tmp")
}

//! Defines the fields of the search index, and checks that a directory holds an index of this
//! format.
//!
//! Our own file `FORMAT` names the format. It is written before tantivy's files. So a
//! directory that has other files but not ours belongs to another program. A directory
//! with only our file is an index whose creation was interrupted. The file `STORE` names the store
//! whose pages the index shows. The file `MAKING` is the lock for creating an index.
//!
//! A writer deletes and recreates an index of an earlier format, unless another process writes to
//! it. A reader refuses such an index. A writer also recreates an index that does not name its
//! store; a reader does not look at that name. Observers export a page only when it changes. So a
//! new index lacks the pages that were exported before, to an earlier index. The file `REBUILD`
//! marks every new index until the export of all pages is certain. The subdirectories
//! `generation-N` are indexes of their own (`generations.rs`).
//!
//! The index holds each word as it stands and as its English stem, and the text of every page.
//! So the exact form ranks first, other forms are found, and a snippet needs no read of the
//! store. The digest of a page lies in two columns of numbers, not in a stored field. Many exports
//! only compare digests and write nothing, and a read of stored fields would load the texts too.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use percolator::store::StoreId;
use tantivy::columnar::Column;
use tantivy::directory::error::LockError;
use tantivy::directory::{DirectoryLock, INDEX_WRITER_LOCK, MmapDirectory};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing,
    TextOptions, Value,
};
use tantivy::{Directory, DocId, Index, SegmentReader, TantivyDocument};
use url::Url;

use super::update::{IndexedPage, Update, failed};
use super::{ranks, words};
use crate::Error;

const SEQ: &str = "seq";
const DELETED: &str = "deleted";
pub(super) const KEY: &str = "key";
pub(super) const LINK_DENSITY: &str = "link_density";
/// The two halves of the digest. They are columns, because a commit compares many digests, and
/// reading stored fields would read the texts beside them.
const DIGEST: [&str; 2] = ["digest_first", "digest_last"];

/// The name of the file that states the format of the directory.
const FORMAT_FILE: &str = "FORMAT";

/// The file that names the store whose documents the index shows.
const STORE_FILE: &str = "STORE";

/// Locked while an index is created. Never deleted, because another process may be about to
/// lock it.
const MAKING_FILE: &str = "MAKING";

/// Exists while the index lacks pages that only the documents have.
const REBUILD_FILE: &str = "REBUILD";

/// The directory of a later generation has this name, followed by its number.
pub(super) const GENERATION: &str = "generation-";

/// The file in which tantivy lists the parts of its index.
const META_FILE: &str = "meta.json";

/// The content of the format file: this prefix and the number of the format.
const FORMAT_PREFIX: &str = "webindex search index ";

/// The number must change when the fields, the division of text into words, or the meaning of
/// the digest change.
const FORMAT_NUMBER: u32 = 3;

const FORMAT: &str = "webindex search index 3";

/// The most bytes of a format file that are read, in case the file is something else.
const FORMAT_BYTES_MAX: usize = 200;

/// The fields by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) url: Field,
    pub(super) title: Field,
    pub(super) title_stems: Field,
    pub(super) text: Field,
    pub(super) text_stems: Field,
    pub(super) anchors: Field,
    pub(super) anchors_stems: Field,
    /// The words of the address.
    pub(super) path: Field,
    /// The host, the hosts above it, and the address without its scheme.
    pub(super) site: Field,
    /// The unchanged text, for snippets.
    pub(super) body: Field,
    pub(super) deleted: Field,
    /// The key of the page's rank.
    key: Field,
    /// How many hyperlinks the page has for each byte of its text.
    link_density: Field,
    seq: Field,
    digest: [Field; 2],
}

impl Fields {
    fn build() -> (Schema, Fields) {
        let mut schema = Schema::builder();
        let read_as = |name: &str| {
            let indexing = TextFieldIndexing::default().set_tokenizer(name);
            let indexing = indexing.set_index_option(IndexRecordOption::WithFreqsAndPositions);
            TextOptions::default().set_indexing_options(indexing)
        };
        let words = || read_as(words::WORDS);
        let stems = || read_as(words::STEMS);
        let fields = Fields {
            url: schema.add_text_field("url", STRING | STORED),
            title: schema.add_text_field("title", words().set_stored()),
            title_stems: schema.add_text_field("title_stems", stems()),
            text: schema.add_text_field("text", words()),
            text_stems: schema.add_text_field("text_stems", stems()),
            anchors: schema.add_text_field("anchors", words()),
            anchors_stems: schema.add_text_field("anchors_stems", stems()),
            path: schema.add_text_field("path", stems()),
            site: schema.add_text_field("site", STRING),
            body: schema.add_text_field("body", STORED),
            deleted: schema.add_bool_field(DELETED, FAST | INDEXED),
            key: schema.add_u64_field(KEY, FAST),
            link_density: schema.add_f64_field(LINK_DENSITY, FAST),
            seq: schema.add_u64_field(SEQ, FAST),
            digest: DIGEST.map(|name| schema.add_u64_field(name, FAST)),
        };
        (schema.build(), fields)
    }

    /// Builds the document of an update, or the tombstone of a deletion.
    pub(super) fn document(&self, update: &Update) -> TantivyDocument {
        let mut document = TantivyDocument::new();
        document.add_text(self.url, &update.url);
        document.add_u64(self.seq, update.seq);
        document.add_bool(self.deleted, update.page.is_none());
        let Some(page) = &update.page else { return document };
        let IndexedPage { title, text, hyperlinks, anchors } = page;
        document.add_u64(self.key, ranks::key(&update.url));
        let density = *hyperlinks as f64 / text.len().max(1) as f64;
        document.add_f64(self.link_density, density);
        for field in [self.title, self.title_stems] {
            document.add_text(field, title);
        }
        for field in [self.text, self.text_stems, self.body] {
            document.add_text(field, text);
        }
        for anchor in anchors {
            document.add_text(self.anchors, anchor);
            document.add_text(self.anchors_stems, anchor);
        }
        if let Ok(url) = Url::parse(&update.url) {
            self.add_address(&mut document, &url);
        }
        let digest = page.digest();
        document.add_u64(self.digest[0], (digest >> 64) as u64);
        document.add_u64(self.digest[1], digest as u64);
        document
    }

    fn add_address(&self, document: &mut TantivyDocument, url: &Url) {
        document.add_text(self.path, path_words(url));
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        let above = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        let is_name = url.domain().is_some();
        for name in std::iter::once(host).chain(above.filter(|_| is_name)) {
            document.add_text(self.site, name);
        }
        if let Some(port) = port {
            document.add_text(self.site, format!("{host}:{port}"));
        }
        let scheme = url.scheme().len() + "://".len();
        document.add_text(self.site, url.as_str().get(scheme..).unwrap_or_default());
    }
}

/// The numbers that a segment keeps of each document in columns. They can be read without the
/// stored fields, which lie beside the text.
pub(super) struct Columns {
    seq: Column<u64>,
    deleted: Column<bool>,
    digest: [Column<u64>; 2],
}

impl Columns {
    pub(super) fn of(segment: &SegmentReader) -> tantivy::Result<Self> {
        let columns = segment.fast_fields();
        Ok(Columns {
            seq: columns.u64(SEQ)?,
            deleted: columns.bool(DELETED)?,
            digest: [columns.u64(DIGEST[0])?, columns.u64(DIGEST[1])?],
        })
    }

    /// Whether the document is a page, and not a tombstone.
    pub(super) fn is_live(&self, doc: DocId) -> bool {
        self.deleted.first(doc) != Some(true)
    }

    pub(super) fn seq(&self, doc: DocId) -> Option<u64> {
        self.seq.first(doc)
    }

    /// Returns the digest. `None` for a tombstone.
    pub(super) fn digest(&self, doc: DocId) -> Option<u128> {
        let halves = self.digest.each_ref().map(|half| half.first(doc).map(u128::from));
        Some((halves[0]? << 64) | halves[1]?)
    }
}

/// Returns the end of a path, where names usually are: the last directory and the file,
/// without the file's extension.
fn path_words(url: &Url) -> String {
    let path = url.path().trim_end_matches('/');
    let mut segments = path.rsplit('/');
    let file = segments.next().unwrap_or_default();
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let stem = if stem == "index" { "" } else { stem };
    format!("{} {stem}", segments.next().unwrap_or_default())
}

/// Returns a stored text, or the empty string if there is none.
pub(super) fn text_of(document: &TantivyDocument, field: Field) -> String {
    document.get_first(field).and_then(|value| value.as_str()).unwrap_or_default().to_string()
}

/// Opens the index of a store in a directory, or creates it. An index is created again if it has
/// an earlier format, or does not name this store. If `store` is `None`, the index of any store
/// is opened.
pub(super) fn open(path: &Path, store: Option<StoreId>) -> Result<(Index, Fields), Error> {
    make_dir(path)?;
    // The lock ensures that workers that start at the same time create the index once.
    let is_named = |found: Option<String>| store.is_none_or(|id| found == Some(id.to_string()));
    let made = read_format(path)?.as_deref() == Some(FORMAT)
        && path.join(META_FILE).exists()
        && is_named(read_store(path)?);
    let _making = if made { None } else { Some(making(path)?) };
    match read_format(path)? {
        Some(found) if found == FORMAT => {
            // The index may show documents of a store with another history, so it is emptied.
            if !is_named(read_store(path)?) {
                empty(path)?;
            }
        }
        Some(found) if is_earlier(&found) => {
            empty(path)?;
            write_format(path)?;
        }
        Some(found) => return Err(other_format(path, found)),
        None => write_format(path)?,
    }
    if !path.join(META_FILE).exists() {
        let mark = path.join(REBUILD_FILE);
        fs::write(&mark, "").map_err(|source| Error::io("write", &mark, source))?;
        let (schema, _) = Fields::build();
        Index::create_in_dir(path, schema).map_err(|source| failed("make", path, source))?;
    }
    if let Some(id) = store.filter(|_| !made) {
        write_file(path, STORE_FILE, &id.to_string())?;
    }
    opened(path)
}

/// Creates the directory of an index. Only its user may read a new one: it holds the texts of all
/// pages. A directory that exists keeps its mode.
fn make_dir(path: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| Error::io("make the directory", path, source))
}

/// Creates an empty index of a store, in place of the index in the directory, if there is one.
pub(super) fn open_empty(path: &Path, store: Option<StoreId>) -> Result<(Index, Fields), Error> {
    make_dir(path)?;
    if read_format(path)?.is_some() {
        empty(path)?;
    }
    open(path, store)
}

/// Whether a directory holds an index of any format. The directory may be missing.
pub(super) fn is_there(path: &Path) -> bool {
    path.join(FORMAT_FILE).exists() && path.join(META_FILE).exists()
}

/// Opens an existing index, and changes nothing in its directory.
pub(super) fn open_existing(path: &Path) -> Result<(Index, Fields), Error> {
    match read_format(path) {
        Ok(Some(found)) if found == FORMAT && path.join(META_FILE).exists() => opened(path),
        Ok(Some(found)) if found == FORMAT => Err(Error::NoIndex { path: path.to_path_buf() }),
        Ok(Some(found)) => Err(other_format(path, found)),
        Ok(None) => Err(Error::NoIndex { path: path.to_path_buf() }),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoIndex { path: path.to_path_buf() })
        }
        Err(error) => Err(error),
    }
}

fn opened(path: &Path) -> Result<(Index, Fields), Error> {
    let (schema, fields) = Fields::build();
    let index = Index::open_in_dir(path).map_err(|source| failed("open", path, source))?;
    if index.schema() != schema {
        return Err(other_format(path, "other fields".to_string()));
    }
    words::register(&index);
    Ok((index, fields))
}

/// Whether the index lacks pages that only the documents have.
pub(super) fn is_incomplete(path: &Path) -> bool {
    path.join(REBUILD_FILE).exists()
}

/// Records that the export of all pages is certain.
pub(super) fn set_complete(path: &Path) -> Result<(), Error> {
    let mark = path.join(REBUILD_FILE);
    match fs::remove_file(&mark) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("delete", &mark, source))
        }
        _ => Ok(()),
    }
}

/// The generation whose directory has this name.
pub(super) fn generation_of(name: &str) -> Option<u64> {
    name.strip_prefix(GENERATION)?.parse().ok()
}

fn number_of(format: &str) -> Option<u32> {
    format.strip_prefix(FORMAT_PREFIX)?.parse().ok()
}

fn is_earlier(format: &str) -> bool {
    number_of(format).is_some_and(|number| number < FORMAT_NUMBER)
}

fn other_format(path: &Path, found: String) -> Error {
    let remedy = if is_earlier(&found) {
        "`percolator webindex load`, `rank` or `verify` rebuilds it from the documents"
    } else {
        "delete that directory, and the next `percolator webindex load` rebuilds it"
    };
    Error::IndexFormat { path: path.to_path_buf(), found, expected: FORMAT, remedy }
}

/// Deletes the files of an index of an earlier format, another store or an earlier generation,
/// unless a process writes to it. The files that name the format and the store stay until they are
/// replaced. So after an interruption the next opening tries again.
pub(super) fn empty(path: &Path) -> Result<(), Error> {
    let _lock = writer_lock(path)?;
    delete_files(path)
}

/// Deletes the directory of an index, unless a process writes to it.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    let _lock = writer_lock(path)?;
    // The file that names the format goes last, so an interrupted removal can be repeated.
    delete_files(path)?;
    fs::remove_dir_all(path).map_err(|source| Error::io("delete", path, source))
}

fn writer_lock(path: &Path) -> Result<DirectoryLock, Error> {
    let directory =
        MmapDirectory::open(path).map_err(|source| failed("open", path, source.into()))?;
    directory.acquire_lock(&INDEX_WRITER_LOCK).map_err(|error| match error {
        LockError::LockBusy => Error::IndexInUse { path: path.to_path_buf() },
        LockError::IoError(source) => Error::Io {
            action: "lock",
            path: path.to_path_buf(),
            source: io::Error::new(source.kind(), source),
        },
    })
}

fn delete_files(path: &Path) -> Result<(), Error> {
    let listed = |source| Error::io("list the directory", path, source);
    for entry in fs::read_dir(path).map_err(listed)? {
        let file = entry.map_err(listed)?.path();
        let name = file.file_name().unwrap_or_default();
        let stays = [FORMAT_FILE, MAKING_FILE, STORE_FILE].iter().any(|file| name == *file)
            || name.to_str().is_some_and(|name| generation_of(name).is_some());
        if stays || file.extension().is_some_and(|extension| extension == "lock") {
            continue;
        }
        fs::remove_file(&file).map_err(|source| Error::io("delete", &file, source))?;
    }
    Ok(())
}

/// Reads the format of the directory. `None` if the directory is empty.
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
                // These files remain if the creation was interrupted before it began.
                let name = entry.map_err(failed)?.file_name();
                let is_generation = name.to_str().and_then(generation_of).is_some();
                if name != temporary_name().as_str() && name != MAKING_FILE && !is_generation {
                    // Another process may have created the index since `file` was read.
                    if file.exists() {
                        return read_format(path);
                    }
                    let expected = "search index";
                    return Err(Error::ForeignDirectory { path: path.to_path_buf(), expected });
                }
            }
            Ok(None)
        }
        Err(source) => Err(Error::io("read", &file, source)),
    }
}

/// Waits for other processes that create the index. Others wait until the returned file is
/// dropped.
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
    write_file(path, FORMAT_FILE, FORMAT)
}

/// Reads the id of the store whose documents the index shows. An index of an earlier version
/// has no such file.
fn read_store(path: &Path) -> Result<Option<String>, Error> {
    let file = path.join(STORE_FILE);
    match fs::read(&file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_string())),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io("read", &file, source)),
    }
}

fn write_file(path: &Path, name: &str, line: &str) -> Result<(), Error> {
    let file = path.join(name);
    let temporary = path.join(temporary_name());
    let write = || {
        let mut handle = fs::File::create(&temporary)?;
        writeln!(handle, "{line}")?;
        handle.sync_all()?;
        fs::rename(&temporary, &file)
    };
    write().map_err(|source| Error::io("write", &file, source))
}

fn temporary_name() -> String {
    format!("{FORMAT_FILE}.tmp")
}

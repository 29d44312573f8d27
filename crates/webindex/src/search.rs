//! The search index: what exported pages are found by, kept by tantivy in a directory of its own.
//!
//! The exporter delivers each page at least once, and deliveries may be late, doubled or out of
//! order. Therefore every document carries the sequence number of the state that it shows, and
//! [`SearchIndex::apply`] takes an [`Update`] only if its number is higher than the one held. A
//! deleted page leaves a tombstone, a document with URL and number only, so that a late delivery
//! of an older state does not bring it back.
//!
//! Invariants:
//!
//! * For each URL there is at most one document, and its number never decreases.
//! * A batch is applied as a whole or not at all, also when the process is killed: tantivy's
//!   commit replaces one file.
//! * What [`SearchIndex::apply`] has returned is visible to the next [`SearchIndex::search`].
//! * Memory is bounded by [`WRITER_BYTES`] plus the batch, whatever the size of the index.
//!
//! One process writes at a time. The lock belongs to the process, not to a file's existence, so
//! after `kill -9` nothing needs to be cleaned up. Not here: dropping old tombstones, whose number
//! is that of the pages ever deleted.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use tantivy::collector::{Count, TopDocs};
use tantivy::query::{BooleanQuery, Occur, Query, QueryParser, TermQuery};
use tantivy::schema::{IndexRecordOption, Value};
use tantivy::snippet::SnippetGenerator;
use tantivy::{
    DocAddress, DocId, Index, IndexReader, ReloadPolicy, Score, Searcher, SegmentReader,
    TantivyDocument, TantivyError, Term,
};

use self::schema::Fields;
use self::write::{Held, Writer};
use crate::{Error, cut};

mod schema;
mod write;

#[cfg(test)]
mod tests;

/// How much memory the writer gathers documents in.
pub const WRITER_BYTES: usize = 48 << 20;

/// How much of a page's text is stored to make snippets from, at a character boundary.
pub const EXCERPT_BYTES_MAX: usize = 4 << 10;

/// The most hits that one search returns.
pub const HITS_MAX: usize = 1_000;

/// Where a query is cut, at a character boundary.
pub const QUERY_BYTES_MAX: usize = 512;

/// How long a snippet is at most.
const SNIPPET_CHARS_MAX: usize = 200;

const TITLE_BOOST: Score = 3.0;
const ANCHORS_BOOST: Score = 2.0;

/// How much the rank counts: a page of ten times the average rank scores 1.7 times as much as its
/// words alone would, an average one 1.2 times.
const RANK_WEIGHT: f64 = 0.3;

/// The state of a page to be shown, or its deletion.
///
/// ```
/// use webindex::search::Update;
///
/// let delete = Update { url: "https://example.org/a".into(), seq: 7, page: None };
/// assert!(delete.page.is_none());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The canonical URL.
    pub url: String,
    /// The number of the state: of two updates of one URL, the higher one is newer.
    pub seq: u64,
    /// What to show; `None` deletes.
    pub page: Option<IndexedPage>,
}

/// What a page is found by.
///
/// ```
/// use webindex::search::IndexedPage;
///
/// let page = IndexedPage { title: "Fish".into(), ..IndexedPage::default() };
/// let other = IndexedPage { text: "Fish".into(), ..IndexedPage::default() };
/// assert_ne!(page.digest(), other.digest());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IndexedPage {
    /// The title.
    pub title: String,
    /// The visible text.
    pub text: String,
    /// What links to the page say; the order counts for the digest.
    pub anchors: Vec<String>,
    /// The share of all rank, so that the ranks of all pages sum up to about 1.
    pub rank: f64,
}

impl IndexedPage {
    /// Returns a digest of title, text and anchors. The rank is left out: it is a number to
    /// compare with a tolerance.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let parts = [&self.title, &self.text].into_iter().chain(&self.anchors);
        for part in parts {
            // The length goes first, so that no two lists of parts look the same.
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// What became of a batch.
///
/// ```
/// let applied = webindex::search::Applied::default();
/// assert_eq!(applied.written + applied.deleted + applied.stale, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Pages added or replaced.
    pub written: usize,
    /// Pages deleted, or noted as deleted before they were ever seen.
    pub deleted: usize,
    /// Pages that are held already as they are to be shown.
    pub unchanged: usize,
    /// Updates that were not newer than what is held or than another one in the batch.
    pub stale: usize,
}

/// A page that a search found.
///
/// ```
/// use webindex::search::Hit;
///
/// let hit = Hit {
///     url: "https://example.org/".into(),
///     title: String::new(),
///     snippet: "fresh fish".into(),
///     highlights: vec![6..10],
///     score: 1.0,
///     rank: 0.5,
/// };
/// assert_eq!(&hit.snippet[hit.highlights[0].clone()], "fish");
/// ```
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Hit {
    /// The canonical URL.
    pub url: String,
    /// The title.
    pub title: String,
    /// A piece of the page's text: text, not HTML.
    pub snippet: String,
    /// The byte ranges of the snippet that match the query.
    pub highlights: Vec<Range<usize>>,
    /// The score: higher is better, comparable within one search only.
    pub score: f32,
    /// The rank that the page was written with.
    pub rank: f64,
}

/// What the index holds of a live page, to be compared with what it should hold.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use webindex::search::{IndexedPage, SearchIndex, Update};
///
/// let index = SearchIndex::open(dir.path())?;
/// let page = IndexedPage { title: "Fish".into(), rank: 0.5, ..IndexedPage::default() };
/// index.apply(vec![Update { url: "https://a/".into(), seq: 3, page: Some(page.clone()) }])?;
/// index.dump(|entry| assert_eq!((entry.digest, entry.seq), (page.digest(), 3)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The canonical URL.
    pub url: String,
    /// The title.
    pub title: String,
    /// The page's [`IndexedPage::digest`].
    pub digest: [u8; 32],
    /// The rank that the page was written with.
    pub rank: f64,
    /// The number of the state.
    pub seq: u64,
}

/// A search index in a directory, see the [module](self).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use webindex::search::{IndexedPage, SearchIndex, Update};
///
/// let index = SearchIndex::open(dir.path())?;
/// let page = IndexedPage { text: "Fresh fish daily.".into(), ..IndexedPage::default() };
/// index.apply(vec![Update { url: "https://a/".into(), seq: 1, page: Some(page) }])?;
/// assert_eq!(index.search("fish", 10)?[0].url, "https://a/");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SearchIndex {
    path: PathBuf,
    index: Index,
    reader: IndexReader,
    fields: Fields,
    /// Made when first needed: whoever only searches needs neither the lock nor the memory.
    writer: Mutex<Option<Writer>>,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SearchIndex {
    /// Opens the index in `path`, or makes one if the directory is empty or missing.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDirectory`] if something else is there, [`Error::IndexFormat`] if another
    /// version wrote it, [`Error::Io`] and [`Error::Index`] if the files cannot be read or made.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (index, fields) = schema::open(path)?;
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()
            .map_err(|source| failed("open", path, source))?;
        Ok(SearchIndex {
            path: path.to_path_buf(),
            index,
            reader,
            fields,
            writer: Mutex::default(),
        })
    }

    /// Compares the checksums of all files of the index in `path`, which must be there; returns the names
    /// of those that differ. Nobody may write to the index meanwhile.
    ///
    /// # Errors
    ///
    /// As [`open`](SearchIndex::open).
    pub fn damaged_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
        let (index, _) = schema::open(path)?;
        let damaged = index.validate_checksum().map_err(|source| failed("check", path, source))?;
        let mut damaged: Vec<_> = damaged.into_iter().collect();
        damaged.sort();
        Ok(damaged)
    }

    /// Applies a batch in one commit; what is not newer than what is held counts as stale, and a page
    /// that is held as it is to be shown is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::IndexInUse`] while another process writes. [`Error::IndexFull`] if the disk has no room for
    /// what the writer gathers and one merge of all that is there; [`Error::Index`] if writing failed,
    /// [`Error::Superseded`] if the batch is older than what another one has shown of its pages:
    /// then nothing of the batch was applied; make it anew from the present state.
    pub fn apply(&self, batch: Vec<Update>) -> Result<Applied, Error> {
        self.check_room()?;
        let mut slot = self.lock();
        let writer = match &mut *slot {
            Some(writer) => writer,
            None => slot.insert(Writer::open(self)?),
        };
        if let Some(floor) = writer.floor()
            && let Some(late) = batch.iter().find(|update| update.seq <= floor)
        {
            return Err(Error::Superseded { seq: late.seq, floor });
        }
        match writer.write(self, batch) {
            Ok(applied) => Ok(applied),
            Err(source) => {
                // The writer holds half a batch, or its threads are gone: the next one starts
                // from the last commit.
                *slot = None;
                Err(failed("write to", &self.path, source))
            }
        }
    }

    /// Tantivy cannot say what it has written when it finds no space; so it does not begin.
    fn check_room(&self) -> Result<(), Error> {
        let Some(free) = percolator::free_bytes(&self.path) else { return Ok(()) };
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let held =
            files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum::<u64>();
        let wanted = held.saturating_add(WRITER_BYTES as u64);
        if free >= wanted {
            return Ok(());
        }
        Err(Error::IndexFull { path: self.path.clone(), free, wanted })
    }

    /// Becomes the writer, unless another process is: `false` then.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read or written.
    pub fn claim(&self) -> Result<bool, Error> {
        let mut slot = self.lock();
        if slot.is_none() {
            match Writer::open(self) {
                Ok(writer) => *slot = Some(writer),
                Err(Error::IndexInUse { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The index as of now.
    fn searcher(&self) -> tantivy::Result<Searcher> {
        // Its own writer, which is busy if it holds the lock, shows what it commits. Another process's
        // commits are to be looked for.
        if self.writer.try_lock().is_ok_and(|writer| writer.is_none()) {
            self.reader.reload()?;
        }
        Ok(self.reader.searcher())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(|poisoned| {
            // A panic came in the middle of a batch, which the next commit must not include.
            self.writer.clear_poison();
            let mut slot = poisoned.into_inner();
            *slot = None;
            slot
        })
    }

    /// Finds the best pages for a query: all words must occur; `"a phrase"`, `a OR b`, `-not` and
    /// `title:word` are understood, and what is no valid syntax is ignored.
    ///
    /// Title and anchors count more than the text, and the rank gently raises the score. At most
    /// [`HITS_MAX`] hits are returned; equal scores come in no particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, Error> {
        let limit = limit.min(HITS_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        self.hits(query, limit).map_err(|source| failed("read", &self.path, source))
    }

    fn hits(&self, query: &str, limit: usize) -> tantivy::Result<Vec<Hit>> {
        let searcher = self.searcher()?;
        let query = self.parse(query);
        let pages = searcher.num_docs() as f64;
        let top = TopDocs::with_limit(limit).tweak_score(move |segment: &SegmentReader| {
            let ranks = segment.fast_fields().f64(schema::RANK).ok();
            move |doc: DocId, score: Score| {
                let rank = ranks.as_ref().and_then(|ranks| ranks.first(doc)).unwrap_or_default();
                let relative = if rank.is_finite() { rank.max(0.0) * pages } else { 0.0 };
                score * (1.0 + RANK_WEIGHT * relative.ln_1p()) as Score
            }
        });
        let found = searcher.search(&query, &top)?;
        let mut snippets = SnippetGenerator::create(&searcher, &*query, self.fields.text)?;
        snippets.set_max_num_chars(SNIPPET_CHARS_MAX);
        found
            .into_iter()
            .map(|(score, address)| self.hit(&searcher, &snippets, score, address))
            .collect()
    }

    fn parse(&self, query: &str) -> Box<dyn Query> {
        let Fields { title, anchors, text, .. } = self.fields;
        let mut parser = QueryParser::for_index(&self.index, vec![title, anchors, text]);
        parser.set_conjunction_by_default();
        parser.set_field_boost(title, TITLE_BOOST);
        parser.set_field_boost(anchors, ANCHORS_BOOST);
        let (asked, _ignored) = parser.parse_query_lenient(cut::at_bytes(query, QUERY_BYTES_MAX));
        let deleted = Term::from_field_bool(self.fields.deleted, true);
        let deleted = TermQuery::new(deleted, IndexRecordOption::Basic);
        Box::new(BooleanQuery::new(vec![(Occur::Must, asked), (Occur::MustNot, Box::new(deleted))]))
    }

    fn hit(
        &self,
        searcher: &Searcher,
        snippets: &SnippetGenerator,
        score: Score,
        address: DocAddress,
    ) -> tantivy::Result<Hit> {
        let document: TantivyDocument = searcher.doc(address)?;
        let segment = searcher.segment_reader(address.segment_ord);
        let excerpt = schema::text_of(&document, self.fields.excerpt);
        let snippet = snippets.snippet(&excerpt);
        let (snippet, highlights) = if snippet.is_empty() {
            // The words are in the title, in an anchor, or further down the page.
            let end = excerpt.char_indices().nth(SNIPPET_CHARS_MAX).map(|(end, _)| end);
            (excerpt.get(..end.unwrap_or(excerpt.len())).unwrap_or_default().into(), Vec::new())
        } else {
            (snippet.fragment().to_string(), snippet.highlighted().to_vec())
        };
        Ok(Hit {
            url: schema::text_of(&document, self.fields.url),
            title: schema::text_of(&document, self.fields.title),
            snippet,
            highlights,
            score,
            rank: segment.fast_fields().f64(schema::RANK)?.first(address.doc_id).unwrap_or(0.0),
        })
    }

    /// Hands every live page to `visit`, in no particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read.
    pub fn dump(&self, mut visit: impl FnMut(Entry)) -> Result<(), Error> {
        let searcher = self.searcher().map_err(|source| failed("read", &self.path, source))?;
        for segment in searcher.segment_readers() {
            self.dump_segment(segment, &mut visit)
                .map_err(|source| failed("read", &self.path, source))?;
        }
        Ok(())
    }

    fn dump_segment(
        &self,
        segment: &SegmentReader,
        visit: &mut impl FnMut(Entry),
    ) -> tantivy::Result<()> {
        let ranks = segment.fast_fields().f64(schema::RANK)?;
        let seqs = segment.fast_fields().u64(schema::SEQ)?;
        let deleted = segment.fast_fields().bool(schema::DELETED)?;
        let store = segment.get_store_reader(1)?;
        for doc in segment.doc_ids_alive() {
            if deleted.first(doc) == Some(true) {
                continue;
            }
            let document: TantivyDocument = store.get(doc)?;
            let digest = document.get_first(self.fields.digest).and_then(|value| value.as_bytes());
            visit(Entry {
                url: schema::text_of(&document, self.fields.url),
                title: schema::text_of(&document, self.fields.title),
                digest: digest.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default(),
                rank: ranks.first(doc).unwrap_or_default(),
                seq: seqs.first(doc).unwrap_or_default(),
            });
        }
        Ok(())
    }

    /// Returns the number held for a URL, and whether it is that of a live page.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read.
    pub fn seq_of(&self, url: &str) -> Result<Option<(u64, bool)>, Error> {
        let term = Term::from_field_text(self.fields.url, url);
        self.searcher()
            .and_then(|searcher| Held::new(&searcher, self.fields))
            .and_then(|held| Ok(held.page(&term)?.map(|page| (page.seq, page.is_live))))
            .map_err(|source| failed("read", &self.path, source))
    }

    /// Returns how many live pages the index holds.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read.
    pub fn pages(&self) -> Result<usize, Error> {
        let live = Term::from_field_bool(self.fields.deleted, false);
        let query = TermQuery::new(live, IndexRecordOption::Basic);
        let counted = self.searcher().and_then(|searcher| searcher.search(&query, &Count));
        counted.map_err(|source| failed("read", &self.path, source))
    }
}

fn failed(action: &'static str, path: &Path, source: TantivyError) -> Error {
    Error::Index { action, path: path.to_path_buf(), source: Box::new(source) }
}

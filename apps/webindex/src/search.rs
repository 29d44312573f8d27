//! The search index: finds exported pages by their words. It is kept by tantivy in a directory
//! of its own.
//!
//! The exporter delivers each page at least once, and deliveries may be late, repeated or out
//! of order. Therefore every document carries the sequence number of the state that it shows.
//! [`SearchIndex::apply`] accepts an [`Update`] only if its number is higher than the one in
//! the index. A page deleted from the index leaves a tombstone, a document with only URL and
//! number. So a late delivery of an older state does not bring the page back.
//!
//! Invariants:
//!
//! * For each URL there is at most one document, and its number never decreases.
//! * A batch is applied as a whole or not at all, even if the process is killed: tantivy's
//!   commit replaces one file.
//! * A batch is visible to every [`SearchIndex::search`] that begins after
//!   [`SearchIndex::apply`] has returned.
//! * Memory is bounded by [`WRITER_BYTES`] plus the batch, whatever the size of the index,
//!   plus 16 bytes for each ranked page.
//!
//! One process writes at a time. The lock belongs to the process, not to the existence of a
//! file. So after `kill -9` nothing needs to be cleaned up. Any number of processes can search
//! meanwhile. They need only the directory ([`SearchIndex::open_existing`]).
//!
//! A query consists of these parts, and a page must match all of them:
//!
//! | written | means |
//! |---|---|
//! | `fresh fish` | both words, in any of their English forms; without accents or with them |
//! | `"fresh fish"` | the words next to each other, in this form |
//! | `cod OR ling` | one of them, or both |
//! | `-smoked` | not this word, in this form |
//! | `title:fish`, `title:"fresh fish"` | in the title |
//! | `site:example.org` | pages of this host and of hosts below it |
//! | `site:example.org/docs/a` | pages whose address begins like this |
//!
//! All other punctuation only separates words: `pg_dump` is the phrase `pg dump`. Words in Chinese,
//! Japanese and Korean are found wherever they stand.
//!
//! Not here: dropping old tombstones (there is one for each page ever deleted), listing a
//! site's pages by address, and correcting misspelt words.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use percolator::store::StoreId;
use tantivy::collector::{Count, TopDocs};
use tantivy::directory::META_LOCK;
use tantivy::query::TermQuery;
use tantivy::schema::{IndexRecordOption, Value};
use tantivy::{
    Directory, DocAddress, DocId, Index, IndexReader, ReloadPolicy, Score, Searcher, SegmentReader,
    TantivyDocument, Term,
};

use self::query::Query;
use self::ranks::Ranks;
use self::schema::{Columns, Fields};
use self::snippet::{Snippet, Wanted};
use self::statistics::Statistics;
use self::update::failed;
use self::write::{Held, Writer};
use crate::Error;

pub(crate) mod generations;
mod query;
mod ranks;
mod schema;
mod score;
mod snippet;
mod statistics;
mod update;
mod words;
mod write;

#[cfg(test)]
mod tests;

pub use self::query::QUERY_BYTES_MAX;
pub use self::update::{IndexedPage, Update};

/// The memory in which the writer collects documents, in bytes.
pub const WRITER_BYTES: usize = 48 << 20;

/// The most hits that one search returns.
pub const HITS_MAX: usize = 1_000;

/// The most hits that a search can skip before those that it returns.
pub const OFFSET_MAX: usize = 100_000;

/// The outcome of a batch.
///
/// ```
/// let applied = webindex::search::Applied::default();
/// assert_eq!(applied.written + applied.deleted + applied.stale, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Pages added or replaced.
    pub written: usize,
    /// Pages deleted.
    pub deleted: usize,
    /// Pages that the index already shows exactly so, and deleted pages that it does not show.
    pub unchanged: usize,
    /// Updates that were not newer than the index or than another update in the batch.
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
    /// A passage of the page's text, as plain text.
    pub snippet: String,
    /// The byte ranges of the snippet that match the query.
    pub highlights: Vec<Range<usize>>,
    /// The score. Higher is better. Scores are comparable within one search only.
    pub score: f32,
    /// The page's share of all rank, see [`SearchIndex::set_ranks`].
    pub rank: f64,
}

/// The result of a search.
///
/// ```
/// let found = webindex::search::Found::default();
/// assert!(found.hits.is_empty() && found.total == 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Found {
    /// How many pages match.
    pub total: usize,
    /// How many better pages were skipped before the first of `hits`.
    pub offset: usize,
    /// The pages, the best first.
    pub hits: Vec<Hit>,
}

/// The content of the index for a live page, for comparison with the expected content.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use webindex::search::{IndexedPage, SearchIndex, Update};
///
/// let index = SearchIndex::open(dir.path())?;
/// let page = IndexedPage { title: "Fish".into(), ..IndexedPage::default() };
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
    pub digest: u128,
    /// The page's share of all rank. Zero if the page was not ranked yet.
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
    ranks: ranks::Current,
    /// Opened when first needed: a process that only searches needs neither the lock nor the
    /// memory.
    writer: Mutex<Option<Writer>>,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SearchIndex {
    /// Opens the index in `path`, or creates one if the directory is empty or missing. An
    /// index that an earlier version wrote is deleted and created again; then
    /// [`is_incomplete`](Self::is_incomplete) returns `true`.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDirectory`] if the directory holds something else,
    /// [`Error::IndexFormat`] if a later version wrote it, [`Error::IndexInUse`] if an earlier
    /// version is writing to it. [`Error::Io`] and [`Error::Index`] if the files cannot be
    /// read or created.
    pub fn open(path: &Path) -> Result<Self, Error> {
        SearchIndex::over(path, schema::open(path, None)?)
    }

    /// As [`open`](SearchIndex::open), of the documents in a store. If the index shows those of
    /// another store, or names none, it is emptied and made anew. A store that was restored from
    /// a backup is another one: its numbers of states begin again.
    ///
    /// # Errors
    ///
    /// As [`open`](SearchIndex::open).
    pub fn open_of(path: &Path, store: Option<StoreId>) -> Result<Self, Error> {
        SearchIndex::over(path, schema::open(path, store)?)
    }

    /// Opens an existing index for searching. Changes nothing in its directory; another
    /// process may write to the index meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::NoIndex`] if there is no index, [`Error::IndexFormat`] if another version
    /// wrote it, and the other errors of [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, Error> {
        SearchIndex::over(path, schema::open_existing(path)?)
    }

    fn over(path: &Path, (index, fields): (Index, Fields)) -> Result<Self, Error> {
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
            ranks: ranks::Current::default(),
            writer: Mutex::default(),
        })
    }

    /// Whether the index was created again and may lack pages, because not all pages were
    /// exported since.
    pub fn is_incomplete(&self) -> bool {
        schema::is_incomplete(&self.path)
    }

    /// Records that the export of every page is certain, so that the index no longer counts as
    /// incomplete.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the record cannot be written.
    pub fn set_complete(&self) -> Result<(), Error> {
        schema::set_complete(&self.path)
    }

    /// Replaces the ranks of all pages by those of the state with number `seq`. Returns
    /// `false` if the index has equally new or newer ranks. Ranks are shares, which add up to
    /// about 1 over all pages. The next search uses them, and no page is indexed again.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written.
    pub fn set_ranks(
        &self,
        seq: u64,
        ranks: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<bool, Error> {
        let _others_wait = self.lock();
        Ranks::new(seq, ranks).write(&self.path)
    }

    /// Checks the checksums of all files of the index in `path`, which must exist. Returns the
    /// names of damaged files. No process may write to the index meanwhile.
    ///
    /// # Errors
    ///
    /// As [`open_existing`](SearchIndex::open_existing).
    pub fn damaged_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
        let (index, _) = schema::open_existing(path)?;
        let damaged = index.validate_checksum().map_err(|source| failed("check", path, source))?;
        let mut damaged: Vec<_> = damaged.into_iter().collect();
        if Ranks::read(path).is_err() {
            damaged.push(ranks::FILE.into());
        }
        damaged.sort();
        Ok(damaged)
    }

    /// Applies a batch in one commit. Updates that are not newer than the index count as
    /// stale, and a page that the index already shows exactly so is left alone.
    ///
    /// # Errors
    ///
    /// If an error is returned, nothing of the batch was applied.
    ///
    /// * [`Error::IndexInUse`] while another process writes.
    /// * [`Error::IndexFull`] if the disk has no room for the writer's documents and one merge
    ///   of the whole index.
    /// * [`Error::Index`] if writing failed.
    /// * [`Error::Superseded`] if the batch may be older than what another batch has shown of
    ///   its pages. Make the batch anew from the present state.
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
                // The writer holds half a batch, or its threads have ended. The next writer
                // starts from the last commit.
                *slot = None;
                Err(failed("write to", &self.path, source))
            }
        }
    }

    /// Checks for room first, because tantivy cannot say what it has written when the disk
    /// becomes full.
    fn check_room(&self) -> Result<(), Error> {
        let Some(free) = percolator::admin::free_bytes(&self.path) else { return Ok(()) };
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let held =
            files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum::<u64>();
        let wanted = held.saturating_add(WRITER_BYTES as u64);
        if free >= wanted {
            return Ok(());
        }
        Err(Error::IndexFull { path: self.path.clone(), free, wanted })
    }

    /// Becomes the writer. Returns `false` if another process is the writer.
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

    /// The present state of the index.
    fn searcher(&self) -> tantivy::Result<Searcher> {
        // If this process has a writer, the writer's commits reload the reader. A held lock
        // means that the writer is busy. Commits of another process must be looked for.
        if self.writer.try_lock().is_ok_and(|writer| writer.is_none()) {
            self.reader.reload()?;
        }
        Ok(self.reader.searcher())
    }

    /// Gives up the right to write, so that another process can take it. The next batch takes
    /// it again.
    pub(crate) fn release(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(|poisoned| {
            // The panic came in the middle of a batch, which the next commit must not include.
            self.writer.clear_poison();
            let mut slot = poisoned.into_inner();
            *slot = None;
            slot
        })
    }

    /// Finds the best pages for a query. The [module](self) describes queries.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, Error> {
        Ok(self.find(query, 0, limit)?.hits)
    }

    /// Finds the pages that match a query. Skips the `offset` best ones, and returns at most
    /// `limit` of the others, and at most [`HITS_MAX`]. The [module](self) describes queries.
    ///
    /// The score depends on these:
    ///
    /// * The title and the anchors of links count more than the text.
    /// * The form of a word that was asked for counts more than its other forms.
    /// * Words that are neighbours in the query count more where they are neighbours in the
    ///   page.
    /// * A word that is rare in texts counts more than a frequent one, wherever it is found.
    /// * The rank raises the score gently.
    /// * A page that consists mostly of links, such as a table of contents, scores less than
    ///   the pages that it leads to.
    ///
    /// # Errors
    ///
    /// [`Error::Query`] if the query is too long or asks for nothing, [`Error::OutOfRange`] if
    /// the offset is above [`OFFSET_MAX`]. [`Error::Index`] and [`Error::Io`] if the files
    /// cannot be read.
    pub fn find(&self, query: &str, offset: usize, limit: usize) -> Result<Found, Error> {
        let query = Query::parse(query)?;
        if offset > OFFSET_MAX {
            let allowed = format!("at most {OFFSET_MAX}");
            let given = offset as u64;
            return Err(Error::OutOfRange { what: "the offset", given, allowed });
        }
        let ranks = self.ranks.get(&self.path)?;
        self.found(&query, &ranks, offset, limit.min(HITS_MAX))
            .map_err(|source| failed("read", &self.path, source))
    }

    fn found(
        &self,
        query: &Query,
        ranks: &std::sync::Arc<Ranks>,
        offset: usize,
        limit: usize,
    ) -> tantivy::Result<Found> {
        let searcher = self.searcher()?;
        let (matcher, wanted) = score::asked(query, self.fields, &searcher)?;
        if limit == 0 {
            let total = searcher.search(&matcher, &Count)?;
            return Ok(Found { total, offset, hits: Vec::new() });
        }
        let pages = searcher.num_docs() as f64;
        let of_pages = ranks.clone();
        let best = TopDocs::with_limit(limit).and_offset(offset);
        let best = best.tweak_score(move |segment: &SegmentReader| {
            let keys = segment.fast_fields().u64(schema::KEY).ok();
            let densities = segment.fast_fields().f64(schema::LINK_DENSITY).ok();
            let ranks = of_pages.clone();
            move |doc: DocId, score: Score| {
                let key = keys.as_ref().and_then(|keys| keys.first(doc));
                let density = densities.as_ref().and_then(|densities| densities.first(doc));
                let score = score::by_links(score, density.unwrap_or_default());
                score::by_rank(score, key.map_or(0.0, |key| ranks.of(key)) * pages)
            }
        });
        let statistics = Statistics::new(&searcher, self.fields);
        let (best, total) =
            searcher.search_with_statistics_provider(&matcher, &(best, Count), &statistics)?;
        let hits = best
            .into_iter()
            .map(|(score, address)| self.hit(&searcher, &wanted, ranks, score, address));
        Ok(Found { total, offset, hits: hits.collect::<tantivy::Result<_>>()? })
    }

    fn hit(
        &self,
        searcher: &Searcher,
        wanted: &Wanted,
        ranks: &Ranks,
        score: Score,
        address: DocAddress,
    ) -> tantivy::Result<Hit> {
        let document: TantivyDocument = searcher.doc(address)?;
        let url = schema::text_of(&document, self.fields.url);
        let body = document.get_first(self.fields.body).and_then(|body| body.as_str());
        let Snippet { text: snippet, highlights } = wanted.snippet(body.unwrap_or_default());
        let title = schema::text_of(&document, self.fields.title);
        let rank = ranks.of(ranks::key(&url));
        Ok(Hit { url, title, snippet, highlights, score, rank })
    }

    /// Passes every live page to `visit`, in no particular order. Other processes may search
    /// and write meanwhile. The pages are those of the state at the beginning.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read, and the other errors of
    /// [`open_existing`](Self::open_existing).
    pub fn dump(&self, mut visit: impl FnMut(Entry)) -> Result<(), Error> {
        let ranks = self.ranks.get(&self.path)?;
        // Opens a second handle, whose files are unmapped segment by segment. The files of
        // this index's own handle stay mapped.
        let (index, fields) = schema::open_existing(&self.path)?;
        let mut read = || {
            for segment in segments_of(&index)? {
                dump_segment(&segment, fields, &ranks, &mut visit)?;
            }
            Ok(())
        };
        read().map_err(|source| failed("read", &self.path, source))
    }

    /// Returns the number of the state that the index has of a URL, and whether the page is
    /// live.
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

    /// Returns for each page whether the index shows its state with this number, or a newer one.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read.
    pub(crate) fn shows(&self, states: &[(String, u64)]) -> Result<Vec<bool>, Error> {
        let slot = self.lock();
        let read = || -> tantivy::Result<Vec<bool>> {
            let held = Held::new(&self.reader.searcher(), self.fields)?;
            let shows = |(url, seq): &(String, u64)| {
                let page = held.page(&Term::from_field_text(self.fields.url, url))?;
                let Some(page) = page.filter(|page| page.is_live) else { return Ok(false) };
                let confirmed = slot.as_ref().and_then(|writer| writer.confirmed(url));
                Ok(confirmed.max(Some(page.seq)) >= Some(*seq))
            };
            states.iter().map(shows).collect()
        };
        read().map_err(|source| failed("read", &self.path, source))
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

/// Opens the segments of an index, as a reader of tantivy does. The lock is held until the
/// files are open, because open files may be deleted. Searches and the writer wait for the
/// lock.
fn segments_of(index: &Index) -> tantivy::Result<Vec<SegmentReader>> {
    let _files_stay = index.directory().acquire_lock(&META_LOCK)?;
    index.searchable_segments()?.iter().map(SegmentReader::open).collect()
}

fn dump_segment(
    segment: &SegmentReader,
    fields: Fields,
    ranks: &Ranks,
    visit: &mut impl FnMut(Entry),
) -> tantivy::Result<()> {
    let columns = Columns::of(segment)?;
    let store = segment.get_store_reader(1)?;
    for doc in segment.doc_ids_alive() {
        if !columns.is_live(doc) {
            continue;
        }
        let document: TantivyDocument = store.get(doc)?;
        let url = schema::text_of(&document, fields.url);
        let rank = ranks.of(ranks::key(&url));
        visit(Entry {
            url,
            title: schema::text_of(&document, fields.title),
            digest: columns.digest(doc).unwrap_or_default(),
            rank,
            seq: columns.seq(doc).unwrap_or_default(),
        });
    }
    Ok(())
}

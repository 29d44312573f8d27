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
//! * Memory is bounded by [`WRITER_BYTES`] plus the batch, whatever the size of the index, and by
//!   16 bytes for each ranked page.
//!
//! One process writes at a time. The lock belongs to the process, not to a file's existence, so
//! after `kill -9` nothing needs to be cleaned up. Any number of processes search meanwhile, and
//! need nothing but the directory ([`SearchIndex::open_existing`]).
//!
//! A query is made of these, all of which a page must match:
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
//! Not here: dropping old tombstones, whose number is that of the pages ever deleted; a site's
//! pages in order of their addresses; corrections of misspelt words.

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

/// How much memory the writer gathers documents in.
pub const WRITER_BYTES: usize = 48 << 20;

/// The most hits that one search returns.
pub const HITS_MAX: usize = 1_000;

/// The most hits that a search leaves out before those that it returns.
pub const OFFSET_MAX: usize = 100_000;

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
    /// The page's share of all rank, see [`SearchIndex::set_ranks`].
    pub rank: f64,
}

/// What a search found.
///
/// ```
/// let found = webindex::search::Found::default();
/// assert!(found.hits.is_empty() && found.total == 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Found {
    /// How many pages match.
    pub total: usize,
    /// How many better ones were left out before the first of `hits`.
    pub offset: usize,
    /// The pages, the best first.
    pub hits: Vec<Hit>,
}

/// What the index holds of a live page, to be compared with what it should hold.
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
    /// The page's share of all rank; zero if it was not ranked yet.
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
    /// Made when first needed: a process that only searches needs neither the lock nor the memory.
    writer: Mutex<Option<Writer>>,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SearchIndex {
    /// Opens the index in `path`, or makes one if the directory is empty or missing. An index that
    /// an earlier version wrote is emptied and made anew; [`is_incomplete`](Self::is_incomplete)
    /// then says so.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDirectory`] if something else is there, [`Error::IndexFormat`] if a later
    /// version wrote it, [`Error::IndexInUse`] if an earlier one still writes to it, [`Error::Io`]
    /// and
    /// [`Error::Index`] if the files cannot be read or made.
    pub fn open(path: &Path) -> Result<Self, Error> {
        SearchIndex::over(path, schema::open(path, None)?)
    }

    /// As [`open`](SearchIndex::open), of the documents in a store. If the index shows those of
    /// another store, it is emptied and made anew. A store that was restored from a backup is
    /// another one: its numbers of states begin again.
    ///
    /// # Errors
    ///
    /// As [`open`](SearchIndex::open).
    pub fn open_of(path: &Path, store: Option<StoreId>) -> Result<Self, Error> {
        SearchIndex::over(path, schema::open(path, store)?)
    }

    /// Opens an index that is there, to search it; nothing in its directory changes, and another
    /// process may write to it all the while.
    ///
    /// # Errors
    ///
    /// [`Error::NoIndex`] if no index is there, [`Error::IndexFormat`] if another version wrote it,
    /// others as for [`open`](Self::open).
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

    /// Whether the index was made anew since all pages were exported last, so that it may lack
    /// some.
    pub fn is_incomplete(&self) -> bool {
        schema::is_incomplete(&self.path)
    }

    /// Takes note that every page is to be exported again, for sure.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if that cannot be written down.
    pub fn set_complete(&self) -> Result<(), Error> {
        schema::set_complete(&self.path)
    }

    /// Replaces the ranks of all pages by those of a newer state, whose number is `seq`; `false` if
    /// what is held is as new. Ranks are shares: those of all pages sum up to about 1. The next
    /// search goes by them, and no page is indexed again.
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

    /// Compares the checksums of all files of the index in `path`, which must be there; returns the
    /// names of those that differ. Nobody may write to the index meanwhile.
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

    /// Applies a batch in one commit; what is not newer than what is held counts as stale, and a
    /// page that is held as it is to be shown is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::IndexInUse`] while another process writes. [`Error::IndexFull`] if the disk has no
    /// room for what the writer gathers and one merge of all that is there; [`Error::Index`] if
    /// writing failed, [`Error::Superseded`] if the batch is older than what another one has shown
    /// of its pages: then nothing of the batch was applied; make it anew from the present state.
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
        // Its own writer, which is busy if it holds the lock, shows what it commits. Another
        // process's commits are to be looked for.
        if self.writer.try_lock().is_ok_and(|writer| writer.is_none()) {
            self.reader.reload()?;
        }
        Ok(self.reader.searcher())
    }

    /// Lets go of the right to write, so that another one can open the directory to write. The next
    /// batch takes it again.
    pub(crate) fn release(&self) {
        *self.lock() = None;
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

    /// Finds the best pages for a query; the [module](self) says how queries are written.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, Error> {
        Ok(self.find(query, 0, limit)?.hits)
    }

    /// Finds the pages that match a query, and returns at most `limit` of them, and [`HITS_MAX`],
    /// after leaving out the `offset` best ones. The [module](self) says how queries are written.
    ///
    /// The title and the anchors of links count more than the text, exact forms more than others,
    /// and neighbours in the query more where they are neighbours in the page. A word that is rare
    /// in texts counts more than a frequent one, wherever it is found. The rank gently raises the
    /// score. A page that consists of links mostly, such as a table of contents, scores less than
    /// the pages that it leads to.
    ///
    /// # Errors
    ///
    /// [`Error::Query`] if the query is too long or asks for nothing, [`Error::OutOfRange`] if the
    /// offset is above [`OFFSET_MAX`], [`Error::Index`] and [`Error::Io`] if the files cannot be
    /// read.
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

    /// Hands every live page to `visit`, in no particular order. Others may search and write
    /// meanwhile; the pages are those at the beginning.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the files cannot be read, others as for
    /// [`open_existing`](Self::open_existing).
    pub fn dump(&self, mut visit: impl FnMut(Entry)) -> Result<(), Error> {
        let ranks = self.ranks.get(&self.path)?;
        // The files that this index's own handle reads stay mapped. Those of another handle are
        // let go of one segment after the other.
        let (index, fields) = schema::open_existing(&self.path)?;
        let mut read = || {
            for segment in segments_of(&index)? {
                dump_segment(&segment, fields, &ranks, &mut visit)?;
            }
            Ok(())
        };
        read().map_err(|source| failed("read", &self.path, source))
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

/// Opens the segments of an index, as a reader of tantivy does. Searches and the writer wait for
/// the lock: it is held until the files are open, which then may be deleted.
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

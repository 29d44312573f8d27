//! Writing: which updates of a batch are news, and their one commit.
//!
//! A page that is held already as it is to be shown is not written again: while a site is loaded, most
//! changes of a popular page's anchors change nothing of what is indexed with it. Its number then stays
//! behind, and an older state that is delivered late must not pass for news. So the writer remembers the
//! numbers that it has **confirmed** in this way, and every commit carries their highest, the **floor**:
//! whoever opens the index next refuses batches up to there, because it cannot tell any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use tantivy::columnar::Column;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy};
use tantivy::schema::{IndexRecordOption, Value};
use tantivy::store::StoreReader;
use tantivy::{
    DocId, DocSet, IndexWriter, InvertedIndexReader, Searcher, SegmentReader, TERMINATED,
    TantivyDocument, TantivyError, Term,
};

use super::schema::{self, Fields};
use super::{Applied, IndexedPage, SearchIndex, Update, WRITER_BYTES, failed};
use crate::Error;

/// The most confirmed numbers that are remembered; beyond, the floor takes their place.
const CONFIRMED_MAX: usize = 100_000;

/// The one writer of an index.
pub(super) struct Writer {
    index: IndexWriter,
    /// No batch up to this number is accepted.
    floor: Option<u64>,
    /// The highest number ever confirmed.
    confirmed_max: Option<u64>,
    /// Above the floor: the number up to which a page is known to be as it is held.
    confirmed: BTreeMap<String, u64>,
}

impl Writer {
    pub(super) fn open(search: &SearchIndex) -> Result<Self, Error> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(WRITER_BYTES)
            .build();
        let index = search.index.writer_with_options(options).map_err(|source| match source {
            TantivyError::LockFailure(..) => Error::IndexInUse { path: search.path.clone() },
            source => failed("write to", &search.path, source),
        })?;
        let mut policy = LogMergePolicy::default();
        // With a commit every second, most segments hold a few hundred pages. The default puts
        // all below 10,000 on one level and would rewrite the largest of them at every merge.
        policy.set_min_layer_size(256);
        policy.set_del_docs_ratio_before_merge(0.5);
        index.set_merge_policy(Box::new(policy));
        // Another process may have committed since this one opened the index.
        let read = |source| failed("read", &search.path, source);
        search.reader.reload().map_err(read)?;
        let payload = search.index.load_metas().map_err(read)?.payload;
        let floor = payload.and_then(|floor| floor.parse().ok());
        Ok(Writer { index, floor, confirmed_max: floor, confirmed: BTreeMap::new() })
    }

    pub(super) fn floor(&self) -> Option<u64> {
        self.floor
    }

    /// Applies a batch; on an error the writer is of no use any more.
    pub(super) fn write(
        &mut self,
        search: &SearchIndex,
        batch: Vec<Update>,
    ) -> tantivy::Result<Applied> {
        let delivered = batch.len();
        let held = Held::new(&search.reader.searcher(), search.fields)?;
        let mut applied = Applied::default();
        for (url, update) in newest_by_url(batch) {
            let term = Term::from_field_text(search.fields.url, &url);
            let there = held.page(&term)?;
            let seen = there.as_ref().map(|page| page.seq).max(self.confirmed.get(&url).copied());
            if seen.is_some_and(|seen| seen >= update.seq) {
                continue;
            }
            if let (Some(there), Some(page)) = (&there, &update.page)
                && there.shows(page, search.fields)?
            {
                applied.unchanged += 1;
                self.confirmed_max = self.confirmed_max.max(Some(update.seq));
                self.confirmed.insert(url, update.seq);
                continue;
            }
            match &update.page {
                Some(_) => applied.written += 1,
                None => applied.deleted += 1,
            }
            self.confirmed.remove(&url);
            self.index.delete_term(term);
            self.index.add_document(search.fields.document(&update))?;
        }
        applied.stale = delivered - applied.written - applied.deleted - applied.unchanged;
        if applied.stale < delivered {
            let mut commit = self.index.prepare_commit()?;
            if let Some(floor) = self.confirmed_max {
                commit.set_payload(&floor.to_string());
            }
            commit.commit()?;
            search.reader.reload()?;
        }
        if self.confirmed.len() > CONFIRMED_MAX {
            self.floor = self.confirmed_max;
            self.confirmed.clear();
        }
        Ok(applied)
    }
}

/// Looks pages up in one state of the index.
pub(super) struct Held {
    segments: Vec<HeldSegment>,
}

struct HeldSegment {
    segment: SegmentReader,
    urls: Arc<InvertedIndexReader>,
    seqs: Column<u64>,
    deleted: Column<bool>,
    store: StoreReader,
}

/// How many blocks of a segment's stored fields are kept at hand.
const STORE_BLOCKS: usize = 4;

/// What is held of a URL.
pub(super) struct HeldPage<'a> {
    segment: &'a HeldSegment,
    doc: DocId,
    pub(super) seq: u64,
    /// Whether it is a page; a tombstone otherwise.
    pub(super) is_live: bool,
}

impl Held {
    pub(super) fn new(searcher: &Searcher, fields: Fields) -> tantivy::Result<Self> {
        let segments = searcher.segment_readers().iter().map(|segment| {
            Ok(HeldSegment {
                urls: segment.inverted_index(fields.url)?,
                seqs: segment.fast_fields().u64(schema::SEQ)?,
                deleted: segment.fast_fields().bool(schema::DELETED)?,
                store: segment.get_store_reader(STORE_BLOCKS)?,
                segment: segment.clone(),
            })
        });
        Ok(Held { segments: segments.collect::<tantivy::Result<_>>()? })
    }

    /// Returns what is held for a URL, tombstones included.
    pub(super) fn page(&self, url: &Term) -> tantivy::Result<Option<HeldPage<'_>>> {
        for segment in &self.segments {
            let Some(mut docs) = segment.urls.read_postings(url, IndexRecordOption::Basic)? else {
                continue;
            };
            let mut doc = docs.doc();
            while doc != TERMINATED {
                if !segment.segment.is_deleted(doc) {
                    let is_live = segment.deleted.first(doc) != Some(true);
                    let seq = segment.seqs.first(doc);
                    return Ok(seq.map(|seq| HeldPage { segment, doc, seq, is_live }));
                }
                doc = docs.advance();
            }
        }
        Ok(None)
    }
}

impl HeldPage<'_> {
    /// Whether it shows `page` as it is.
    fn shows(&self, page: &IndexedPage, fields: Fields) -> tantivy::Result<bool> {
        if !self.is_live {
            return Ok(false);
        }
        let document: TantivyDocument = self.segment.store.get(self.doc)?;
        let digest = document.get_first(fields.digest).and_then(|digest| digest.as_bytes());
        Ok(digest == Some(&page.digest()[..]))
    }
}

/// Keeps the newest update of each URL.
fn newest_by_url(batch: Vec<Update>) -> BTreeMap<String, Update> {
    let mut newest: BTreeMap<String, Update> = BTreeMap::new();
    for update in batch {
        match newest.get(&update.url) {
            Some(other) if other.seq >= update.seq => {}
            _ => {
                newest.insert(update.url.clone(), update);
            }
        }
    }
    newest
}

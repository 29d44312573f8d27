//! Writes batches: decides which updates are new, and applies them in one commit.
//!
//! Each update has a sequence number, and a page in the index has the number of its last update.
//! An update that changes nothing of the indexed page is not written. Neither is the deletion of
//! a page that is not in the index. This saves much work: while a site is loaded, most changes
//! of a popular page's anchors change nothing of the indexed content. But the page in the index
//! then keeps an older number or none. So an update between the two numbers, delivered late, would
//! seem new.
//!
//! So the writer remembers the number of each update that was **confirmed** in this way. Every
//! commit carries the highest of these numbers. That number becomes the **floor** in two cases:
//!
//! * A new writer opens the index. It does not know to which pages the confirmed numbers belong.
//! * The writer remembers more than 100,000 pages. Then it forgets them all.
//!
//! `search.rs` refuses every batch with a number up to the floor. The caller must make such a batch
//! again from the present state.
//!
//! A segment of more than 20,000 live pages is never merged with others. It is rewritten alone when
//! more of its pages are deleted than remain. A merge maps all that it reads. Without the bound,
//! memory and the bytes written for a page would grow with the site.

use std::collections::BTreeMap;
use std::sync::Arc;

use tantivy::indexer::{IndexWriterOptions, LogMergePolicy};
use tantivy::merge_policy::{MergeCandidate, MergePolicy};
use tantivy::schema::IndexRecordOption;
use tantivy::{
    DocSet, IndexWriter, InvertedIndexReader, Searcher, SegmentMeta, SegmentReader, TERMINATED,
    TantivyError, Term,
};

use super::schema::{Columns, Fields};
use super::update::{IndexedPage, Update, failed};
use super::{Applied, SearchIndex, WRITER_BYTES};
use crate::Error;

/// The most confirmed numbers that are remembered. Beyond that, the floor takes their place.
const CONFIRMED_MAX: usize = 100_000;

/// A segment with more documents is not merged with others.
const MERGED_DOCS_MAX: u32 = 20_000;

/// The only writer of an index.
pub(super) struct Writer {
    index: IndexWriter,
    /// No batch up to this number is accepted.
    floor: Option<u64>,
    /// The highest number that was ever confirmed.
    confirmed_max: Option<u64>,
    /// For each page above the floor, the number up to which it is confirmed.
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
        index.set_merge_policy(Box::new(Merging::up_to(MERGED_DOCS_MAX)));
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

    /// The number up to which the index's record of a page is confirmed, if it is above the
    /// record's own.
    pub(super) fn confirmed(&self, url: &str) -> Option<u64> {
        self.confirmed.get(url).copied()
    }

    /// Applies a batch. After an error the writer must be dropped.
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
            if is_shown(there.as_ref(), update.page.as_ref()) {
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
            // A commit opens every segment for each deletion, so a new page deletes nothing.
            if there.is_some() {
                self.index.delete_term(term);
            }
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

/// Merges small segments, and leaves large ones alone until half of their documents are
/// deleted. So neither the memory of a merge nor the bytes written for each page grow with the
/// site. In return, the number of segments grows, by one for some ten thousand pages.
#[derive(Debug)]
struct Merging {
    small: LogMergePolicy,
    docs_max: u32,
}

impl Merging {
    /// Merges segments of at most `docs_max` documents.
    fn up_to(docs_max: u32) -> Self {
        let mut small = LogMergePolicy::default();
        // With a commit every second, most segments hold a few hundred pages. The default puts
        // all segments below 10,000 documents on one level, and would rewrite the largest of
        // them at every merge.
        small.set_min_layer_size(256);
        small.set_del_docs_ratio_before_merge(0.5);
        small.set_max_docs_before_merge(docs_max as usize);
        Merging { small, docs_max }
    }
}

impl MergePolicy for Merging {
    fn compute_merge_candidates(&self, segments: &[SegmentMeta]) -> Vec<MergeCandidate> {
        let of_small = self.small.compute_merge_candidates(segments);
        let half_empty = |segment: &&SegmentMeta| {
            segment.num_docs() > self.docs_max && segment.num_deleted_docs() > segment.num_docs()
        };
        let large = segments.iter().filter(half_empty);
        let of_large = large.map(|segment| MergeCandidate(vec![segment.id()]));
        of_small.into_iter().chain(of_large).collect()
    }
}

/// Looks pages up in one state of the index.
pub(super) struct Held {
    segments: Vec<HeldSegment>,
}

struct HeldSegment {
    segment: SegmentReader,
    urls: Arc<InvertedIndexReader>,
    columns: Columns,
}

/// The record that the index has of a URL.
pub(super) struct HeldPage {
    pub(super) seq: u64,
    /// Whether the record is a page, and not a tombstone.
    pub(super) is_live: bool,
    digest: Option<u128>,
}

impl Held {
    pub(super) fn new(searcher: &Searcher, fields: Fields) -> tantivy::Result<Self> {
        let segments = searcher.segment_readers().iter().map(|segment| {
            Ok(HeldSegment {
                urls: segment.inverted_index(fields.url)?,
                columns: Columns::of(segment)?,
                segment: segment.clone(),
            })
        });
        Ok(Held { segments: segments.collect::<tantivy::Result<_>>()? })
    }

    /// Returns the record of a URL, tombstones included.
    pub(super) fn page(&self, url: &Term) -> tantivy::Result<Option<HeldPage>> {
        for HeldSegment { segment, urls, columns } in &self.segments {
            let Some(mut docs) = urls.read_postings(url, IndexRecordOption::Basic)? else {
                continue;
            };
            let mut doc = docs.doc();
            while doc != TERMINATED {
                if !segment.is_deleted(doc) {
                    let (is_live, digest) = (columns.is_live(doc), columns.digest(doc));
                    return Ok(columns.seq(doc).map(|seq| HeldPage { seq, is_live, digest }));
                }
                doc = docs.advance();
            }
        }
        Ok(None)
    }
}

/// Whether the index shows exactly `page`, given its record of that URL. `None` is a page that
/// must not be found. If it was never indexed, a tombstone would only cost time: a duplicate is
/// usually known as such when its first state is exported.
fn is_shown(there: Option<&HeldPage>, page: Option<&IndexedPage>) -> bool {
    match (there.filter(|there| there.is_live), page) {
        (Some(there), Some(page)) => there.digest == Some(page.digest()),
        (None, None) => true,
        _ => false,
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

#[cfg(test)]
mod tests {
    use tantivy::merge_policy::NoMergePolicy;
    use tantivy::schema::{STRING, Schema};
    use tantivy::{Index, doc};

    use super::*;

    /// Makes segments of the given numbers of documents and deletions. Returns, for each
    /// merge, the numbers of documents of its segments.
    fn merged(segments: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let mut schema = Schema::builder();
        let name = schema.add_text_field("name", STRING);
        let index = Index::create_in_ram(schema.build());
        let mut writer: IndexWriter = index.writer_with_num_threads(1, 20 << 20).unwrap();
        writer.set_merge_policy(Box::new(NoMergePolicy));
        for (number, &(docs, _)) in segments.iter().enumerate() {
            for doc in 0..docs {
                writer.add_document(doc!(name => format!("{number} {doc}"))).unwrap();
            }
            writer.commit().unwrap();
        }
        for (number, &(_, deleted)) in segments.iter().enumerate() {
            for doc in 0..deleted {
                writer.delete_term(Term::from_field_text(name, &format!("{number} {doc}")));
            }
        }
        writer.commit().unwrap();
        let metas = index.searchable_segment_metas().unwrap();
        let docs = |id| metas.iter().find(|meta| meta.id() == id).unwrap().max_doc();
        let candidates = Merging::up_to(20).compute_merge_candidates(&metas);
        candidates.into_iter().map(|of| of.0.into_iter().map(docs).collect()).collect()
    }

    #[test]
    fn small_segments_are_merged_and_large_ones_are_left_alone() {
        assert_eq!(merged(&[(7, 0); 7]), [[0; 0]; 0]);
        assert_eq!(merged(&[(7, 0); 8]), [[7; 8]]);
        let with_large: Vec<_> = [(30, 0); 8].into_iter().chain([(7, 0); 8]).collect();
        assert_eq!(merged(&with_large), [[7; 8]]);
    }

    #[test]
    fn a_large_segment_is_written_again_once_most_of_it_is_deleted() {
        assert_eq!(merged(&[(50, 25)]), [[0; 0]; 0]);
        assert_eq!(merged(&[(50, 26)]), [[50]]);
        // The segment is now small.
        assert_eq!(merged(&[(50, 40)]), [[50]]);
    }
}

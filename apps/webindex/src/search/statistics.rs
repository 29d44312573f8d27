//! How frequent words are, for BM25: in the text, whichever field a word is found in.
//!
//! Titles are short. So a word that every third text has can be rare in titles, and would count as
//! much there as a word that few pages have at all: a search for `operator precedence` would find
//! the pages with `operator` in the title first. Therefore a word in a title, an anchor or an
//! address counts as frequent as it is in texts.
//!
//! A page that was written again stays in its former segment, marked as deleted, until the segment
//! is merged. The index counts such pages too. So each segment's counts are multiplied by the share
//! of its pages that are not deleted; else the order of hits would depend on when segments were
//! merged.

use tantivy::query::Bm25StatisticsProvider;
use tantivy::schema::Field;
use tantivy::{Searcher, SegmentReader, Term};

use super::schema::Fields;

/// The statistics of one state of the index.
pub(super) struct Statistics<'a> {
    searcher: &'a Searcher,
    fields: Fields,
}

impl<'a> Statistics<'a> {
    pub(super) fn new(searcher: &'a Searcher, fields: Fields) -> Self {
        Statistics { searcher, fields }
    }

    /// Returns the field of the text that has the same form of words as `field`.
    fn text_like(&self, field: Field) -> Option<Field> {
        let Fields { title, title_stems, text, text_stems, anchors, anchors_stems, path, .. } =
            self.fields;
        match field {
            field if field == title || field == anchors => Some(text),
            field if field == title_stems || field == anchors_stems || field == path => {
                Some(text_stems)
            }
            _ => None,
        }
    }

    /// Returns how many pages have a word in its field; at most as many as there are.
    fn pages_with(&self, term: &Term) -> tantivy::Result<u64> {
        let pages = self
            .sum(|segment| Ok(u64::from(segment.inverted_index(term.field())?.doc_freq(term)?)))?;
        Ok(pages.min(self.searcher.num_docs()))
    }

    /// Sums a count over the segments, without its deleted pages as far as can be told.
    fn sum(&self, count: impl Fn(&SegmentReader) -> tantivy::Result<u64>) -> tantivy::Result<u64> {
        let mut sum = 0.0;
        for segment in self.searcher.segment_readers() {
            let share = f64::from(segment.num_docs()) / f64::from(segment.max_doc().max(1));
            sum += share * count(segment)? as f64;
        }
        Ok(sum.round() as u64)
    }
}

impl Bm25StatisticsProvider for Statistics<'_> {
    fn total_num_tokens(&self, field: Field) -> tantivy::Result<u64> {
        self.sum(|segment| Ok(segment.inverted_index(field)?.total_num_tokens()))
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(self.searcher.num_docs())
    }

    /// Returns how many pages have a word in the text, or in its own field if those are more: a
    /// word of titles need not be in any text.
    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        let own = self.pages_with(term)?;
        let word = std::str::from_utf8(term.serialized_value_bytes());
        let (Some(text), Ok(word)) = (self.text_like(term.field()), word) else { return Ok(own) };
        Ok(own.max(self.pages_with(&Term::from_field_text(text, word))?))
    }
}

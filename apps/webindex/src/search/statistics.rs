//! Tells BM25 how frequent words are: as frequent as in the text, whichever field a word is
//! found in.
//!
//! Titles are short. So a word that every third text has can be rare in titles. It would count
//! as much there as a word that few pages have at all. For example, a search for
//! `operator precedence` would put the pages with `operator` in the title first. Therefore a
//! word in a title, an anchor or an address counts as frequent as it is in texts.

use tantivy::query::Bm25StatisticsProvider;
use tantivy::schema::Field;
use tantivy::{Searcher, Term};

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
}

impl Bm25StatisticsProvider for Statistics<'_> {
    fn total_num_tokens(&self, field: Field) -> tantivy::Result<u64> {
        self.searcher.total_num_tokens(field)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        self.searcher.total_num_docs()
    }

    /// Returns how many pages have a word in the text, or in its own field if those are more.
    /// A word of titles need not occur in any text.
    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        let own = self.searcher.doc_freq(term)?;
        let word = std::str::from_utf8(term.serialized_value_bytes());
        let (Some(text), Ok(word)) = (self.text_like(term.field()), word) else { return Ok(own) };
        Ok(own.max(self.searcher.doc_freq(&Term::from_field_text(text, word))?))
    }
}

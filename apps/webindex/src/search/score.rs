//! Translates a query into tantivy's queries: which pages match, and how much each match
//! scores.
//!
//! A page must match every part of a query, and no excluded part (`search.rs` lists the parts). It
//! matches a part with alternatives if it matches one of them. Words and phrases match like this:
//!
//! * A word must be in the page's title or text, in the anchors of links to it, or at the end of
//!   its address. That end is the last directory and the file, without the file's extension.
//! * A phrase must be in the title, the text or the anchors.
//! * A word or phrase after `title:` must be in the title.
//!
//! A match scores BM25 in that field times the field's boost. A word counts as equally rare in all
//! fields (see `statistics.rs`).
//!
//! * A word in exactly the requested form scores twice, once as that form and once as its
//!   stem. So pages with the exact form come first.
//! * Words that are neighbours in the query score again where at most three other words stand
//!   between them in a page.
//! * The page's rank then multiplies the sum, gently.
//! * A page with little text for each of its links scores less. For example, a table of
//!   contents repeats the titles of many pages, and answers nothing itself.

use tantivy::query::{
    BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, Occur, PhraseQuery, Query as Matcher,
    RangeQuery, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{Score, Searcher, Term};

use super::query::{self, Query};
use super::schema::Fields;
use super::snippet::Wanted;
use super::words;

/// The weights of a match in each field: for the exact form, and for the stem.
///
/// The numbers were chosen with the example `search_quality`, which also measures with queries
/// that were not used for the choice.
const TITLE: (Score, Score) = (1.5, 2.0);
const ANCHORS: (Score, Score) = (1.4, 2.1);
const TEXT: (Score, Score) = (1.0, 3.0);
const PATH: Score = 1.0;

/// The weights of neighbouring words in each field.
const NEAR_TITLE: Score = 1.0;
const NEAR_ANCHORS: Score = 1.4;
const NEAR_TEXT: Score = 1.0;

/// How many other words may stand between two neighbours.
const NEAR_GAP: u32 = 3;

/// Too little to matter beside words, but enough for ranks to order the pages of a site.
const SITE_SCORE: Score = 1e-3;

/// The weight of the rank. A page of ten times the average rank scores 1.48 times as much as
/// its words alone would. An average page scores 1.14 times as much.
const RANK_WEIGHT: f64 = 0.2;

/// Multiplies a score by the factor of the rank. `relative` is the rank as a multiple of the
/// average.
pub(super) fn by_rank(score: Score, relative: f64) -> Score {
    score * (1.0 + RANK_WEIGHT * relative.ln_1p()) as Score
}

/// The usual number of bytes of text for each link. The links of a page with more text do not
/// change its score.
const TEXT_PER_LINK: f64 = 60.0;

/// The largest factor by which links can exceed the usual number.
const LINKS_MAX: f64 = 3.0;

/// The weight of links. A page with twice the usual number scores 1 / 1.8 of what its words
/// would.
const LINKS_WEIGHT: f64 = 0.8;

/// Lowers the score of a page that consists mostly of links. `density` is the number of links
/// for each byte of text.
pub(super) fn by_links(score: Score, density: f64) -> Score {
    let relative = (density * TEXT_PER_LINK).clamp(1.0, LINKS_MAX);
    score / (1.0 + LINKS_WEIGHT * (relative - 1.0)) as Score
}

type Clause = (Occur, Box<dyn Matcher>);

/// Returns a matcher for the pages, with their scores before ranks, and the words for their
/// snippets.
pub(super) fn asked(
    query: &Query,
    fields: Fields,
    searcher: &Searcher,
) -> tantivy::Result<(Box<dyn Matcher>, Wanted)> {
    let mut clauses: Vec<Clause> = Vec::new();
    let mut wanted = Wanted::default();
    for group in &query.groups {
        let mut alternatives = Vec::with_capacity(group.len());
        for term in group {
            alternatives.push(matcher(term, fields));
            want(&mut wanted, term, fields, searcher)?;
        }
        clauses.push((Occur::Must, any_of(alternatives)));
    }
    clauses.extend(query.excluded.iter().map(|term| (Occur::MustNot, excluded(term, fields))));
    let deleted = Term::from_field_bool(fields.deleted, true);
    let deleted = TermQuery::new(deleted, IndexRecordOption::Basic);
    clauses.push((Occur::MustNot, Box::new(deleted)));
    clauses.extend(neighbours(query, fields).into_iter().map(|near| (Occur::Should, near)));
    Ok((Box::new(BooleanQuery::new(clauses)), wanted))
}

/// Matches pages to exclude. Tantivy asks an excluded query for documents before the current
/// one, which a phrase does not allow and a union does. So a phrase becomes a union of itself
/// twice.
fn excluded(term: &query::Term, fields: Fields) -> Box<dyn Matcher> {
    Box::new(BooleanQuery::union(vec![matcher(term, fields), matcher(term, fields)]))
}

/// Matches pages by one term.
fn matcher(term: &query::Term, fields: Fields) -> Box<dyn Matcher> {
    match term {
        query::Term::Site(site) => site_matcher(site, fields),
        query::Term::Word { text, in_title } => {
            let words = words::list(&mut words::words_of_query(), text);
            let stems = words::list(&mut words::stems_of_query(), text);
            let ([(_, word)], [(_, stem)]) = (&words[..], &stems[..]) else {
                return phrase_matcher(&words, *in_title, fields);
            };
            let mut any = vec![
                boosted(one(fields.title, word), TITLE.0),
                boosted(one(fields.title_stems, stem), TITLE.1),
            ];
            if !in_title {
                any.push(boosted(one(fields.anchors, word), ANCHORS.0));
                any.push(boosted(one(fields.anchors_stems, stem), ANCHORS.1));
                any.push(boosted(one(fields.text, word), TEXT.0));
                any.push(boosted(one(fields.text_stems, stem), TEXT.1));
                any.push(boosted(one(fields.path, stem), PATH));
            }
            any_of(any)
        }
        query::Term::Phrase { text, in_title } => {
            phrase_matcher(&words::list(&mut words::words_of_query(), text), *in_title, fields)
        }
    }
}

/// Matches pages that have the words next to each other in exactly this form.
fn phrase_matcher(words: &[(usize, String)], in_title: bool, fields: Fields) -> Box<dyn Matcher> {
    let mut any = vec![boosted(phrase(fields.title, words, 0), TITLE.0 + TITLE.1)];
    if !in_title {
        any.push(boosted(phrase(fields.anchors, words, 0), ANCHORS.0 + ANCHORS.1));
        any.push(boosted(phrase(fields.text, words, 0), TEXT.0 + TEXT.1));
    }
    any_of(any)
}

fn phrase(field: Field, words: &[(usize, String)], gap: u32) -> Box<dyn Matcher> {
    match words {
        [] => Box::new(EmptyQuery),
        [(_, word)] => one(field, word),
        words => {
            let term = |(at, word): &(usize, String)| (*at, Term::from_field_text(field, word));
            let terms = words.iter().map(term).collect();
            Box::new(PhraseQuery::new_with_offset_and_slop(terms, gap))
        }
    }
}

/// Matches pages of a host, or pages whose address begins with `site`.
fn site_matcher(site: &str, fields: Fields) -> Box<dyn Matcher> {
    let first = Term::from_field_text(fields.site, site);
    let matcher: Box<dyn Matcher> = if site.contains(['/', '?']) {
        use std::ops::Bound::{Excluded, Included};
        let behind = Term::from_field_text(fields.site, &format!("{site}{}", char::MAX));
        Box::new(RangeQuery::new(Included(first), Excluded(behind)))
    } else {
        Box::new(TermQuery::new(first, IndexRecordOption::Basic))
    };
    Box::new(ConstScoreQuery::new(matcher, SITE_SCORE))
}

/// Matches pages in which neighbours of the query are neighbours. They are optional, and only
/// add to the score.
fn neighbours(query: &Query, fields: Fields) -> Vec<Box<dyn Matcher>> {
    let single = |group: &Vec<query::Term>| match &group[..] {
        [query::Term::Word { text, in_title: false }] => {
            match &words::list(&mut words::stems_of_query(), text)[..] {
                [(_, stem)] => Some(stem.clone()),
                _ => None,
            }
        }
        _ => None,
    };
    let stems: Vec<Option<String>> = query.groups.iter().map(single).collect();
    let mut near = Vec::new();
    for pair in stems.windows(2) {
        let [Some(first), Some(second)] = pair else { continue };
        let pair = [(0, first.clone()), (1, second.clone())];
        near.push(boosted(phrase(fields.title_stems, &pair, NEAR_GAP), NEAR_TITLE));
        near.push(boosted(phrase(fields.anchors_stems, &pair, NEAR_GAP), NEAR_ANCHORS));
        near.push(boosted(phrase(fields.text_stems, &pair, NEAR_GAP), NEAR_TEXT));
    }
    near
}

fn one(field: Field, word: &str) -> Box<dyn Matcher> {
    let term = Term::from_field_text(field, word);
    Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs))
}

fn boosted(matcher: Box<dyn Matcher>, boost: Score) -> Box<dyn Matcher> {
    Box::new(BoostQuery::new(matcher, boost))
}

fn any_of(mut matchers: Vec<Box<dyn Matcher>>) -> Box<dyn Matcher> {
    match matchers.len() {
        1 => matchers.remove(0),
        _ => Box::new(BooleanQuery::union(matchers)),
    }
}

/// Adds a term's words to those that snippets show, with a higher weight for rarer words.
fn want(
    wanted: &mut Wanted,
    term: &query::Term,
    fields: Fields,
    searcher: &Searcher,
) -> tantivy::Result<()> {
    let (query::Term::Word { text, .. } | query::Term::Phrase { text, .. }) = term else {
        return Ok(());
    };
    let pages = searcher.num_docs() as f32;
    let forms = words::list(&mut words::words_of_query(), text);
    let stems = words::list(&mut words::stems_of_query(), text);
    for ((_, stem), (_, form)) in stems.into_iter().zip(forms) {
        let held = searcher.doc_freq(&Term::from_field_text(fields.text_stems, &stem))? as f32;
        let weight = (1.0 + (pages + 0.5) / (held + 0.5)).ln();
        wanted.add(stem, form, weight);
    }
    Ok(())
}

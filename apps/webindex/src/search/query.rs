//! Parses the query language.
//!
//! ```text
//! fresh fish          pages with both words, in any of their English forms
//! "fresh fish"        the words next to each other, in this form
//! cod OR ling         one of them, or both
//! -smoked             not this word, in this form
//! title:fish          in the title
//! title:"fresh fish"
//! site:example.org    pages of this host and of hosts below it
//! site:example.org/a  pages whose address begins like this
//! ```
//!
//! `OR` stands between two parts and binds them more closely than a blank does: `a OR b c`
//! asks for `c` and for one of `a` and `b`. Everything else is words. Punctuation only
//! separates words, so `pg_dump` is the phrase `pg dump`. A quote that is not closed ends with
//! the query.

use url::Url;

use crate::Error;
use crate::address;

/// The longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 512;

/// The conditions that a page must meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// A page must match at least one term of each group.
    pub(super) groups: Vec<Vec<Term>>,
    /// A page must match none of these terms.
    pub(super) excluded: Vec<Term>,
}

/// A condition on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Term {
    /// A word, or text with punctuation that becomes several words.
    Word { text: String, in_title: bool },
    /// Words next to each other, in this form.
    Phrase { text: String, in_title: bool },
    /// A host, with or without a path, in lower case as in canonical addresses.
    Site(String),
}

impl Term {
    /// The same term in exactly this form, because exclusions are literal.
    fn exactly(self) -> Term {
        match self {
            Term::Word { text, in_title } => Term::Phrase { text, in_title },
            other => other,
        }
    }
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    ///
    /// [`Error::Query`] if it is too long, or asks for no word and no site.
    pub(super) fn parse(given: &str) -> Result<Query, Error> {
        let refused = |problem: String| Error::Query { problem };
        if given.len() > QUERY_BYTES_MAX {
            let bytes = given.len();
            return Err(refused(format!(
                "the query has {bytes} bytes, at most {QUERY_BYTES_MAX} are allowed; leave out \
                 some words"
            )));
        }
        let mut query = Query::default();
        let mut is_alternative = false;
        let mut may_continue = false;
        for piece in pieces(given) {
            let Piece::Term { term, is_excluded } = piece else {
                is_alternative = may_continue;
                continue;
            };
            if is_excluded {
                query.excluded.push(term.exactly());
                may_continue = false;
            } else {
                match query.groups.last_mut().filter(|_| is_alternative) {
                    Some(group) => group.push(term),
                    None => query.groups.push(vec![term]),
                }
                may_continue = true;
            }
            is_alternative = false;
        }
        if query.groups.is_empty() {
            let problem = if query.excluded.is_empty() {
                "the query is empty"
            } else {
                "the query has only excluded words"
            };
            return Err(refused(format!(
                "{problem}; give a word, \"a phrase\", title:WORD or site:HOST"
            )));
        }
        Ok(query)
    }
}

/// A piece of a query.
#[derive(Debug)]
enum Piece {
    Or,
    Term { term: Term, is_excluded: bool },
}

/// Splits a query at blanks outside of quotes. Leaves out pieces without a letter or digit.
fn pieces(given: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = given.trim_start();
    while !rest.is_empty() {
        let (piece, after) = piece(rest);
        pieces.extend(piece);
        rest = after.trim_start();
    }
    pieces
}

/// Reads one piece, and returns it with the rest of the query.
fn piece(given: &str) -> (Option<Piece>, &str) {
    let (is_excluded, given) = match given.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, given),
    };
    let (in_title, given) = match given.strip_prefix("title:") {
        Some(rest) => (true, rest),
        None => (false, given),
    };
    let term = |term: Term| Some(Piece::Term { term, is_excluded });
    if let Some(quoted) = given.strip_prefix('"') {
        let (text, after) = quoted.split_once('"').unwrap_or((quoted, ""));
        let text = text.to_owned();
        let phrase = has_word(&text).then_some(Term::Phrase { text, in_title });
        return (phrase.and_then(term), after);
    }
    // A quote inside a piece begins the next piece.
    let end = given.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(given.len());
    let (text, after) = given.split_at(end);
    if text == "OR" && !is_excluded && !in_title {
        return (Some(Piece::Or), after);
    }
    let site = text.strip_prefix("site:").filter(|_| !in_title).and_then(site);
    let word = || has_word(text).then(|| Term::Word { text: text.to_owned(), in_title });
    (site.or_else(word).and_then(term), after)
}

fn has_word(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// Parses a host or the beginning of an address into canonical form, without the scheme.
fn site(given: &str) -> Option<Term> {
    let without_scheme =
        given.strip_prefix("https://").or_else(|| given.strip_prefix("http://")).unwrap_or(given);
    let url = Url::parse(&format!("https://{without_scheme}")).ok()?;
    let address = address::canonical(&url)?;
    let address = address.strip_prefix("https://")?;
    let has_path = without_scheme.contains(['/', '?']);
    let site = if has_path { address } else { address.trim_end_matches('/') };
    (!site.is_empty()).then(|| Term::Site(site.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Term {
        Term::Word { text: text.into(), in_title: false }
    }

    fn phrase(text: &str) -> Term {
        Term::Phrase { text: text.into(), in_title: false }
    }

    fn groups(query: &str) -> Vec<Vec<Term>> {
        Query::parse(query).unwrap().groups
    }

    #[test]
    fn words_phrases_alternatives_titles_and_sites_are_read() {
        assert_eq!(groups("fresh  fish"), [[word("fresh")], [word("fish")]]);
        assert_eq!(groups("\"fresh fish\" cod"), [[phrase("fresh fish")], [word("cod")]]);
        assert_eq!(
            groups("a OR \"b c\" OR d e"),
            [vec![word("a"), phrase("b c"), word("d")], vec![word("e")]]
        );
        let titles = groups("title:fish title:\"fresh fish\"");
        assert_eq!(titles[0], [Term::Word { text: "fish".into(), in_title: true }]);
        assert_eq!(titles[1], [Term::Phrase { text: "fresh fish".into(), in_title: true }]);
        let site = |site: &str| vec![Term::Site(site.into())];
        assert_eq!(groups("site:Example.ORG"), [site("example.org")]);
        assert_eq!(groups("site:https://example.org:443/a%7eb"), [site("example.org/a~b")]);
        assert_eq!(groups("site:example.org:8080/"), [site("example.org:8080/")]);
        let query = Query::parse("fish -cod -\"fresh ling\" -site:a.example").unwrap();
        let excluded = [phrase("cod"), phrase("fresh ling"), Term::Site("a.example".into())];
        assert_eq!((query.groups.len(), &query.excluded[..]), (1, &excluded[..]));
    }

    #[test]
    fn whatever_is_no_operator_is_words() {
        assert_eq!(groups("cod OR"), [[word("cod")]]);
        assert_eq!(groups("OR cod"), [[word("cod")]]);
        assert_eq!(groups("a OR OR b"), [vec![word("a"), word("b")]]);
        assert_eq!(groups("a OR -b c"), [[word("a")], [word("c")]]);
        assert_eq!(groups("or AND not"), [[word("or")], [word("AND")], [word("not")]]);
        assert_eq!(groups("std::vec<T> (x)"), [[word("std::vec<T>")], [word("(x)")]]);
        assert_eq!(groups("text:[a TO z]"), [[word("text:[a")], [word("TO")], [word("z]")]]);
        assert_eq!(groups("\"not closed"), [[phrase("not closed")]]);
        assert_eq!(groups("don\"t\""), [[word("don")], [phrase("t")]]);
        assert_eq!(groups("title: - * cod"), [[word("cod")]]);
    }

    #[test]
    fn queries_without_a_word_and_long_ones_are_refused() {
        for query in ["", "  ", "*", "\"\"", "-", "OR", "title:", "\"!?\"", "((((", "~"] {
            let error = Query::parse(query).unwrap_err().to_string();
            assert!(error.contains("is empty"), "{query}: {error}");
        }
        let error = Query::parse("-cod").unwrap_err().to_string();
        assert!(error.contains("only excluded words"), "{error}");
        assert!(Query::parse(&"x".repeat(QUERY_BYTES_MAX)).is_ok());
        let error = Query::parse(&"x".repeat(QUERY_BYTES_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("513 bytes") && error.contains("512"), "{error}");
    }
}

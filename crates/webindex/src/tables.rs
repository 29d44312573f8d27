//! Where everything lies: tables, columns and row keys.
//!
//! ```text
//! table          row               columns
//! documents      URL               doc:content    the page's bytes, lz4      -> parse
//!                                  doc:fetch      when it was loaded, what
//!                                  doc:page       title, text, counts
//!                                  doc:keys       its clustering keys        -> register
//!                                  doc:links      its links                  -> link
//!                                  doc:registered the keys it is a member of
//!                                  doc:linked     the links that are placed
//!                                  doc:canonical  its cluster's canonical, if another -> move
//!                                  doc:rank       its rank
//!                                  links-more, export-page, export-anchors   (notifications)
//! by_content     content hash      member:URL; elect (notification)
//! by_redirect    URL               member:URL; elect (notification)
//! by_canonical   URL               member:URL; elect (notification)
//! inlinks        holder 0 b target in:source = anchors; placed; forward (notification);
//!                                  the target is left out where it is the holder
//! ```
//!
//! A link's **home** is the row whose holder is its target. When the target is a duplicate, the link is
//! also **placed** at the canonical page of the target's cluster: in the row with that holder and the
//! same bucket and target. So "all in-links attached to C" is one prefix scan, and moving them changes
//! nothing at home. The bucket, from the source's hash, spreads a page with very many in-links over
//! [`BUCKETS`] rows, so that no row is hot and no transaction large.

use std::cmp::Ordering;

use percolator::{Column, Percolator, RowKey, Table};
use serde::{Deserialize, Serialize};

use crate::Error;

pub(crate) const DOCUMENTS: &str = "documents";
pub(crate) const INLINKS: &str = "inlinks";

pub(crate) const CONTENT: Column = Column::literal("doc:content");
pub(crate) const FETCH: Column = Column::literal("doc:fetch");
pub(crate) const PAGE: Column = Column::literal("doc:page");
pub(crate) const KEYS: Column = Column::literal("doc:keys");
pub(crate) const LINKS: Column = Column::literal("doc:links");
pub(crate) const REGISTERED: Column = Column::literal("doc:registered");
pub(crate) const LINKED: Column = Column::literal("doc:linked");
pub(crate) const CANONICAL: Column = Column::literal("doc:canonical");
pub(crate) const RANK: Column = Column::literal("doc:rank");

pub(crate) const LINKS_MORE: Column = Column::literal("links-more");
pub(crate) const EXPORT_PAGE: Column = Column::literal("export-page");
pub(crate) const EXPORT_ANCHORS: Column = Column::literal("export-anchors");
pub(crate) const ELECT: Column = Column::literal("elect");
pub(crate) const FORWARD: Column = Column::literal("forward");
pub(crate) const PLACED: Column = Column::literal("placed");

const MEMBER_PREFIX: &[u8] = b"member:";
const IN_PREFIX: &[u8] = b"in:";

/// Over how many rows the in-links of one page are spread.
pub(crate) const BUCKETS: u8 = 32;

/// What pages are clustered by (paper section 3.1: the same content, redirects, declared canonicals).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum KeyKind {
    /// The hash of title and text.
    Content,
    /// A redirect's target, and every page's own URL.
    Redirect,
    /// A `rel=canonical` target, and every page's own URL.
    Canonical,
}

impl KeyKind {
    pub(crate) const ALL: [KeyKind; 3] = [KeyKind::Content, KeyKind::Redirect, KeyKind::Canonical];

    /// The name of the index table.
    pub(crate) fn table(self) -> &'static str {
        match self {
            KeyKind::Content => "by_content",
            KeyKind::Redirect => "by_redirect",
            KeyKind::Canonical => "by_canonical",
        }
    }
}

/// The index's tables, opened.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) documents: Table,
    pub(crate) inlinks: Table,
    by_key: [Table; 3],
}

impl Tables {
    pub(crate) async fn open(db: &Percolator) -> Result<Self, Error> {
        Ok(Tables {
            documents: db.table(DOCUMENTS).await?,
            inlinks: db.table(INLINKS).await?,
            by_key: [
                db.table(KeyKind::Content.table()).await?,
                db.table(KeyKind::Redirect.table()).await?,
                db.table(KeyKind::Canonical.table()).await?,
            ],
        })
    }

    /// The index table of a kind of key.
    pub(crate) fn by_key(&self, kind: KeyKind) -> &Table {
        &self.by_key[kind as usize]
    }

    /// Which kind of key a table indexes.
    pub(crate) fn kind_of(&self, table: &Table) -> Option<KeyKind> {
        KeyKind::ALL.into_iter().find(|kind| self.by_key(*kind) == table)
    }
}

/// The column of a cluster's member in the row of a key.
pub(crate) fn member(url: &str) -> percolator::Result<Column> {
    named(MEMBER_PREFIX, url)
}

/// The URL in a member's column.
pub(crate) fn member_url(column: &Column) -> Option<&str> {
    std::str::from_utf8(column.as_bytes().strip_prefix(MEMBER_PREFIX)?).ok()
}

/// The column of a link's source in a row of in-links.
pub(crate) fn in_link(source: &str) -> percolator::Result<Column> {
    named(IN_PREFIX, source)
}

/// The source in a link's column.
pub(crate) fn in_link_source(column: &Column) -> Option<&str> {
    std::str::from_utf8(column.as_bytes().strip_prefix(IN_PREFIX)?).ok()
}

fn named(prefix: &[u8], name: &str) -> percolator::Result<Column> {
    let mut column = Vec::with_capacity(prefix.len() + name.len());
    column.extend_from_slice(prefix);
    column.extend_from_slice(name.as_bytes());
    Column::new(column)
}

/// A row of in-links: those from one bucket's sources to `target`, attached to `holder`. Ordered as the
/// keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkRow {
    pub(crate) holder: String,
    pub(crate) bucket: u8,
    pub(crate) target: String,
}

impl LinkRow {
    /// Where a link lies whatever becomes of its target.
    pub(crate) fn home(target: &str, bucket: u8) -> Self {
        LinkRow { holder: target.to_owned(), bucket, target: target.to_owned() }
    }

    pub(crate) fn is_home(&self) -> bool {
        self.holder == self.target
    }

    /// What the key holds, in its order.
    fn parts(&self) -> (&str, u8, &str) {
        (&self.holder, self.bucket, self.named_target())
    }

    /// The same links, attached to another page.
    pub(crate) fn at(&self, holder: &str) -> Self {
        LinkRow { holder: holder.to_owned(), ..self.clone() }
    }

    pub(crate) fn key(&self) -> RowKey {
        let mut key = Vec::with_capacity(self.holder.len() + 2 + self.target.len());
        key.extend_from_slice(self.holder.as_bytes());
        // Canonical URLs hold no control characters.
        key.push(0);
        key.push(self.bucket);
        key.extend_from_slice(self.named_target().as_bytes());
        key.into()
    }

    /// The target as the key names it: nothing for a home row. Most rows are, and their keys are written
    /// and compared for each link.
    fn named_target(&self) -> &str {
        if self.is_home() { "" } else { &self.target }
    }

    pub(crate) fn parse(key: &RowKey) -> Option<Self> {
        let bytes = key.as_bytes();
        let end = bytes.iter().position(|b| *b == 0)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let holder = text(&bytes[..end])?;
        let (bucket, target) = bytes[end + 1..].split_first()?;
        let target = if target.is_empty() { holder.clone() } else { text(target)? };
        Some(LinkRow { holder, bucket: *bucket, target })
    }

    /// The prefix of every row of in-links attached to a page.
    pub(crate) fn held_by(holder: &str) -> RowKey {
        let mut key = holder.as_bytes().to_vec();
        key.push(0);
        key.into()
    }
}

impl Ord for LinkRow {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for LinkRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The bucket of a link, from its source.
pub(crate) fn bucket_of(source: &str) -> u8 {
    blake3::hash(source.as_bytes()).as_bytes()[0] % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rows_round_trip_and_sort_by_holder() {
        let home = LinkRow::home("https://a.example/x", 31);
        assert_eq!(LinkRow::parse(&home.key()), Some(home.clone()));
        let moved = home.at("https://a.example/");
        assert!(!moved.is_home() && home.is_home());
        assert_eq!(LinkRow::parse(&moved.key()), Some(moved.clone()));
        let prefix = LinkRow::held_by("https://a.example/");
        assert!(moved.key().as_bytes().starts_with(prefix.as_bytes()));
        assert_eq!(moved.cmp(&home), moved.key().cmp(&home.key()));
        let own = LinkRow::home("https://a.example/", 31);
        assert!(own < moved && own.key() < moved.key());
        assert_eq!(LinkRow::parse(&own.key()), Some(own));
        assert!(!home.key().as_bytes().starts_with(prefix.as_bytes()));
    }

    #[test]
    fn the_longest_urls_fit_a_row_key() {
        let url = "h".repeat(crate::address::URL_BYTES_MAX);
        assert!(LinkRow::home(&url, 0).key().as_bytes().len() <= 4096);
    }
}

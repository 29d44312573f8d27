//! Describes the layout of the index: its tables, columns and row keys.
//!
//! ```text
//! table          row               columns
//! documents      URL               doc:content    the page's bytes, lz4      -> parse
//!                                  doc:fetch      the load time and hash
//!                                  doc:page       title, text, counts
//!                                  doc:keys       the keys to cluster it by  -> register
//!                                  doc:links      its links                  -> link
//!                                  doc:member     its target, and its place in a cluster; empty
//!                                                 if it is no page, but pages stood for it
//!                                  doc:linked     its links that stand in home rows
//!                                  doc:rank       its rank
//!                                  settle, spread, attach, links-more, export-page, export-anchors
//!                                                 (notifications)
//! by_target      URL 0 source      from           the source redirects to the URL, or declares it
//! clusters       cluster           shown = URL; holds: in-links were placed here; elect, relay
//!                                  (notifications)
//!                cluster m place   member         the place: kind, falling rank, URL
//! ranking        "all"             export-ranks (notification)
//! inlinks        holder 0 b target in:source = anchors; forward (notification);
//!                                  placed = the holder of the second row, in a home row
//! webindex       format            version        the version of this layout
//!                search            writer         the writer of the search index (`writer.rs`)
//! ```
//!
//! A **cluster** is named by 32 bytes: the hash of title and text, or a hash of the address
//! that its pages stand for ([`ClusterId`]). Its members are sorted in the order in which they
//! are preferred. So the first row is the page to show, however many others there are.
//!
//! The key of a row of `inlinks` consists of the row's **holder**, a zero byte, the bucket b and
//! the target. The holder is the URL of a page, or the name of a cluster. A link's **home** is the
//! row whose holder is the link's own target, which the key then leaves out. If another page is
//! shown for the target, the link is also **placed** at the target's cluster. That second row has
//! the cluster as its holder, and the same bucket and target. So two prefix scans read the
//! in-links of a shown page: one of its own rows, one of its cluster's. An election moves the
//! links of two pages, not those of all members.
//!
//! The bucket is computed from the source. It spreads a page with very many in-links over
//! [`BUCKETS`] rows, so that no row is hot and no transaction is large.

use std::cmp::Ordering;

use percolator::{Column, Percolator, RowKey, Table};
use serde::{Deserialize, Serialize};

use crate::Error;

pub(crate) const DOCUMENTS: &str = "documents";
pub(crate) const BY_TARGET: &str = "by_target";
pub(crate) const CLUSTERS: &str = "clusters";
pub(crate) const INLINKS: &str = "inlinks";
pub(crate) const FORMAT: &str = "webindex";
pub(crate) const RANKING: &str = "ranking";

/// The only row of the table `ranking`.
pub(crate) const ALL_RANKS: &str = "all";

pub(crate) const CONTENT: Column = Column::literal("doc:content");
pub(crate) const FETCH: Column = Column::literal("doc:fetch");
pub(crate) const PAGE: Column = Column::literal("doc:page");
pub(crate) const KEYS: Column = Column::literal("doc:keys");
pub(crate) const LINKS: Column = Column::literal("doc:links");
pub(crate) const LINKED: Column = Column::literal("doc:linked");
pub(crate) const MEMBER: Column = Column::literal("doc:member");
pub(crate) const RANK: Column = Column::literal("doc:rank");

pub(crate) const SETTLE: Column = Column::literal("settle");
pub(crate) const SPREAD: Column = Column::literal("spread");
pub(crate) const ATTACH: Column = Column::literal("attach");
pub(crate) const LINKS_MORE: Column = Column::literal("links-more");
pub(crate) const EXPORT_PAGE: Column = Column::literal("export-page");
pub(crate) const EXPORT_ANCHORS: Column = Column::literal("export-anchors");
pub(crate) const EXPORT_RANKS: Column = Column::literal("export-ranks");

/// In the row of a cluster: the page that is shown for all its members.
pub(crate) const SHOWN: Column = Column::literal("shown");
pub(crate) const ELECT: Column = Column::literal("elect");
pub(crate) const RELAY: Column = Column::literal("relay");
/// In the row of a cluster at which in-links were placed. Written with the first of them, and never
/// deleted. A cluster without it needs no scan for in-links, and most clusters have none.
pub(crate) const HOLDS: Column = Column::literal("holds");
/// In the row of a member.
pub(crate) const PLACE: Column = Column::literal("member");
/// In the row of a page that stands for another.
pub(crate) const FROM: Column = Column::literal("from");

pub(crate) const FORWARD: Column = Column::literal("forward");
pub(crate) const PLACED: Column = Column::literal("placed");

const IN_PREFIX: &[u8] = b"in:";

/// The number of rows over which the in-links of one page are spread.
pub(crate) const BUCKETS: u8 = 32;

/// The opened tables of the index.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) documents: Table,
    pub(crate) by_target: Table,
    pub(crate) clusters: Table,
    pub(crate) inlinks: Table,
    pub(crate) format: Table,
    pub(crate) ranking: Table,
}

impl Tables {
    pub(crate) async fn open(db: &Percolator) -> Result<Self, Error> {
        Ok(Tables {
            documents: db.table(DOCUMENTS).await?,
            by_target: db.table(BY_TARGET).await?,
            clusters: db.table(CLUSTERS).await?,
            inlinks: db.table(INLINKS).await?,
            format: db.table(FORMAT).await?,
            ranking: db.table(RANKING).await?,
        })
    }
}

/// The name of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ClusterId([u8; 32]);

/// The byte between the cluster's name and the member's place in the key of a member's row.
const MEMBERS: u8 = b'm';

impl ClusterId {
    /// The prefix of the names of all clusters that hold in-links.
    pub(crate) const HOLDERS: &str = "cluster/";

    /// The cluster of the pages whose title and text have this hash.
    pub(crate) fn of_content(hash: [u8; 32]) -> Self {
        ClusterId(hash)
    }

    /// The cluster of the pages that stand for an address that has no text of its own. No
    /// page's title and text have this hash, because they are hashed without this context.
    pub(crate) fn of_address(url: &str) -> Self {
        ClusterId(blake3::derive_key("percolator webindex: cluster of an address", url.as_bytes()))
    }

    /// The row of the cluster itself.
    pub(crate) fn row(&self) -> RowKey {
        self.0.to_vec().into()
    }

    /// The prefix of its members' rows.
    pub(crate) fn members(&self) -> RowKey {
        let mut key = self.0.to_vec();
        key.push(MEMBERS);
        key.into()
    }

    /// The name under which in-links are placed at this cluster. It is not a valid URL of a
    /// page.
    pub(crate) fn holder(&self) -> String {
        format!("{}{}", Self::HOLDERS, blake3::Hash::from(self.0).to_hex())
    }

    /// The cluster that holds a row of in-links. `None` if a page holds the row.
    pub(crate) fn of_holder(holder: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(holder.strip_prefix(Self::HOLDERS)?).ok()?;
        Some(ClusterId(*hash.as_bytes()))
    }

    /// The cluster whose row, or whose member's row, has this key.
    pub(crate) fn of_row(key: &RowKey) -> Option<Self> {
        key.as_bytes().first_chunk().copied().map(ClusterId)
    }
}

/// A member's place in its cluster. The member that is first is shown. Pages that neither
/// redirect nor declare another come first, then pages with a higher rank, then earlier URLs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) cluster: ClusterId,
    /// Whether the page redirects or declares another one.
    pub(crate) stands_for_another: bool,
    pub(crate) rank: f64,
    pub(crate) url: String,
}

impl Place {
    /// The key of the member's row. Ranks are not negative, and the bits of such numbers sort
    /// like the numbers.
    pub(crate) fn key(&self) -> RowKey {
        let rank = if self.rank > 0.0 { self.rank } else { 0.0 };
        let mut key = self.cluster.members().as_bytes().to_vec();
        key.push(u8::from(self.stands_for_another));
        key.extend_from_slice(&(!rank.to_bits()).to_be_bytes());
        key.extend_from_slice(self.url.as_bytes());
        key.into()
    }

    /// Parses the key of a member's row. `None` for the row of the cluster itself.
    pub(crate) fn parse(key: &RowKey) -> Option<Self> {
        let (id, rest) = key.as_bytes().split_first_chunk()?;
        let (stands, rest) = rest.strip_prefix(&[MEMBERS])?.split_first()?;
        let (rank, url) = rest.split_first_chunk()?;
        Some(Place {
            cluster: ClusterId(*id),
            stands_for_another: *stands != 0,
            rank: f64::from_bits(!u64::from_be_bytes(*rank)),
            url: std::str::from_utf8(url).ok()?.to_owned(),
        })
    }
}

/// The row that records that `source` stands for `target`.
pub(crate) fn by_target(target: &str, source: &str) -> RowKey {
    // Canonical URLs hold no control characters.
    [target.as_bytes(), b"\0", source.as_bytes()].concat().into()
}

/// The target and the source in the key of such a row.
pub(crate) fn target_and_source(key: &RowKey) -> Option<(&str, &str)> {
    std::str::from_utf8(key.as_bytes()).ok()?.split_once('\0')
}

/// The column of a link in a row of in-links, named after its source.
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

/// A row of in-links: the links from one bucket's sources to `target`, attached to `holder`.
/// Sorts like its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkRow {
    pub(crate) holder: String,
    pub(crate) bucket: u8,
    pub(crate) target: String,
}

impl LinkRow {
    /// The home row of a link, which does not depend on the target's cluster.
    pub(crate) fn home(target: &str, bucket: u8) -> Self {
        LinkRow { holder: target.to_owned(), bucket, target: target.to_owned() }
    }

    pub(crate) fn is_home(&self) -> bool {
        self.holder == self.target
    }

    /// The parts of the key, in order.
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

    /// The target as the key names it: empty for a home row. Most rows are home rows, and a
    /// short key saves work, because a key is written and compared for each link.
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

    /// The prefix of all rows of in-links that are attached to a page.
    pub(crate) fn held_by(holder: &str) -> RowKey {
        let mut key = holder.as_bytes().to_vec();
        key.push(0);
        key.into()
    }
}

impl LinkRow {
    /// A key behind all rows of in-links that are attached to a page, and before all others.
    pub(crate) fn last_held_by(holder: &str) -> RowKey {
        // The bucket behind the last one.
        [holder.as_bytes(), &[0, BUCKETS]].concat().into()
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

/// The bucket of a link, computed from its source.
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

    fn place(stands_for_another: bool, rank: f64, url: &str) -> Place {
        let cluster = ClusterId::of_address("https://a.example/");
        Place { cluster, stands_for_another, rank, url: url.to_owned() }
    }

    #[test]
    fn members_sort_as_they_are_preferred() {
        let order = [
            place(false, 0.7, "https://z.example/"),
            place(false, 0.2, "https://b.example/"),
            place(false, 0.2, "https://c.example/"),
            place(false, 0.0, "https://a.example/"),
            place(true, 0.9, "https://a.example/"),
        ];
        assert!(order.is_sorted_by_key(Place::key));
        for place in order {
            assert!(place.key().as_bytes().starts_with(place.cluster.members().as_bytes()));
            assert_eq!(ClusterId::of_row(&place.key()), Some(place.cluster));
            assert_eq!(Place::parse(&place.key()), Some(place));
        }
    }

    #[test]
    fn a_cluster_holds_in_links_under_its_own_name() {
        let cluster = ClusterId::of_content([7; 32]);
        assert_eq!(ClusterId::of_holder(&cluster.holder()), Some(cluster));
        assert_eq!(ClusterId::of_holder("https://a.example/"), None);
        assert_eq!(Place::parse(&cluster.row()), None);
    }

    #[test]
    fn who_stands_for_a_page_is_found_by_its_address() {
        let row = by_target("https://a.example/", "https://b.example/");
        assert_eq!(target_and_source(&row), Some(("https://a.example/", "https://b.example/")));
    }

    #[test]
    fn the_longest_urls_fit_a_row_key() {
        let url = "h".repeat(crate::address::URL_BYTES_MAX);
        let held = LinkRow::home(&url, 0).at(&ClusterId::of_content([7; 32]).holder());
        for key in [
            LinkRow::home(&url, 0).key(),
            held.key(),
            by_target(&url, &url),
            place(true, 0.5, &url).key(),
        ] {
            assert!(key.as_bytes().len() <= percolator::transaction::ROW_KEY_BYTES_MAX);
        }
    }
}

//! Elect: finds a cluster's members and its canonical page (paper section 3.1).
//!
//! Pages that share a clustering key are duplicates of each other, and so are those connected through
//! others. The canonical member is the one with the highest rank, ties by URL. A page without
//! `doc:canonical` is its own canonical, so the many pages without duplicates need no record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use percolator::{Change, Error, Observer, Result, RowRange, Transaction, async_trait};

use crate::records::{Keys, decode, decode_rank, decode_url};
use crate::tables::{CANONICAL, ELECT, EXPORT_PAGE, KEYS, KeyKind, RANK, Tables, member_url};

/// The most members of one cluster. A larger one is a mistake of the site's (every page names the same
/// canonical, say); its election fails, is set aside and named.
const MEMBERS_MAX: usize = 20_000;

/// Observes `elect` in each index table.
#[derive(Debug)]
pub(super) struct Elect {
    tables: Tables,
}

/// A cluster's members by URL.
pub(crate) type Cluster = BTreeMap<String, Member>;

/// What an election needs of a member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) rank: f64,
    /// Its canonical as recorded, if another page.
    pub(crate) canonical: Option<String>,
}

/// The best page so far, by rank and then by URL.
#[derive(Debug)]
pub(crate) struct Best<'a> {
    url: &'a str,
    rank: f64,
}

impl<'a> Best<'a> {
    pub(crate) fn of(pages: impl Iterator<Item = (&'a str, f64)>) -> Option<&'a str> {
        let pages = pages.map(|(url, rank)| Best { url, rank });
        let better = |a: &Best, b: &Best| a.rank.total_cmp(&b.rank).then(b.url.cmp(a.url));
        pages.max_by(better).map(|best| best.url)
    }
}

/// The canonical page of a cluster.
pub(crate) fn choose(cluster: &Cluster) -> Option<&str> {
    Best::of(cluster.iter().map(|(url, member)| (url.as_str(), member.rank)))
}

impl Elect {
    pub(super) fn new(tables: Tables) -> Self {
        Elect { tables }
    }
}

impl Tables {
    /// The pages of an index row.
    async fn members(&self, tx: &Transaction, kind: KeyKind, key: &[u8]) -> Result<Vec<String>> {
        let rows = tx.scan(self.by_key(kind)).range(RowRange::row(key)).collect().await?;
        let cells = rows.iter().flat_map(|row| &row.cells);
        Ok(cells.filter_map(|(column, _)| member_url(column).map(str::to_owned)).collect())
    }

    /// Everything connected with a row of an index table.
    pub(crate) async fn cluster(
        &self,
        tx: &Transaction,
        kind: KeyKind,
        key: &[u8],
    ) -> Result<Cluster> {
        let mut cluster = Cluster::new();
        let mut seen = BTreeSet::from([(kind, key.to_vec())]);
        let mut open = VecDeque::from([(kind, key.to_vec())]);
        while let Some((kind, key)) = open.pop_front() {
            for url in self.members(tx, kind, &key).await? {
                if cluster.contains_key(&url) {
                    continue;
                }
                if cluster.len() >= MEMBERS_MAX {
                    return Err(Error::application(format!(
                        "the cluster of {url} has more than {MEMBERS_MAX} pages: check what they \
                         declare as their canonical URL or redirect target"
                    )));
                }
                let row = [url.as_str().into()];
                let cells = tx.get_many(&self.documents, &row, &[KEYS, RANK, CANONICAL]).await?;
                let [keys, rank, canonical] = &cells[0][..] else { continue };
                let Some(keys) = decode::<Keys>(keys.clone())? else { continue };
                let rank = decode_rank(rank.as_ref());
                let canonical = decode_url(canonical.clone())?;
                for row in keys.rows(&url) {
                    if seen.insert(row.clone()) {
                        open.push_back(row);
                    }
                }
                cluster.insert(url, Member { rank, canonical });
            }
        }
        Ok(cluster)
    }
}

#[async_trait]
impl Observer for Elect {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let Some(kind) = self.tables.kind_of(&change.table) else { return Ok(()) };
        let cluster = self.tables.cluster(tx, kind, change.row.as_bytes()).await?;
        let Some(canonical) = choose(&cluster) else { return Ok(()) };
        let documents = &self.tables.documents;
        let by_redirect = self.tables.by_key(KeyKind::Redirect);
        let mut changed = false;
        for (url, member) in &cluster {
            let wanted = (url != canonical).then_some(canonical);
            if member.canonical.as_deref() == wanted {
                continue;
            }
            match wanted {
                Some(other) => tx.set(documents, url.as_str(), &CANONICAL, other.to_owned())?,
                None => tx.delete(documents, url.as_str(), &CANONICAL)?,
            }
            tx.notify(documents, url.as_str(), &EXPORT_PAGE)?;
            // Each changed page is looked at again from its own row: a page that linked them may have
            // left meanwhile, and then no other row leads to all of them.
            tx.notify(by_redirect, url.as_str(), &ELECT)?;
            changed = true;
        }
        if changed {
            tx.notify(documents, canonical, &EXPORT_PAGE)?;
        }
        Ok(())
    }
}

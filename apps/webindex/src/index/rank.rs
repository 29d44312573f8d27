//! The ranking job: computes PageRank over the stored links, and writes the ranks back in
//! transactions.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::try_join_all;
use percolator::{Bytes, RowKey, Snapshot, Transaction};

use crate::index::{Progress, WebIndex};
use crate::records::{Keys, Links, Member, decode, decode_rank, decode_url, encode, encode_rank};
use crate::tables::{
    ALL_RANKS, ClusterId, ELECT, EXPORT_RANKS, KEYS, LINKS, MEMBER, PLACE, RANK, SHOWN,
};
use crate::{Error, pagerank};

/// How many ranks are written in one transaction.
const WRITTEN_AT_ONCE: usize = 200;
/// A rank that changed by a smaller share of itself is left as it is.
const UNCHANGED: f64 = 1e-9;

/// The outcome of a ranking.
///
/// ```
/// let report = webindex::RankReport::default();
/// assert_eq!(report.pages, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct RankReport {
    /// Pages ranked.
    pub pages: usize,
    /// Links between them.
    pub edges: usize,
    /// Pages whose rank changed.
    pub changed: usize,
    /// Rounds of the power iteration.
    pub iterations: u32,
    /// Whether the job was stopped before all ranks were written.
    pub stopped: bool,
}

impl WebIndex {
    /// Ranks all pages by the links between them, as of one snapshot. A page that redirects
    /// counts as having one link, to its target. The canonical pages of clusters may change,
    /// and the observers follow.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn rank(&self, progress: &Progress) -> Result<RankReport, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut scan = snapshot.scan(&self.tables.documents).columns([&KEYS, &RANK]);
        let (mut urls, mut ranks) = (Vec::new(), Vec::new());
        while let Some(row) = scan.next().await? {
            let cells: HashMap<_, Bytes> = row.cells.into_iter().collect();
            if cells.contains_key(&KEYS) {
                urls.push(String::from_utf8_lossy(row.row.as_bytes()).into_owned());
                ranks.push(decode_rank(cells.get(&RANK)));
            }
        }
        let edges = self.edges(&snapshot, &urls).await?;
        let pages = u32::try_from(urls.len()).expect("URLs beyond 2^32 do not fit the memory");
        let ranking = pagerank::pagerank(pages, &edges)?;
        let moved = |old: f64, new: f64| (new - old).abs() > UNCHANGED * new.abs();
        let changed: Vec<(&str, f64)> = urls
            .iter()
            .map(String::as_str)
            .zip(ranks.into_iter().zip(ranking.ranks))
            .filter(|(_, (old, new))| moved(*old, *new))
            .map(|(url, (_, new))| (url, new))
            .collect();
        progress.begin(changed.len());
        let mut report = RankReport {
            pages: urls.len(),
            edges: edges.len(),
            iterations: ranking.iterations,
            ..RankReport::default()
        };
        for some in changed.chunks(WRITTEN_AT_ONCE) {
            if progress.is_stopped() {
                report.stopped = true;
                break;
            }
            self.db.admit().await?;
            report.changed += self.write_ranks(some).await?;
            progress.step(some.len());
        }
        if changed.is_empty() {
            // Notify even so: the search index may have lost its ranks, or may have been
            // created again.
            self.write_ranks(&[]).await?;
        }
        Ok(report)
    }

    /// Reads the links between the pages, as pairs of page numbers. This second scan costs
    /// time. But a page's number is known only after the first scan. Keeping the links with
    /// their URLs and anchors until then would take far more memory than the pairs.
    async fn edges(&self, snapshot: &Snapshot, urls: &[String]) -> Result<Vec<(u32, u32)>, Error> {
        let node: HashMap<&str, u32> = urls.iter().map(String::as_str).zip(0..).collect();
        let mut scan = snapshot.scan(&self.tables.documents).columns([&KEYS, &LINKS]);
        let mut edges = Vec::new();
        while let Some(row) = scan.next().await? {
            let url = String::from_utf8_lossy(row.row.as_bytes());
            let Some(&from) = node.get(&*url) else { continue };
            let cells: HashMap<_, Bytes> = row.cells.into_iter().collect();
            let keys = decode::<Keys>(cells.get(&KEYS).cloned())?;
            if let Some(target) = keys.and_then(|keys| keys.redirect) {
                edges.extend(node.get(target.as_str()).map(|to| (from, *to)));
                continue;
            }
            let links = decode::<Links>(cells.get(&LINKS).cloned())?.unwrap_or_default().0;
            let targets = links.iter().filter_map(|(target, _)| node.get(target.as_str()));
            edges.extend(targets.map(|to| (from, *to)));
        }
        Ok(edges)
    }

    pub(super) async fn write_ranks(&self, ranks: &[(&str, f64)]) -> Result<usize, Error> {
        let documents = &self.tables.documents;
        let rows: Vec<RowKey> = ranks.iter().map(|(url, _)| (*url).into()).collect();
        let written = self
            .db
            .named("rank")
            .transact(async |mut tx| {
                let there = tx.get_many(documents, &rows, &[MEMBER]).await?;
                let mut pages = Vec::with_capacity(ranks.len());
                for ((url, rank), cells) in ranks.iter().zip(there) {
                    // A page without this record was deleted since the snapshot: writing its rank
                    // would bring a part of it back.
                    let member = decode::<Member>(cells[0].clone())?;
                    pages.extend(member.filter(|m| !m.is_gone()).map(|m| (*url, *rank, m)));
                }
                let clusters = pages.iter().filter_map(|(_, _, member)| member.cluster());
                let alone = self.alone(&tx, clusters.collect()).await?;
                let written = pages.len();
                for (url, rank, member) in pages {
                    self.write_rank(&mut tx, url, member, rank, &alone)?;
                }
                // Notify with each transaction, so that the search index gets these ranks even
                // if this transaction is the last one.
                tx.notify(&self.tables.ranking, ALL_RANKS, &EXPORT_RANKS)?;
                Ok(written)
            })
            .await?;
        Ok(written)
    }

    /// Reads for each of these clusters that has only one page the page that it shows. All clusters
    /// are read at the same time, because a store behind a network takes its time for each request.
    async fn alone(
        &self,
        tx: &Transaction,
        clusters: BTreeSet<ClusterId>,
    ) -> percolator::Result<BTreeMap<ClusterId, String>> {
        let first = clusters.iter().map(|cluster| self.tables.first_members(tx, *cluster, 2));
        let first = try_join_all(first).await?;
        let alone = clusters.into_iter().zip(first).filter(|(_, first)| first.len() < 2);
        let alone: Vec<ClusterId> = alone.map(|(cluster, _)| cluster).collect();
        let rows: Vec<RowKey> = alone.iter().map(ClusterId::row).collect();
        let shown = tx.get_many(&self.tables.clusters, &rows, &[SHOWN]).await?;
        let shown = alone.into_iter().zip(shown).filter_map(|(cluster, cells)| {
            let shown = decode_url(cells.into_iter().next().flatten()).transpose()?;
            Some(shown.map(|url| (cluster, url)))
        });
        shown.collect()
    }

    /// Writes a page's rank, and moves the page to the place in its cluster that the rank
    /// gives it. The cluster elects again the page that it shows, unless it has only one page and
    /// shows it.
    fn write_rank(
        &self,
        tx: &mut Transaction,
        url: &str,
        mut member: Member,
        rank: f64,
        alone: &BTreeMap<ClusterId, String>,
    ) -> percolator::Result<()> {
        let (documents, clusters) = (&self.tables.documents, &self.tables.clusters);
        tx.set(documents, url, &RANK, encode_rank(rank))?;
        if let (Some(old), Some((cluster, placed))) = (member.place(url), &mut member.placed) {
            let cluster = *cluster;
            *placed = rank;
            let new = member.place(url).expect("it is placed, as it was before");
            tx.delete(clusters, old.key(), &PLACE)?;
            tx.set(clusters, new.key(), &PLACE, "")?;
            if alone.get(&cluster).is_some_and(|shown| shown == url) {
                // The only member stays shown. An election may run at the same time, because
                // another page has entered. It may have read the old place, and conflicts with
                // this write.
                tx.set(clusters, cluster.row(), &SHOWN, url.to_owned())?;
            } else {
                tx.notify(clusters, cluster.row(), &ELECT)?;
            }
        }
        // Write the record even if the page is not settled: a run that settles it now has read
        // the old rank, and must conflict.
        tx.set(documents, url, &MEMBER, encode(&member))
    }
}

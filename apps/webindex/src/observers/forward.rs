//! Attaches the in-links of a duplicate to its cluster, where the shown page finds them (paper
//! section 1: "even if a page has duplicates, links are attributed to the canonical").
//!
//! Two observers notify home rows that may have something to forward. `attach` notifies all
//! home rows of a page if the page's cluster has changed, or if it has begun or ceased to be
//! shown. The exporter notifies all home rows of a duplicate if a link to it has changed. Most
//! pages are not duplicates, and for them nothing is done here.
//!
//! No link is missed in between. A link committed at c notifies the exporter at c, whose run
//! begins after c. Either that run sees that the target is a duplicate, or the target becomes
//! one later. In the second case `attach` runs later still, and sees the link in its home row.
//!
//! A new link notifies the exporter of its target, which reads whether the target is a duplicate.
//! Only if it is, the exporter notifies the home rows, because nearly no new link has to be
//! forwarded.

use std::collections::BTreeMap;
use std::ops::Bound;

use percolator::observe::BatchObserver;
use percolator::{Bytes, Change, Column, Error, Observer, Result, RowKey, RowRange, Transaction};

use super::row_url::row_url;
use crate::records::decode_url;
use crate::tables::{
    ClusterId, EXPORT_ANCHORS, FORWARD, HOLDS, LinkRow, MEMBER, PLACED, RELAY, Tables,
    in_link_source,
};

/// Observes `forward` on the home rows of in-links.
#[derive(Debug)]
pub(super) struct Forward {
    tables: Tables,
}

/// The links in a row of in-links, and where they are placed too.
#[derive(Debug, Default)]
struct Links {
    /// The source columns and anchors.
    links: BTreeMap<Column, Bytes>,
    /// The holder of the second row, in a home row.
    placed: Option<String>,
}

impl Links {
    fn of(cells: impl IntoIterator<Item = (Column, Bytes)>) -> Result<Self> {
        let mut links = Links::default();
        for (column, value) in cells {
            if column == PLACED {
                links.placed = decode_url(Some(value))?;
            } else if in_link_source(&column).is_some() {
                links.links.insert(column, value);
            }
        }
        Ok(links)
    }
}

/// Observes `attach`: all of the page's in-links may have to move.
#[derive(Debug)]
pub(super) struct Attach {
    tables: Tables,
}

impl Forward {
    pub(super) fn new(tables: Tables) -> Self {
        Forward { tables }
    }

    /// Reads for each target the cluster at which its links must be placed. `None` if the target
    /// is shown itself, or is no page of a cluster. Has the rows of these clusters say that they
    /// hold in-links.
    async fn holders(&self, tx: &mut Transaction, urls: &[&String]) -> Result<Vec<Option<String>>> {
        let rows: Vec<RowKey> = urls.iter().map(|url| url.as_str().into()).collect();
        let members = tx.get_many(&self.tables.documents, &rows, [&MEMBER]).await?;
        let clusters = self.tables.clusters_of(tx, members.into_iter().flatten()).await?;
        let mut holders = Vec::with_capacity(urls.len());
        for (url, cluster) in urls.iter().zip(clusters) {
            let cluster = cluster.filter(|row| row.shown.as_ref() != Some(*url));
            if let Some(row) = cluster.as_ref().filter(|row| !row.holds) {
                tx.set(&self.tables.clusters, row.id.row(), &HOLDS, "")?;
            }
            holders.push(cluster.map(|row| row.id.holder()));
        }
        Ok(holders)
    }

    /// Reads the links and the holder that a row has.
    async fn links(&self, tx: &Transaction, row: &LinkRow) -> Result<Links> {
        let range = RowRange::row(row.key());
        let rows = tx.scan(&self.tables.inlinks).range(range).collect().await?;
        Links::of(rows.into_iter().flat_map(|row| row.cells))
    }

    /// Makes the links in `row` equal to `wanted`. Returns whether anything changed.
    fn replace(
        &self,
        tx: &mut Transaction,
        row: &LinkRow,
        there: &BTreeMap<Column, Bytes>,
        wanted: &BTreeMap<Column, Bytes>,
    ) -> Result<bool> {
        let key = row.key();
        for column in there.keys().filter(|column| !wanted.contains_key(*column)) {
            tx.delete(&self.tables.inlinks, &key, column)?;
        }
        for (column, anchors) in wanted {
            if there.get(column) != Some(anchors) {
                tx.set(&self.tables.inlinks, &key, column, anchors.clone())?;
            }
        }
        Ok(there != wanted)
    }

    /// Notifies the exporter of the page that shows the in-links of a holder.
    fn links_changed(&self, tx: &mut Transaction, holder: &str) -> Result<()> {
        match ClusterId::of_holder(holder) {
            Some(cluster) => tx.notify(&self.tables.clusters, cluster.row(), &RELAY),
            // An earlier version placed these links at the page itself.
            None => tx.notify(&self.tables.documents, holder, &EXPORT_ANCHORS),
        }
    }

    /// Forwards the links of some home rows of one target, which are in the order of their keys.
    async fn forward(
        &self,
        tx: &mut Transaction,
        homes: &[LinkRow],
        wanted: Option<&String>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (homes.first(), homes.last()) else { return Ok(()) };
        // The rows between them are rows of the same target, at most one for each bucket.
        let (start, end) = (Bound::Included(first.key()), Bound::Included(last.key()));
        let scan = tx.scan(&self.tables.inlinks).range(RowRange { start, end });
        let mut rows: BTreeMap<RowKey, Links> = BTreeMap::new();
        for row in scan.collect().await? {
            rows.insert(row.row, Links::of(row.cells)?);
        }
        for home in homes {
            let found = rows.remove(&home.key()).unwrap_or_default();
            self.forward_row(tx, home, found, wanted).await?;
        }
        Ok(())
    }

    /// Forwards the links of one home row. Nothing is placed at a holder that `PLACED` does not
    /// name.
    async fn forward_row(
        &self,
        tx: &mut Transaction,
        home: &LinkRow,
        Links { links, placed }: Links,
        wanted: Option<&String>,
    ) -> Result<()> {
        let none = BTreeMap::new();
        if let Some(old) = placed.as_ref().filter(|old| Some(*old) != wanted) {
            let there = self.links(tx, &home.at(old)).await?.links;
            self.replace(tx, &home.at(old), &there, &none)?;
            self.links_changed(tx, old)?;
        }
        let key = home.key();
        // `PLACED` is written even if it stays the same, so that two overlapping runs for one row
        // conflict.
        let Some(new) = wanted else {
            return tx.delete(&self.tables.inlinks, &key, &PLACED);
        };
        let stays = placed.as_ref() == wanted;
        let there = if stays { self.links(tx, &home.at(new)).await?.links } else { none };
        if self.replace(tx, &home.at(new), &there, &links)? || !stays {
            self.links_changed(tx, new)?;
        }
        tx.set(&self.tables.inlinks, &key, &PLACED, new.clone())
    }
}

impl BatchObserver for Forward {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        let mut by_target: BTreeMap<String, Vec<LinkRow>> = BTreeMap::new();
        for change in changes {
            let home = LinkRow::parse(&change.row).filter(LinkRow::is_home).ok_or_else(|| {
                Error::application(format!("{} is not a home row of in-links", change.row))
            })?;
            by_target.entry(home.target.clone()).or_default().push(home);
        }
        let targets: Vec<&String> = by_target.keys().collect();
        let holders = self.holders(tx, &targets).await?;
        for (homes, holder) in by_target.values_mut().zip(holders) {
            homes.sort();
            self.forward(tx, homes, holder.as_ref()).await?;
        }
        Ok(())
    }
}

impl Attach {
    pub(super) fn new(tables: Tables) -> Self {
        Attach { tables }
    }
}

impl Observer for Attach {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = row_url(change)?;
        self.tables.notify_homes(tx, &url).await
    }
}

impl Tables {
    /// Notifies the home rows of a page's in-links.
    pub(super) async fn notify_homes(&self, tx: &mut Transaction, url: &str) -> Result<()> {
        let mut homes = Vec::new();
        let mut scan = tx.scan(&self.inlinks).prefix(LinkRow::held_by(url));
        while let Some(row) = scan.next().await? {
            if LinkRow::parse(&row.row).is_some_and(|row| row.is_home()) {
                homes.push(row.row);
            }
        }
        drop(scan);
        homes.into_iter().try_for_each(|home| tx.notify(&self.inlinks, home, &FORWARD))
    }
}

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

use percolator::observe::BatchObserver;
use percolator::{Bytes, Change, Column, Error, Observer, Result, RowRange, Transaction};

use super::row_url::row_url;
use crate::records::{Member, decode, decode_url};
use crate::tables::{
    ClusterId, EXPORT_ANCHORS, FORWARD, LinkRow, MEMBER, PLACED, RELAY, Tables, in_link_source,
};

/// Observes `forward` on the home rows of in-links.
#[derive(Debug)]
pub(super) struct Forward {
    tables: Tables,
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

    /// Reads the links in a row: their source columns and anchors.
    async fn links(&self, tx: &Transaction, row: &LinkRow) -> Result<BTreeMap<Column, Bytes>> {
        let range = RowRange::row(row.key());
        let rows = tx.scan(&self.tables.inlinks).range(range).collect().await?;
        let cells = rows.into_iter().flat_map(|row| row.cells);
        Ok(cells.filter(|(column, _)| in_link_source(column).is_some()).collect())
    }

    /// Makes the links in `row` equal to `wanted`. Returns whether anything changed.
    async fn replace(
        &self,
        tx: &mut Transaction,
        row: &LinkRow,
        wanted: &BTreeMap<Column, Bytes>,
    ) -> Result<bool> {
        let there = self.links(tx, row).await?;
        let key = row.key();
        for column in there.keys().filter(|column| !wanted.contains_key(*column)) {
            tx.delete(&self.tables.inlinks, &key, column)?;
        }
        for (column, anchors) in wanted {
            if there.get(column) != Some(anchors) {
                tx.set(&self.tables.inlinks, &key, column, anchors.clone())?;
            }
        }
        Ok(there != *wanted)
    }

    /// Notifies the exporter of the page that shows the in-links of a holder.
    fn links_changed(&self, tx: &mut Transaction, holder: &str) -> Result<()> {
        match ClusterId::of_holder(holder) {
            Some(cluster) => tx.notify(&self.tables.clusters, cluster.row(), &RELAY),
            // An earlier version placed these links at the page itself.
            None => tx.notify(&self.tables.documents, holder, &EXPORT_ANCHORS),
        }
    }

    /// Forwards the links of one home row.
    async fn forward(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let home = LinkRow::parse(&change.row).filter(LinkRow::is_home).ok_or_else(|| {
            Error::application(format!("{} is not a home row of in-links", change.row))
        })?;
        let (documents, inlinks) = (&self.tables.documents, &self.tables.inlinks);
        let member = tx.get(documents, home.target.as_str(), &MEMBER).await?;
        let cluster = decode::<Member>(member)?.and_then(|member| member.cluster());
        let wanted = match cluster {
            Some(id) if self.tables.shown(tx, id).await?.as_ref() != Some(&home.target) => Some(id),
            _ => None,
        };
        let wanted = wanted.map(|id| id.holder());
        let placed = decode_url(tx.get(inlinks, &change.row, &PLACED).await?)?;
        if wanted.is_none() && placed.is_none() {
            return Ok(());
        }
        let mut changed = false;
        if let Some(old) = placed.as_ref().filter(|old| Some(*old) != wanted.as_ref()) {
            changed |= self.replace(tx, &home.at(old), &BTreeMap::new()).await?;
            self.links_changed(tx, old)?;
        }
        if let Some(new) = &wanted {
            let links = self.links(tx, &home).await?;
            changed |= self.replace(tx, &home.at(new), &links).await?;
        }
        if changed || placed != wanted {
            // Written even if it stays the same, so that two runs that move different links
            // conflict.
            match wanted {
                Some(new) => {
                    self.links_changed(tx, &new)?;
                    tx.set(inlinks, &change.row, &PLACED, new)?;
                }
                None => tx.delete(inlinks, &change.row, &PLACED)?,
            }
            tx.notify(inlinks, &change.row, &FORWARD)?;
        }
        Ok(())
    }
}

impl BatchObserver for Forward {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        for change in changes {
            self.forward(tx, change).await?;
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

//! Chooses the page that is shown for a cluster (paper section 3.1).
//!
//! The members are sorted in the order in which they are preferred. So an election reads the
//! first row and writes the cluster's, and its cost does not depend on the number of members.
//! It writes that row even if the same page stays shown. Therefore two elections of one
//! cluster conflict, and the second one reads again. So the last election of a cluster has
//! seen every change of its members.

use percolator::{Change, Error, Observer, Result, Transaction};

use crate::tables::{ATTACH, ClusterId, EXPORT_ANCHORS, EXPORT_PAGE, PLACE, Place, SHOWN, Tables};

/// Observes `elect` in the row of a cluster.
#[derive(Debug)]
pub(super) struct Elect {
    tables: Tables,
}

/// Observes `relay` in the row of a cluster: the in-links placed there have changed.
#[derive(Debug)]
pub(super) struct Relay {
    tables: Tables,
}

impl Elect {
    pub(super) fn new(tables: Tables) -> Self {
        Elect { tables }
    }
}

impl Relay {
    pub(super) fn new(tables: Tables) -> Self {
        Relay { tables }
    }
}

fn cluster_of(change: &Change) -> Result<ClusterId> {
    ClusterId::of_row(&change.row)
        .ok_or_else(|| Error::application(format!("the row {} names no cluster", change.row)))
}

impl Tables {
    /// Reads the first members of a cluster, in the order in which they are preferred.
    pub(crate) async fn first_members(
        &self,
        tx: &Transaction,
        id: ClusterId,
        limit: usize,
    ) -> Result<Vec<Place>> {
        let scan = tx.scan(&self.clusters).prefix(id.members()).columns([&PLACE]).limit(limit);
        let rows = scan.collect().await?;
        Ok(rows.iter().filter_map(|row| Place::parse(&row.row)).collect())
    }
}

impl Observer for Elect {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let id = cluster_of(change)?;
        let best = self.tables.first_members(tx, id, 1).await?.pop().map(|place| place.url);
        let shown = self.tables.shown(tx, id).await?;
        for url in [&shown, &best].into_iter().flatten().filter(|_| shown != best) {
            tx.notify(&self.tables.documents, url.as_str(), &EXPORT_PAGE)?;
            tx.notify(&self.tables.documents, url.as_str(), &ATTACH)?;
        }
        match best {
            Some(best) => tx.set(&self.tables.clusters, &change.row, &SHOWN, best),
            None => tx.delete(&self.tables.clusters, &change.row, &SHOWN),
        }
    }
}

impl Observer for Relay {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        // A page that is elected later is exported later, with all links that are placed by
        // then.
        match self.tables.shown(tx, cluster_of(change)?).await? {
            Some(shown) => tx.notify(&self.tables.documents, shown, &EXPORT_ANCHORS),
            None => Ok(()),
        }
    }
}

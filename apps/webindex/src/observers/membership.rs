//! Moves pages between clusters, and notifies the observers that must follow.
//!
//! A page's place is its position among the members of its cluster. Every change of a page's
//! cluster or place writes `doc:member`, so two changes of one page conflict.
//! Every election writes the cluster's row, which names the shown page. A page that enters a
//! cluster without a shown page writes that row too: the page is shown, and no election is
//! needed. Most clusters never have a second member, and cost nothing more.

use percolator::{Bytes, Result, RowKey, Transaction};

use crate::records::{Member, decode, decode_rank, decode_url, encode};
use crate::tables::{
    ATTACH, ClusterId, ELECT, EXPORT_PAGE, HOLDS, MEMBER, PLACE, Place, RANK, SHOWN, SPREAD, Tables,
};

/// The row of a page's cluster.
pub(super) struct ClusterRow {
    pub(super) id: ClusterId,
    /// The page that is shown for the cluster.
    pub(super) shown: Option<String>,
    /// Whether in-links were placed at the cluster.
    pub(super) holds: bool,
}

impl Tables {
    /// Reads a page's record and its rank.
    pub(super) async fn member(
        &self,
        tx: &Transaction,
        url: &str,
    ) -> Result<(Option<Member>, f64)> {
        let [member, rank] = tx.get_row(&self.documents, url, [&MEMBER, &RANK]).await?;
        Ok((decode(member)?, decode_rank(rank.as_ref())))
    }

    /// Reads which page is shown for a cluster.
    pub(crate) async fn shown(&self, tx: &Transaction, id: ClusterId) -> Result<Option<String>> {
        decode_url(tx.get(&self.clusters, id.row(), &SHOWN).await?)
    }

    /// Reads the rows of the clusters of some pages, given the pages' cells `member`, in order.
    /// `None` for a page without a cluster.
    pub(super) async fn clusters_of(
        &self,
        tx: &Transaction,
        members: impl IntoIterator<Item = Option<Bytes>>,
    ) -> Result<Vec<Option<ClusterRow>>> {
        let cluster = |cell| Ok(decode::<Member>(cell)?.and_then(|member| member.cluster()));
        let ids: Vec<Option<ClusterId>> =
            members.into_iter().map(cluster).collect::<Result<_>>()?;
        let rows: Vec<RowKey> = ids.iter().flatten().map(ClusterId::row).collect();
        let mut cells = tx.get_many(&self.clusters, &rows, [&SHOWN, &HOLDS]).await?.into_iter();
        let row = |id: Option<ClusterId>| {
            let Some((id, of)) = id.and_then(|id| Some((id, cells.next()?))) else {
                return Ok(None);
            };
            let mut of = of.into_iter();
            let (shown, holds) = (of.next().flatten(), of.next().flatten().is_some());
            Ok(Some(ClusterRow { id, shown: decode_url(shown)?, holds }))
        };
        ids.into_iter().map(row).collect()
    }

    /// Takes a page out of its cluster. The caller must write `member`.
    pub(super) fn leave(&self, tx: &mut Transaction, url: &str, member: &mut Member) -> Result<()> {
        let Some(place) = member.place(url) else { return Ok(()) };
        member.placed = None;
        tx.delete(&self.clusters, place.key(), &PLACE)?;
        tx.notify(&self.clusters, place.cluster.row(), &ELECT)?;
        tx.notify(&self.documents, url, &ATTACH)
    }

    /// Puts a page that is in no cluster into one. The caller must write `member`.
    pub(super) async fn enter(
        &self,
        tx: &mut Transaction,
        url: &str,
        member: &mut Member,
        (id, rank): (ClusterId, f64),
    ) -> Result<()> {
        member.placed = Some((id, rank));
        let place = member.place(url).expect("it was placed in the line above");
        tx.set(&self.clusters, place.key(), &PLACE, "")?;
        if self.shown(tx, id).await?.is_some() {
            tx.notify(&self.clusters, id.row(), &ELECT)?;
            return tx.notify(&self.documents, url, &ATTACH);
        }
        // If two pages enter at the same time, one conflicts here, runs again, and finds the
        // other.
        tx.set(&self.clusters, id.row(), &SHOWN, url.to_owned())?;
        tx.notify(&self.documents, url, &EXPORT_PAGE)
    }

    /// Gives a page that stands for another the cluster of its target. Writes the record even
    /// if it stays the same. So two runs that read different states of the target conflict,
    /// and the second one reads again.
    pub(super) async fn follow(
        &self,
        tx: &mut Transaction,
        url: &str,
        (mut member, rank): (Member, f64),
        cluster: Option<ClusterId>,
    ) -> Result<()> {
        if member.cluster() != cluster {
            self.leave(tx, url, &mut member)?;
            if let Some(cluster) = cluster {
                self.enter(tx, url, &mut member, (cluster, rank)).await?;
            }
            member.told = None;
            tx.notify(&self.documents, url, &SPREAD)?;
        }
        tx.set(&self.documents, url, &MEMBER, encode(&member))
    }
}

impl Member {
    /// The page's place in its cluster.
    pub(crate) fn place(&self, url: &str) -> Option<Place> {
        let (cluster, rank) = self.placed?;
        let stands_for_another = self.stands_for.is_some();
        Some(Place { cluster, stands_for_another, rank, url: url.to_owned() })
    }
}

/// The cluster of the pages that stand for `url`, given that address's own record. An address
/// that is not a page of the index has a cluster of its own. `None` until the page at the
/// address is settled.
pub(super) fn cluster_behind(url: &str, member: Option<&Member>) -> Option<ClusterId> {
    match member.filter(|member| !member.is_gone()) {
        Some(member) => member.cluster(),
        None => Some(ClusterId::of_address(url)),
    }
}

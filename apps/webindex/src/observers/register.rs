//! Puts a page whose keys have changed into its cluster (paper section 3.1).
//!
//! A page with its own text goes into the cluster of that text here. A page that redirects or
//! declares another one is recorded under its target, and [`settle`](super::settle) finds its
//! cluster.

use percolator::{Change, Observer, Result, Transaction};

use super::row_url::row_url;
use crate::records::{Keys, Member, decode, encode};
use crate::tables::{EXPORT_PAGE, FROM, KEYS, MEMBER, RANK, SETTLE, SPREAD, Tables, by_target};

/// Observes `doc:keys`.
#[derive(Debug)]
pub(super) struct Register {
    tables: Tables,
}

impl Register {
    pub(super) fn new(tables: Tables) -> Self {
        Register { tables }
    }

    /// Records the page under the address that it stands for.
    fn stand_for(
        &self,
        tx: &mut Transaction,
        url: &str,
        old: Option<&str>,
        new: Option<&str>,
    ) -> Result<()> {
        if old == new {
            return Ok(());
        }
        if let Some(old) = old {
            tx.delete(&self.tables.by_target, by_target(old, url), &FROM)?;
        }
        match new {
            Some(new) => tx.set(&self.tables.by_target, by_target(new, url), &FROM, ""),
            None => Ok(()),
        }
    }
}

impl Observer for Register {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = row_url(change)?;
        let Change { table, row, .. } = change;
        let keys: Option<Keys> = decode(tx.get(table, row, &KEYS).await?)?;
        let (member, rank) = self.tables.member(tx, &url).await?;
        let may_have_followers = member.is_some();
        let old = member.unwrap_or_default();
        let mut member = Member { told: None, ..old.clone() };
        let target = keys.as_ref().and_then(|keys| keys.stands_for(&url));
        self.stand_for(tx, &url, old.stands_for.as_deref(), target)?;
        let own = keys.as_ref().and_then(|keys| keys.own_cluster(&url));
        let stays = match own {
            Some(own) => old.stands_for.is_none() && old.cluster() == Some(own),
            None => target.is_some() && old.stands_for.as_deref() == target,
        };
        if !stays {
            // Leave first: the old place depends on the old target.
            self.tables.leave(tx, &url, &mut member)?;
            member.stands_for = target.map(str::to_owned);
            if let Some(own) = own {
                self.tables.enter(tx, &url, &mut member, (own, rank)).await?;
            }
            // Nobody stands for an address without a record (`settle.rs`).
            if target.is_none() && may_have_followers {
                tx.notify(table, row, &SPREAD)?;
            }
            match keys {
                Some(_) => tx.set(table, row, &MEMBER, encode(&member))?,
                None => {
                    tx.delete(table, row, &MEMBER)?;
                    tx.delete(table, row, &RANK)?;
                }
            }
        }
        if target.is_some() {
            // Settle in a later transaction: the target may change while this one runs, and
            // its run would not see this page yet.
            tx.notify(table, row, &SETTLE)?;
        }
        tx.notify(table, row, &EXPORT_PAGE)
    }
}

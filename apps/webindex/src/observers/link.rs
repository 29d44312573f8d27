//! Writes a page's links into their home rows, the rows of their targets (link inversion, paper
//! section 1).
//!
//! `doc:linked` always holds the links of the page that stand in home rows. A run compares the
//! page's present links with these. It writes and deletes at most [`PLACED_AT_ONCE`] links in one
//! transaction. If more are left, it notifies the page's own row, and another run does the rest.
//! A crash in between loses nothing.

use std::collections::BTreeMap;

use futures::future::try_join;
use percolator::{Change, Observer, Result, Transaction};

use super::row_url::row_url;
use crate::records::{Links, decode, encode};
use crate::tables::{
    EXPORT_ANCHORS, LINKED, LINKS, LINKS_MORE, LinkRow, Tables, bucket_of, in_link,
};

/// The most links that one transaction places or removes. Each link writes a row and notifies
/// another, and a transaction of up to 1,000 rows can use a one-step commit. Beyond that, each
/// row is written twice.
const PLACED_AT_ONCE: usize = 490;

/// Observes `doc:links`, and `links-more` for the rest of many links.
#[derive(Debug)]
pub(super) struct PlaceLinks {
    tables: Tables,
}

impl PlaceLinks {
    pub(super) fn new(tables: Tables) -> Self {
        PlaceLinks { tables }
    }
}

impl Observer for PlaceLinks {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let source = row_url(change)?;
        let Change { table, row, .. } = change;
        // A store behind a network answers both reads at the same time.
        let read = async |column| tx.get(table, row, column).await;
        let (wanted, placed) = try_join(read(&LINKS), read(&LINKED)).await?;
        let wanted: Links = decode(wanted)?.unwrap_or_default();
        let placed: Option<Links> = decode(placed)?;
        let mut placed: BTreeMap<String, Vec<String>> =
            placed.unwrap_or_default().0.into_iter().collect();
        let wanted: BTreeMap<String, Vec<String>> = wanted.0.into_iter().collect();
        let gone: Vec<String> =
            placed.keys().filter(|target| !wanted.contains_key(*target)).cloned().collect();
        let differs = |target: &String, anchors: &Vec<String>| placed.get(target) != Some(anchors);
        let new: Vec<(String, Vec<String>)> = wanted
            .iter()
            .filter(|(target, anchors)| differs(target, anchors))
            .map(|(target, anchors)| (target.clone(), anchors.clone()))
            .collect();
        let (all, bucket) = (gone.len() + new.len(), bucket_of(&source));
        let column = in_link(&source)?;
        let changes = gone.into_iter().map(|target| (target, None));
        let changes = changes.chain(new.into_iter().map(|(target, a)| (target, Some(a))));
        for (target, anchors) in changes.take(PLACED_AT_ONCE) {
            let home = LinkRow::home(&target, bucket).key();
            // If the target is a duplicate, the exporter also notifies its home rows, so that
            // `forward` moves the links.
            tx.notify(&self.tables.documents, target.as_str(), &EXPORT_ANCHORS)?;
            match anchors {
                Some(anchors) => {
                    tx.set(&self.tables.inlinks, &home, &column, encode(&anchors))?;
                    placed.insert(target, anchors);
                }
                None => {
                    tx.delete(&self.tables.inlinks, &home, &column)?;
                    placed.remove(&target);
                }
            }
        }
        if all > 0 {
            if placed.is_empty() {
                tx.delete(table, row, &LINKED)?
            } else {
                let placed = Links(placed.into_iter().collect());
                tx.set(table, row, &LINKED, encode(&placed))?;
            }
        }
        if all > PLACED_AT_ONCE {
            tx.notify(table, row, &LINKS_MORE)?;
        }
        Ok(())
    }
}

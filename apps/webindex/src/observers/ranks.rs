//! Exports the ranks that the ranking job has written to the search index.
//!
//! The ranking job notifies one row, however many ranks it has written, and a run reads the
//! ranks of all pages. So a ranking costs one pass over a column, and no page is indexed
//! again. A run that is delivered again after a crash, or that ends late, has a lower start
//! timestamp. The search index keeps the ranks with the higher one.

use percolator::admin::WeakClient;
use percolator::observe::BatchObserver;
use percolator::{Change, Error, Result, Transaction};

use super::export::sync_first;
use crate::records::decode_rank;
use crate::search::generations::Generation;
use crate::tables::{RANK, Tables};
use crate::writer;

/// Observes `export-ranks`.
#[derive(Debug)]
pub(super) struct ExportRanks {
    client: WeakClient,
    tables: Tables,
    shown: Generation,
}

impl ExportRanks {
    pub(super) fn new(client: WeakClient, tables: Tables, shown: Generation) -> Self {
        ExportRanks { client, tables, shown }
    }
}

impl BatchObserver for ExportRanks {
    async fn observe(&self, tx: &mut Transaction, _changes: &[Change]) -> Result<()> {
        writer::fence(tx, &self.tables, self.shown.number).await?;
        let seq = tx.start_ts().as_u64();
        let mut ranks = Vec::new();
        let mut scan = tx.scan(&self.tables.documents).columns([&RANK]);
        while let Some(row) = scan.next().await? {
            let url = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
            let rank = row.cells.first().map(|(_, value)| value);
            ranks.push((url, decode_rank(rank)));
        }
        drop(scan);
        let pages = ranks.len();
        sync_first(&self.client).await?;
        let search = self.shown.search.clone();
        let is_newer = tokio::task::spawn_blocking(move || search.set_ranks(seq, ranks))
            .await
            .map_err(Error::application)?
            .map_err(Error::application)?;
        tracing::debug!(target: "webindex::export", event = "exported_ranks", seq, pages, is_newer);
        Ok(())
    }
}

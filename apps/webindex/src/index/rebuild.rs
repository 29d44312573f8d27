//! Notifies the exporters of every page and of the ranks if the search index is marked as new. Then
//! it removes the mark, the file `REBUILD`. The exporters, which are observers, export the pages.

use percolator::{Percolator, RowKey};

use crate::Error;
use crate::search::SearchIndex;
use crate::tables::{ALL_RANKS, EXPORT_PAGE, EXPORT_RANKS, KEYS, Tables};

/// How many pages are notified in one transaction.
const NOTIFIED_AT_ONCE: usize = 500;

/// Notifies the exporters of every page if the search index was created again, because its
/// directory was deleted or an earlier version wrote it. After an interruption the next call
/// begins again.
///
/// # Errors
/// Errors of the database, and [`Error::Io`].
pub(crate) async fn complete(
    db: &Percolator,
    tables: &Tables,
    search: &SearchIndex,
) -> Result<(), Error> {
    if !search.is_incomplete() {
        return Ok(());
    }
    let snapshot = db.snapshot().await?;
    let mut scan = snapshot.scan(&tables.documents).columns([&KEYS]);
    let (mut rows, mut pages) = (Vec::new(), 0);
    loop {
        let row = scan.next().await?;
        let is_last = row.is_none();
        rows.extend(row.map(|row| row.row));
        if rows.len() >= NOTIFIED_AT_ONCE || (is_last && !rows.is_empty()) {
            pages += rows.len();
            notify(db, tables, &std::mem::take(&mut rows)).await?;
        }
        if is_last {
            break;
        }
    }
    if pages > 0 {
        tracing::info!(target: "webindex::export", event = "search_index_rebuilt", pages);
    }
    search.set_complete()
}

async fn notify(db: &Percolator, tables: &Tables, rows: &[RowKey]) -> Result<(), Error> {
    db.admit().await?;
    db.transact(async |mut tx| {
        for row in rows {
            tx.notify(&tables.documents, row, &EXPORT_PAGE)?;
        }
        tx.notify(&tables.ranking, ALL_RANKS, &EXPORT_RANKS)
    })
    .await?;
    Ok(())
}

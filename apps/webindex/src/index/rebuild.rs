//! Makes a search index anew: notifies the exporters of every page and of the ranks, if the search
//! index is marked as new. Then it removes the mark, the file `REBUILD`. The exporters, which are
//! observers, export the pages.

use std::time::Duration;

use percolator::{Percolator, RowKey, Timestamp};

use crate::Error;
use crate::search::SearchIndex;
use crate::tables::{ALL_RANKS, DOCUMENTS, EXPORT_PAGE, EXPORT_RANKS, KEYS, RANKING, Tables};

/// How many pages are notified in one transaction.
const NOTIFIED_AT_ONCE: usize = 500;

/// How often it is checked whether the exporters have exported every page.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
    if search.is_incomplete() {
        notify_all(db, tables).await?;
        search.set_complete()?;
    }
    Ok(())
}

/// Like [`complete`], but removes the mark only when every page and the ranks are exported. Until
/// then searches stay with an older search index.
///
/// # Errors
/// As [`complete`].
pub(crate) async fn replace(
    db: &Percolator,
    tables: &Tables,
    search: &SearchIndex,
) -> Result<(), Error> {
    let Some(upto) = notify_all(db, tables).await? else { return search.set_complete() };
    for (table, column) in [(DOCUMENTS, EXPORT_PAGE), (RANKING, EXPORT_RANKS)] {
        while db.is_behind(table, &column, upto).await? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    search.set_complete()
}

/// Notifies the exporters of every page and of the ranks. Returns the last commit timestamp; `None`
/// if there are no pages.
async fn notify_all(db: &Percolator, tables: &Tables) -> Result<Option<Timestamp>, Error> {
    let snapshot = db.snapshot().await?;
    let mut scan = snapshot.scan(&tables.documents).columns([&KEYS]);
    let (mut rows, mut pages, mut last) = (Vec::new(), 0, None);
    loop {
        let row = scan.next().await?;
        let is_last = row.is_none();
        rows.extend(row.map(|row| row.row));
        if rows.len() >= NOTIFIED_AT_ONCE || (is_last && !rows.is_empty()) {
            pages += rows.len();
            last = Some(notify(db, tables, &std::mem::take(&mut rows)).await?);
        }
        if is_last {
            break;
        }
    }
    if pages > 0 {
        tracing::info!(target: "webindex::export", event = "search_index_rebuilt", pages);
    }
    Ok(last)
}

/// Notifies the exporters of some pages and of the ranks. Returns the commit timestamp.
async fn notify(db: &Percolator, tables: &Tables, rows: &[RowKey]) -> Result<Timestamp, Error> {
    db.admit().await?;
    let notified = db
        .transact_receipt(async |mut tx| {
            for row in rows {
                tx.notify(&tables.documents, row, &EXPORT_PAGE)?;
            }
            tx.notify(&tables.ranking, ALL_RANKS, &EXPORT_RANKS)
        })
        .await?;
    Ok(notified.commit_ts)
}

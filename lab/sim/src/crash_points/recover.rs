//! Recovers after the victim: by a reader, by a writer, or by a sweep of garbage collection.

use std::time::Duration;

use percolator_core::{Client, Error, Result};

use super::case::CELLS_MAX;
use crate::history::Cell;
use crate::logged::{Log, Step};

/// A way to find the locks that the victim left, and to resolve them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recoverer {
    /// Reads the cells, the primary last.
    Reader,
    /// Writes the cells without reading them.
    Writer,
    /// Collects garbage, up to the present.
    Sweep,
}

impl Recoverer {
    pub(super) const ALL: [Recoverer; 3] = [Recoverer::Reader, Recoverer::Writer, Recoverer::Sweep];

    /// Goes over the cells once, and resolves the locks that it finds.
    pub(super) async fn recover(self, client: &Client, log: &Log, cells: &[Cell]) -> Result<()> {
        match self {
            Recoverer::Reader => {
                let steps: Vec<_> = cells.iter().rev().map(|cell| Step::Read(*cell)).collect();
                log.transaction(client, &steps).await?;
            }
            Recoverer::Writer => {
                let steps: Vec<_> = cells.iter().map(|cell| Step::Write(*cell)).collect();
                log.transaction(client, &steps).await?;
            }
            Recoverer::Sweep => collect(client).await?,
        }
        Ok(())
    }

    /// Recovers again and again until that succeeds, since locks of live clients have to be
    /// waited for.
    pub(super) async fn recover_until_done(
        self,
        client: &Client,
        log: &Log,
        cells: &[Cell],
    ) -> Result<()> {
        const TRIES_MAX: usize = 100;
        const { assert!(TRIES_MAX > CELLS_MAX) };
        let mut tries = 0;
        loop {
            tries += 1;
            match self.recover(client, log, cells).await {
                Err(_) if tries < TRIES_MAX => {
                    client.runtime().sleep(Duration::from_secs(1)).await;
                }
                result => return result,
            }
        }
    }
}

/// Collects garbage. Returns an error while the lock of a live client ends the round.
async fn collect(client: &Client) -> Result<()> {
    let report = client.gc(Duration::ZERO).await?;
    match report.blocked_by {
        Some(lock) => Err(Error::application(format!("a round ended at {lock:?}"))),
        None => Ok(()),
    }
}

/// Resolves every lock of every table, by reading every row at a timestamp above all locks.
pub(crate) async fn resolve_all_locks(client: &Client) -> Result<()> {
    let tx = client.begin().await?;
    for name in client.table_names().await? {
        let table = client.table(&name).await?;
        tx.scan(&table).collect().await?;
    }
    Ok(())
}

//! Who comes after the victim: a reader, a writer, or a sweep as garbage collection makes it.

use std::time::Duration;

use percolator_core::{Client, Error, Result};

use super::case::CELLS_MAX;
use crate::history::Cell;
use crate::logged::{Log, Step};

/// How the locks that the victim left are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recoverer {
    /// It reads the cells, the primary last.
    Reader,
    /// It writes the cells without reading them.
    Writer,
    /// It collects garbage, up to the present.
    Sweep,
}

impl Recoverer {
    pub(super) const ALL: [Recoverer; 3] = [Recoverer::Reader, Recoverer::Writer, Recoverer::Sweep];

    /// Meets the locks of the cells once.
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

    /// Meets the locks again and again until that succeeds: locks of the living have to be waited
    /// for.
    pub(super) async fn insist(self, client: &Client, log: &Log, cells: &[Cell]) -> Result<()> {
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

/// Collects garbage; fails while the lock of somebody who lives is in the way.
async fn collect(client: &Client) -> Result<()> {
    let report = client.gc(Duration::ZERO).await?;
    match report.blocked_by {
        Some(lock) => Err(Error::application(format!("a round ended at {lock:?}"))),
        None => Ok(()),
    }
}

/// Resolves every lock of every table by reading every row at a timestamp that is above all of
/// them.
pub(crate) async fn resolve_all_locks(client: &Client) -> Result<()> {
    let tx = client.begin().await?;
    for name in client.table_names().await? {
        let table = client.table(&name).await?;
        tx.scan(&table).collect().await?;
    }
    Ok(())
}

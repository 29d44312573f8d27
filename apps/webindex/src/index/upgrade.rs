//! Brings a store that an earlier version has filled to the present layout, once.
//!
//! Layout 1 kept each page's keys in three tables (`by_content`, `by_redirect`,
//! `by_canonical`). The column `doc:canonical` of a page named the page that was shown for its
//! cluster. A page that redirects was also a member of the cluster of its own few words. Such
//! words are equal on whole sites, so these clusters joined unrelated pages.
//!
//! That upgrade deletes those records and registers every page again, and the observers do the
//! rest.
//!
//! Layout 2 had no cell [`HOLDS`] in the row of a cluster, so the exporter leaves the in-links out
//! that are placed there. That upgrade writes the cell, and has the shown pages exported again.
//!
//! In layout 3 an address that is not a page had no record that pages stand for it. That upgrade
//! has all such addresses spread their clusters again, which writes the record.
//!
//! An upgrade works in the background, in transactions of [`ROWS_AT_ONCE`] rows. The version is
//! written last. So an interrupted upgrade is done again from the start, and finds less to do.

use std::collections::BTreeSet;
use std::time::Duration;

use percolator::{Bytes, Column, Percolator, RowKey, RowRange, Table, Transaction};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::Error;
use crate::observers;
use crate::records::{Member, decode};
use crate::tables::{
    ATTACH, ClusterId, EXPORT_PAGE, HOLDS, KEYS, LinkRow, MEMBER, RELAY, SPREAD, Tables,
    target_and_source,
};

#[cfg(test)]
mod tests;

/// The version of the layout that `tables.rs` describes.
const VERSION: &[u8] = b"4";
const LAYOUT_2: &[u8] = b"2";
const LAYOUT_3: &[u8] = b"3";
const VERSION_ROW: &str = "format";
const VERSION_COLUMN: Column = Column::literal("version");

/// How many rows are changed in one transaction.
const ROWS_AT_ONCE: usize = 100;
/// How long an upgrade pauses after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Layout 1: the keys of which the page was a member, and the page shown for it.
const REGISTERED: Column = Column::literal("doc:registered");
const CANONICAL: Column = Column::literal("doc:canonical");
/// Layout 1: the tables of the kinds of keys, in the order of [`Kind`].
const BY_KEY: [&str; 3] = ["by_content", "by_redirect", "by_canonical"];
/// Layout 1: the observers of these tables, and of `doc:canonical`.
const RETIRED: [&str; 2] = ["elect", "move"];

/// Layout 1: the kinds of keys, as they were encoded.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Kind {
    Content,
    Redirect,
    Canonical,
}

/// A layout of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    One,
    Two,
    Three,
    Present,
}

/// Whether the store has the present layout. An empty store is given the present layout. A layout
/// of a later version is refused.
pub(crate) async fn is_current(db: &Percolator, tables: &Tables) -> Result<bool, Error> {
    Ok(layout(db, tables).await? == Layout::Present)
}

async fn layout(db: &Percolator, tables: &Tables) -> Result<Layout, Error> {
    let found = db
        .transact(async |mut tx| {
            if let Some(version) = tx.get(&tables.format, VERSION_ROW, &VERSION_COLUMN).await? {
                return Ok(Some(version));
            }
            let scan = tx.scan(&tables.documents).limit(1);
            let is_empty = scan.collect().await?.is_empty();
            if is_empty {
                tx.set(&tables.format, VERSION_ROW, &VERSION_COLUMN, VERSION)?;
            }
            Ok(is_empty.then(|| Bytes::from_static(VERSION)))
        })
        .await?;
    match found.as_deref() {
        Some(VERSION) => Ok(Layout::Present),
        Some(LAYOUT_2) => Ok(Layout::Two),
        Some(LAYOUT_3) => Ok(Layout::Three),
        None => Ok(Layout::One),
        Some(later) => Err(Error::StoreLayout {
            found: String::from_utf8_lossy(later).escape_debug().to_string(),
            expected: String::from_utf8_lossy(VERSION).into_owned(),
        }),
    }
}

/// Starts the upgrade of a store in the background, if it needs one. A failed upgrade is tried
/// again. Until a store of layout 1 is upgraded, the index shows the results of the earlier
/// version. Workers of an earlier version must have ended: they know nothing of [`HOLDS`] and of
/// empty records.
pub(crate) async fn start(
    db: &Percolator,
    tables: &Tables,
) -> Result<Option<JoinHandle<()>>, Error> {
    if is_current(db, tables).await? {
        return Ok(None);
    }
    let client = db.another_client().await?;
    client.leave_out_of_backlog([observers::gathering()]);
    let tables = tables.clone();
    Ok(Some(tokio::spawn(async move {
        while let Err(error) = upgrade(&client, &tables).await {
            tracing::warn!(target: "webindex::upgrade", event = "not_upgraded", %error);
            tokio::time::sleep(PAUSE).await;
        }
    })))
}

async fn upgrade(db: &Percolator, tables: &Tables) -> Result<(), Error> {
    tracing::info!(target: "webindex::upgrade", event = "upgrading");
    match layout(db, tables).await? {
        // Another worker has upgraded it.
        Layout::Present => return Ok(()),
        Layout::One => {
            register_all(db, tables).await?;
            // An interrupted upgrade may have left clusters of layout 2.
            mark_holders(db, tables).await?;
        }
        Layout::Two => mark_holders(db, tables).await?,
        Layout::Three => {}
    }
    spread_all(db, tables).await?;
    db.transact(async |mut tx| tx.set(&tables.format, VERSION_ROW, &VERSION_COLUMN, VERSION))
        .await?;
    tracing::info!(target: "webindex::upgrade", event = "upgraded");
    Ok(())
}

/// Layout 2: notes in the row of each cluster that in-links are placed there.
async fn mark_holders(db: &Percolator, tables: &Tables) -> Result<(), Error> {
    let mut range = Some(RowRange::prefix(ClusterId::HOLDERS));
    while let Some(rows) = range {
        db.admit().await?;
        range = db
            .transact(async |mut tx| {
                let mut left = rows.clone();
                for _ in 0..ROWS_AT_ONCE {
                    let scan = tx.scan(&tables.inlinks).range(left.clone()).limit(1);
                    let Some(row) = scan.collect().await?.pop() else { return Ok(None) };
                    let holder = LinkRow::parse(&row.row).map(|row| row.holder);
                    if let Some(cluster) = holder.as_deref().and_then(ClusterId::of_holder) {
                        tx.set(&tables.clusters, cluster.row(), &HOLDS, "")?;
                        tx.notify(&tables.clusters, cluster.row(), &RELAY)?;
                    }
                    // One row of a cluster is enough.
                    left = match holder {
                        Some(holder) => left.after(LinkRow::last_held_by(&holder)),
                        None => left.after(row.row),
                    };
                }
                Ok(Some(left))
            })
            .await?;
    }
    Ok(())
}

/// Layout 3: has each address for which pages stand spread its cluster again.
async fn spread_all(db: &Percolator, tables: &Tables) -> Result<(), Error> {
    let mut range = Some(RowRange::all());
    while let Some(rows) = range {
        db.admit().await?;
        let last = db
            .transact(async |mut tx| {
                let scan = tx.scan(&tables.by_target).range(rows.clone()).limit(ROWS_AT_ONCE);
                let found = scan.collect().await?;
                let targets: BTreeSet<&str> =
                    found.iter().filter_map(|row| Some(target_and_source(&row.row)?.0)).collect();
                for target in targets {
                    tx.notify(&tables.documents, target, &SPREAD)?;
                }
                Ok(found.last().map(|row| row.row.clone()))
            })
            .await?;
        range = last.map(|last| rows.after(last));
    }
    Ok(())
}

/// Layout 1: deletes its records, and registers every document again.
async fn register_all(db: &Percolator, tables: &Tables) -> Result<(), Error> {
    for observer in RETIRED {
        db.retire_observer(observer).await?;
    }
    let there = db.table_names().await?;
    let mut by_key = Vec::new();
    for name in BY_KEY {
        by_key.push(if there.iter().any(|there| there == name) {
            Some(db.table(name).await?)
        } else {
            None
        });
    }
    let mut range = Some(RowRange::all());
    while let Some(rows) = range {
        db.admit().await?;
        let last = db
            .transact(async |mut tx| {
                let columns = [KEYS, MEMBER, REGISTERED, CANONICAL];
                let scan = tx.scan(&tables.documents).range(rows.clone()).columns(&columns);
                let found = scan.limit(ROWS_AT_ONCE).collect().await?;
                for row in &found {
                    register_again(&mut tx, tables, &by_key, &row.row, &row.cells)?;
                }
                Ok(found.last().map(|row| row.row.clone()))
            })
            .await?;
        range = last.map(|last| rows.after(last));
    }
    Ok(())
}

/// Deletes the records of layout 1 of a document, and registers the document again.
fn register_again(
    tx: &mut Transaction,
    tables: &Tables,
    by_key: &[Option<Table>],
    row: &RowKey,
    cells: &[(Column, Bytes)],
) -> percolator::Result<()> {
    let cell = |wanted: &Column| cells.iter().find(|(column, _)| column == wanted);
    let cell = |wanted: &Column| cell(wanted).map(|(_, value)| value.clone());
    let by_page = [b"member:", row.as_bytes()].concat();
    let registered: Option<Vec<(Kind, Vec<u8>)>> = decode(cell(&REGISTERED))?;
    for (kind, key) in registered.iter().flatten() {
        if let Some(Some(table)) = by_key.get(*kind as usize) {
            tx.delete(table, key.clone(), &Column::new(by_page.clone())?)?;
        }
    }
    for column in [REGISTERED, CANONICAL].iter().filter(|column| cell(column).is_some()) {
        tx.delete(&tables.documents, row, column)?;
    }
    if cell(&CANONICAL).is_some() {
        // The in-links of this page are placed at another page.
        tx.notify(&tables.documents, row, &ATTACH)?;
    }
    // A page that stands for this one may have settled already, and written an empty record.
    let member: Option<Member> = decode(cell(&MEMBER))?;
    let is_registered = member.is_some_and(|member| !member.is_gone());
    if let Some(keys) = cell(&KEYS).filter(|_| !is_registered) {
        tx.set(&tables.documents, row, &KEYS, keys)?;
        tx.notify(&tables.documents, row, &EXPORT_PAGE)?;
    }
    Ok(())
}

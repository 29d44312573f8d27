//! Registering observers.
//!
//! The order makes sure that no change is missed (H59): (1) the new schema is stored; (2) the
//! oracle's version is raised, so that every later timestamp carries it; (3) a sweep reads every
//! row at a timestamp asked for after (2) and notifies where the newest commit is not acknowledged.
//! A writer with the old schema got its `c` before (2), so the sweep meets its locks or sees its
//! write.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, RowRange, Selection, TimeRange, Timestamp,
};

use crate::observe::workers::check;
use crate::records::layout::{FAILED, LOCK, NOTIFY};
use crate::records::schema::{Observed, Schema};
use crate::runtime::Backoff;
use crate::txn::get::Patience;
use crate::{Client, Column, Error, Result, Table};

/// How often a registration is tried when other clients register at the same time.
const TRIES_MAX: u32 = 100;

impl Client {
    /// Names observers in the store's schema without running them here: from now on what they
    /// observe is notified, for the processes that [`observe`](Client::observe).
    ///
    /// Notifications on a notify-only column that nobody observes are refused, so whoever sends
    /// some to observers that start later, or elsewhere, declares them first.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator_core::{Column, Observed, Strength};
    /// let (table, column) = ("docs".to_owned(), Column::literal("doc:text"));
    /// let observer = "count-words".to_owned();
    /// client.declare(&[Observed { table, column, observer, strength: Strength::Strong }]).await?;
    /// assert_eq!(client.observers().await?[0].observer, "count-words");
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a column that is to be both strong and weak; those of store and
    /// oracle.
    pub async fn declare(&self, observers: &[Observed]) -> Result<()> {
        for observed in observers {
            check(observed)?;
            self.table(&observed.table).await?;
        }
        self.register(observers).await
    }

    /// Stores observers in the schema, if they are not in it, and finds what they have missed. A
    /// sweep that a crash cut short is done again by the next who registers.
    pub(crate) async fn register(&self, wanted: &[Observed]) -> Result<()> {
        self.change_schema(|old| {
            if wanted.iter().all(|e| old.entries.contains_key(e)) {
                Ok(None)
            } else {
                old.with(wanted).map(Some)
            }
        })
        .await?;
        let schema = Schema::read(self.system()).await?;
        let unswept: Vec<&Observed> =
            wanted.iter().filter(|entry| schema.entries.get(*entry) == Some(&false)).collect();
        for entry in &unswept {
            self.sweep(entry).await?;
        }
        self.change_schema(|old| {
            let mut entries = old.entries.clone();
            for entry in &unswept {
                entries.entry((*entry).clone()).and_modify(|swept| *swept = true);
            }
            let changed = entries != old.entries;
            Ok(changed.then_some(Schema { version: old.version + 1, entries }))
        })
        .await
    }

    /// Takes observers out of the schema: their columns no longer get notifications for them, and
    /// those that are left are dropped. Returns how many registrations had that name.
    ///
    /// Registered again under the same name, an observer is told of what changed meanwhile, except
    /// of deletions that garbage collection has dropped by then.
    ///
    /// # Errors
    /// Those of store and oracle.
    pub async fn retire_observer(&self, observer: &str) -> Result<usize> {
        // Asked for before the schema changes: what a later registration finds to do lies above it.
        let bound = self.oracle().peek().await?;
        let mut retired = Vec::new();
        self.change_schema(|old| {
            let (gone, entries): (BTreeMap<_, _>, BTreeMap<_, _>) =
                old.entries.clone().into_iter().partition(|(entry, _)| entry.observer == observer);
            if gone.is_empty() {
                return Ok(None);
            }
            retired = gone.into_keys().collect();
            Ok(Some(Schema { version: old.version + 1, entries }))
        })
        .await?;
        let schema = self.known_schema();
        for Observed { table, column, .. } in &retired {
            if schema.of(table, column).next().is_none() {
                self.drop_notifications(table, column, bound).await?;
            }
        }
        Ok(retired.len())
    }

    /// Deletes the notifications of a column that nobody observes any more.
    async fn drop_notifications(
        &self,
        table: &str,
        column: &Column,
        bound: Timestamp,
    ) -> Result<()> {
        let table = self.table(table).await?;
        let (q, upto) = (|| column.to_bytes(), TimeRange::up_to(bound));
        let select = Selection::default().column(NOTIFY, q(), upto, 1).column(FAILED, q(), upto, 1);
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = table.notify_store().scan(&range, &select, PageLimit::default()).await?;
            self.take_turn(page.rows.len()).await;
            let drop = |row: &bigtable::Row| ConditionalMutation {
                otherwise: vec![
                    Mutation::delete(NOTIFY, q(), upto),
                    Mutation::delete(FAILED, q(), upto),
                ],
                ..ConditionalMutation::new(&row.key)
            };
            self.leave(&table, page.rows.iter().map(drop).collect()).await?;
            left = page.resume;
        }
        Ok(())
    }

    /// Replaces the schema by what `change` makes of it, against other clients that do so too;
    /// makes nothing of it when there is nothing to change.
    async fn change_schema(
        &self,
        mut change: impl FnMut(&Schema) -> Result<Option<Schema>>,
    ) -> Result<()> {
        let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
        for _ in 0..TRIES_MAX {
            let old = Schema::read(self.system()).await?;
            let Some(new) = change(&old)? else {
                // A crash may have come between storing and raising: raise again, it is idempotent.
                return self.publish(old.version).await;
            };
            match new.replace(self.system(), &old).await {
                Ok(true) => return self.publish(new.version).await,
                // Another client was faster, or this one was and does not know it: look again.
                Ok(false) | Err(Error::Store(bigtable::Error::Unknown { .. })) => {}
                Err(error) => return Err(error),
            }
            self.runtime().sleep(backoff.step(&**self.runtime())).await;
        }
        Err(contended())
    }

    /// Makes every later timestamp carry the version, and learns the schema itself.
    async fn publish(&self, version: u64) -> Result<()> {
        self.oracle().raise_schema_version(version).await?;
        self.schema(version).await?;
        Ok(())
    }

    /// Notifies where the newest committed change of the column is not acknowledged.
    async fn sweep(&self, entry: &Observed) -> Result<()> {
        let table = self.table(&entry.table).await?;
        let ack = entry.column.ack_of(&entry.observer);
        let starting = self.readers().starting();
        let s = self.oracle().timestamp().await?.timestamp;
        let _open = starting.moved_to(s);
        let columns = [entry.column.clone(), ack.clone()];
        let select = crate::txn::get::selection(&columns, s);
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = table.store().scan(&range, &select, PageLimit::default()).await;
            let page = page.map_err(crate::txn::get::too_old)?;
            self.take_turn(page.rows.len()).await;
            self.check_held(s)?;
            let mut dirty = Vec::new();
            for found in &page.rows {
                let versions = if found.cells.iter().any(|cell| cell.family == LOCK) {
                    let (row, patience) = (&found.key, Patience::Wait);
                    self.read_acknowledged(&table, row, &columns, s, patience).await?
                } else {
                    self.versions(&table, found, s, Column::is_ack).await?
                };
                let of = |column: &Column| versions.iter().find(|v| v.column == *column);
                let acked = of(&ack).and_then(|v| acknowledged(v.value.as_deref()));
                let changed = of(&entry.column).map(|v| v.commit_ts);
                if changed.is_some_and(|c| acked.is_none_or(|acked| c > acked)) {
                    let column = std::slice::from_ref(&entry.column);
                    dirty.push(table.notify(&found.key, column, s));
                }
            }
            self.leave(&table, dirty).await?;
            left = page.resume;
        }
        Ok(())
    }

    /// Changes notifications.
    async fn leave(&self, table: &Table, requests: Vec<ConditionalMutation>) -> Result<()> {
        for result in table.notify_store().check_and_mutate_rows(requests).await {
            result?;
        }
        Ok(())
    }
}

/// The start timestamp in an acknowledgement.
pub(crate) fn acknowledged(value: Option<&[u8]>) -> Option<Timestamp> {
    Timestamp::new(u64::from_be_bytes(value?.try_into().ok()?))
}

fn contended() -> Error {
    Error::Oracle("the observer schema is being changed by too many clients: try again".to_owned())
}

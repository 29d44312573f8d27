//! Implements the observers, which cluster a document after it is written.
//!
//! ```text
//! doc:keys --cluster--> by_key_1..3, doc:cluster
//!                       doc:representative, of documents that found no cluster
//! doc:representative --cluster-more--> by_key_4, doc:merged      (added later)
//! ```
//!
//! An entry of an index table never changes. So an observer that finds an entry has its final
//! value. An observer that misses an entry and writes it conflicts with every other run that
//! does the same. So the runs are serializable. Their result is that of the sequential rule,
//! in the order of the runs' start timestamps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator::{Bytes, Change, Error, Observer, Result, Table, Transaction};

use crate::document::{Document, key_row};
use crate::repository::{CLUSTER, INDEX, KEY, MERGED, REPRESENTATIVE, Tables};

/// The numbers of lookups and writes of the observers, including repeated runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lookups: AtomicU64,
    pub(crate) registered: AtomicU64,
}

impl Counters {
    async fn look_up(&self, tx: &Transaction, index: &Table, key: u64) -> Result<Option<u64>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let found = tx.get(index, key_row(key), &INDEX).await?;
        found.map(|value| number(&value)).transpose()
    }

    fn register(&self, tx: &mut Transaction, index: &Table, key: u64, cluster: u64) -> Result<()> {
        self.registered.fetch_add(1, Ordering::Relaxed);
        tx.set(index, key_row(key), &INDEX, Bytes::copy_from_slice(&cluster.to_be_bytes()))
    }
}

/// Clusters a document by the keys with which the repository began.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) tables: Tables,
    pub(crate) counters: Arc<Counters>,
}

impl Observer for Cluster {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        // Documents are never deleted, so every row has its record.
        let Some(record) = tx.get(&change.table, &change.row, &KEY).await? else { return Ok(()) };
        let document = Document::decode(&record)?;
        let (mut cluster, mut missed) = (None, 0);
        for (index, key) in self.tables.indexes.iter().zip(document.keys) {
            cluster = self.counters.look_up(tx, index, key).await?;
            if cluster.is_some() {
                break;
            }
            missed += 1;
        }
        let representative = cluster.unwrap_or(document.id);
        for (index, key) in self.tables.indexes.iter().zip(document.keys).take(missed) {
            self.counters.register(tx, index, key, representative)?;
        }
        if cluster.is_none() {
            tx.set(&change.table, &change.row, &REPRESENTATIVE, record)?;
        }
        let joined = Joined { representative, start_ts: tx.start_ts().as_u64() };
        tx.set(&change.table, &change.row, &CLUSTER, joined.encode())
    }
}

/// Merges clusters whose representatives share one more key. Only representatives trigger it,
/// so a document that joins a cluster costs nothing.
#[derive(Debug)]
pub(crate) struct ClusterMore {
    pub(crate) index: Table,
    pub(crate) counters: Arc<Counters>,
}

impl Observer for ClusterMore {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let record = tx.get(&change.table, &change.row, &REPRESENTATIVE).await?;
        let Some(record) = record else { return Ok(()) };
        let document = Document::decode(&record)?;
        let key = document.keys[crate::KEYS_AT_FIRST];
        match self.counters.look_up(tx, &self.index, key).await? {
            None => self.counters.register(tx, &self.index, key, document.id),
            Some(other) => {
                let other = Bytes::copy_from_slice(&other.to_be_bytes());
                tx.set(&change.table, &change.row, &MERGED, other)
            }
        }
    }
}

/// The content of `doc:cluster`: the document's representative, and when it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    pub(crate) representative: u64,
    pub(crate) start_ts: u64,
}

impl Joined {
    fn encode(self) -> Bytes {
        [self.representative, self.start_ts].map(u64::to_be_bytes).concat().into()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self> {
        let (representative, start_ts) = value.split_at_checked(8).unwrap_or((value, &[]));
        Ok(Joined { representative: number(representative)?, start_ts: number(start_ts)? })
    }
}

/// Decodes a stored number.
pub(crate) fn number(value: &[u8]) -> Result<u64> {
    let bytes = value.try_into();
    let bytes = bytes.map_err(|_| Error::application(format!("a number of {} bytes", value.len())));
    Ok(u64::from_be_bytes(bytes?))
}

//! Implements the floor: the cells that ours writes for each document, put straight into the
//! engine beneath.
//!
//! One thread writes each document with its notification in one batch. Another thread looks its
//! keys up, and writes the result in a second batch, which also removes the notification. There
//! are no timestamps, locks, conflicts or snapshots, and no other writer. The program cannot
//! recover from a crash. So its cost is a lower bound for transactions over this engine, and the
//! difference is their cost.

use std::io;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use clustering::batch::Batch;
use clustering::{Corpus, Document, KEYS_AT_FIRST, key_row};
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
};

/// Memory for new cells of a keyspace: a store's default.
fn write_buffer() -> u64 {
    bigtable_fjall::Options::default().write_buffer_bytes
}

/// Documents between two checks for full write buffers.
const LOOKED_FOR_EVERY: usize = 256;
/// Most loaded documents that wait to be clustered.
const LOADED_MAX: usize = 256;
/// Most sealed buffers of a keyspace that wait to be written out.
const SEALED_MAX: usize = 3;
/// The bytes of a write record before its value: the version's timestamp, the start timestamp,
/// flags.
const RECORD: [u8; 17] = [1; 17];
/// The column that marks a document as clustered.
const ACK: &[u8] = b"ack:cluster/doc:keys";
/// The bytes of a key for its table and for its family.
const TABLE: u8 = 1;
const FAMILY: u8 = 1;

/// The engine's keyspaces with the documents.
pub(super) struct Engine {
    db: Database,
    /// Long values.
    data: Keyspace,
    /// Newest write records.
    newest: Keyspace,
    notify: Keyspace,
    corpus: Corpus,
    documents: u64,
}

impl Engine {
    /// Creates the keyspaces in a directory, and clusters the initial documents.
    pub(super) fn create(dir: &Path, corpus: Corpus, documents: u64) -> io::Result<Self> {
        let cache = bigtable_fjall::Options::default().cache_bytes;
        let db = Database::builder(dir).cache_size(cache).worker_threads(1).open();
        let db = db.map_err(io::Error::other)?;
        let keyspace = |name| {
            let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
            db.keyspace(name, options).map_err(io::Error::other)
        };
        let (data, newest, notify) = (keyspace("data")?, keyspace("newest")?, keyspace("notify")?);
        let mut engine = Engine { db, data, newest, notify, corpus, documents: 0 };
        let all: Vec<Document> = (0..documents).map(|id| corpus.document(id)).collect();
        engine.cycle(&all)?;
        Ok(engine)
    }

    fn batch(&self) -> OwnedWriteBatch {
        self.db.batch().durability(Some(PersistMode::Buffer))
    }

    fn load(&self, document: &Document) -> fjall::Result<()> {
        let row = document.row();
        let body = self.corpus.body(document.id);
        let mut batch = self.batch();
        batch.insert(&self.data, version(row.as_bytes(), b"doc:body"), &*body);
        batch.insert(&self.newest, column(row.as_bytes(), b"doc:body"), RECORD);
        batch.insert(&self.newest, column(row.as_bytes(), b"doc:keys"), record(&keys(document)));
        batch.insert(&self.notify, version(row.as_bytes(), b"doc:keys"), b"");
        batch.commit()
    }

    /// Seals full write buffers, as stores do (`bigtable-fjall/src/upkeep/seal.rs`). The engine
    /// might otherwise stop sealing them by itself.
    fn seal_full(&self) -> fjall::Result<()> {
        for keyspace in [&self.data, &self.newest, &self.notify] {
            let behind = keyspace.sealed_memtable_count() >= SEALED_MAX;
            if keyspace.tree.active_memtable().size() >= write_buffer() && !behind {
                keyspace.rotate_memtable()?;
            }
        }
        Ok(())
    }

    fn join(&self, document: &Document) -> fjall::Result<()> {
        let row = document.row();
        // Reads the observed cell, as an observer does after its notification.
        self.newest.get(column(row.as_bytes(), b"doc:keys"))?;
        let (mut found, mut missed) = (None, Vec::new());
        for (index, key) in (1_u8..).zip(document.keys).take(KEYS_AT_FIRST) {
            let at = index_key(index, key);
            if let Some(entry) = self.newest.get(&at)? {
                found = entry.get(RECORD.len()..).and_then(|id| id.try_into().ok());
                break;
            }
            missed.push(at);
        }
        let representative = found.map_or(document.id, u64::from_be_bytes);
        let mut batch = self.batch();
        let id = record(&representative.to_be_bytes());
        missed.into_iter().for_each(|at| batch.insert(&self.newest, at, id.as_slice()));
        if found.is_none() {
            let key = column(row.as_bytes(), b"doc:representative");
            batch.insert(&self.newest, key, record(&keys(document)));
        }
        let joined = [representative.to_be_bytes(), [1; 8]].concat();
        batch.insert(&self.newest, column(row.as_bytes(), b"doc:cluster"), record(&joined));
        let ack = column(row.as_bytes(), ACK);
        batch.insert(&self.newest, ack, record(&[1; 8]));
        batch.remove(&self.notify, version(row.as_bytes(), b"doc:keys"));
        batch.commit()
    }

    /// The stored cluster of a document. All other cells of the document must exist too.
    fn cluster(&self, id: u64) -> io::Result<u64> {
        let row = self.corpus.document(id).row();
        let get = |keyspace: &Keyspace, key| keyspace.get(key).map_err(io::Error::other);
        let missing = |what| io::Error::other(format!("document {id} has no {what}"));
        let joined = get(&self.newest, column(row.as_bytes(), b"doc:cluster"))?;
        let joined = joined.ok_or_else(|| missing("cluster"))?;
        let body = get(&self.data, version(row.as_bytes(), b"doc:body"))?;
        let ack = get(&self.newest, column(row.as_bytes(), ACK))?;
        let notified = get(&self.notify, version(row.as_bytes(), b"doc:keys"))?;
        if body.is_none_or(|body| *body != *self.corpus.body(id)) {
            return Err(missing("body"));
        }
        ack.filter(|_| notified.is_none()).ok_or_else(|| missing("acknowledgement"))?;
        let representative = joined.get(RECORD.len()..).and_then(|rest| rest.first_chunk::<8>());
        representative.map(|id| u64::from_be_bytes(*id)).ok_or_else(|| missing("representative"))
    }
}

impl Batch for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()> {
        let this = &*self;
        std::thread::scope(|scope| {
            let (loaded, to_join) = sync_channel(LOADED_MAX);
            let loader = scope.spawn(move || {
                for document in arrivals {
                    this.load(document)?;
                    // The other thread has ended with an error, and reports it.
                    if loaded.send(document).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            for (joined, document) in to_join.into_iter().enumerate() {
                this.join(document)?;
                if joined.is_multiple_of(LOOKED_FOR_EVERY) {
                    this.seal_full()?;
                }
            }
            loader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .map_err(|error: fjall::Error| io::Error::other(error))?;
        self.documents += arrivals.len() as u64;
        Ok(())
    }

    fn clusters(&mut self) -> io::Result<Vec<u64>> {
        (0..self.documents).map(|id| self.cluster(id)).collect()
    }
}

fn keys(document: &Document) -> Vec<u8> {
    let numbers = std::iter::once(document.id).chain(document.keys);
    numbers.flat_map(u64::to_be_bytes).collect()
}

fn record(value: &[u8]) -> Vec<u8> {
    [&RECORD, value].concat()
}

fn column(row: &[u8], name: &[u8]) -> Vec<u8> {
    [&[TABLE], row, &[0, FAMILY], name, &[0]].concat()
}

fn version(row: &[u8], name: &[u8]) -> Vec<u8> {
    [column(row, name).as_slice(), &[1; 7]].concat()
}

fn index_key(index: u8, key: u64) -> Vec<u8> {
    [&[TABLE + index], key_row(key).as_bytes(), &[0, FAMILY], b"cluster", &[0]].concat()
}

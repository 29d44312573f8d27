//! A batch of the new documents alone, joined with tables that stay: what the paper's related work
//! asks of MapReduce's successors.
//!
//! The tables of keys live in memory; what a cycle adds to them, and the documents, are appended to
//! files that a new process would read them from. So it is as fast as can be, and gives up what a
//! database has: one writer, nobody else reads meanwhile, and all keys fit into memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use foldhash::fast::FixedState;

use crate::batch::Batch;
use crate::{BODY_BYTES, Corpus, Document, KEYS_AT_FIRST};

/// The delta batch.
///
/// See [`Batch`] for an example.
#[derive(Debug)]
pub struct DeltaBatch {
    corpus: Corpus,
    indexes: [HashMap<u64, u64, FixedState>; KEYS_AT_FIRST],
    /// Key entries: number of the key, key, representative.
    entries: File,
    /// Documents: id, representative, keys, body.
    documents: File,
    /// Of all documents so far.
    clusters: Vec<u64>,
    buffers: [Vec<u8>; 2],
}

/// How many documents are joined before what they added is appended.
const DOCUMENTS_AT_ONCE: usize = 4096;

impl DeltaBatch {
    /// Creates its files in a directory and clusters the documents that the repository begins with.
    ///
    /// # Errors
    /// Those of files.
    pub fn create(dir: &Path, corpus: Corpus, documents: u64) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut batch = DeltaBatch {
            corpus,
            indexes: [(); KEYS_AT_FIRST].map(|()| HashMap::default()),
            entries: File::create(dir.join("entries"))?,
            documents: File::create(dir.join("documents"))?,
            clusters: Vec::new(),
            buffers: [Vec::new(), Vec::new()],
        };
        let all: Vec<Document> = (0..documents).map(|id| corpus.document(id)).collect();
        batch.cycle(&all)?;
        Ok(batch)
    }

    fn join(&mut self, document: &Document) {
        let keyed = || (0_u8..).zip(document.keys).take(KEYS_AT_FIRST);
        let mut found = None;
        let mut missed = 0;
        for (index, (_, key)) in self.indexes.iter().zip(keyed()) {
            found = index.get(&key).copied();
            if found.is_some() {
                break;
            }
            missed += 1;
        }
        let cluster = found.unwrap_or(document.id);
        let [entries, documents] = &mut self.buffers;
        for (index, (number, key)) in self.indexes.iter_mut().zip(keyed()).take(missed) {
            index.insert(key, cluster);
            entries.push(number);
            entries.extend_from_slice(&key.to_be_bytes());
            entries.extend_from_slice(&cluster.to_be_bytes());
        }
        for number in [document.id, cluster].iter().chain(&document.keys) {
            documents.extend_from_slice(&number.to_be_bytes());
        }
        let body = documents.len();
        documents.resize(body + BODY_BYTES, 0);
        self.corpus.fill_body(document.id, &mut documents[body..]);
        self.clusters.push(cluster);
    }
}

impl Batch for DeltaBatch {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()> {
        for some in arrivals.chunks(DOCUMENTS_AT_ONCE) {
            some.iter().for_each(|document| self.join(document));
            let [entries, documents] = &mut self.buffers;
            self.entries.write_all(entries)?;
            self.documents.write_all(documents)?;
            entries.clear();
            documents.clear();
        }
        Ok(())
    }

    fn clusters(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.clusters.clone())
    }
}

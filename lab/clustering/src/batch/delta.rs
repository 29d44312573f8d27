//! Clusters only the new documents, by joining them with tables that stay. The paper's related
//! work asks for this from successors of MapReduce.
//!
//! The tables of keys are in memory. The documents, and the entries that a cycle adds, are
//! appended to files, from which a new process could read them. This is as fast as possible,
//! but lacks three properties of a database. There is only one writer. No other process reads
//! meanwhile. All keys must fit into memory.

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
    /// The entries of keys: the number of the key, the key, and the representative.
    entries: File,
    /// The documents: id, representative, keys, body.
    documents: File,
    /// The cluster of each document so far.
    clusters: Vec<u64>,
    buffers: [Vec<u8>; 2],
}

/// The number of documents that are joined before the results are appended to the files.
const DOCUMENTS_AT_ONCE: usize = 4096;

impl DeltaBatch {
    /// Creates the batch's files in a directory, and clusters the documents with which the
    /// repository begins.
    ///
    /// # Errors
    /// The errors of file operations.
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

//! Implements the batch that the paper compares with: a MapReduce for each key, over the whole
//! repository, with the documents' bodies in every step.
//!
//! ```text
//! map     reads the repository and the arrivals; partitions records by the pass's key; writes
//! reduce  reads a partition; groups it by the key; names the earliest cluster to all; writes
//! ```
//!
//! Each record carries the keys of its current representative. So the next pass brings the
//! whole cluster to one reducer, not just the representative.
//!
//! With [`Files::New`] every step writes new files, as MapReduce does. A step can be repeated,
//! and the results of the last cycle stay readable until the next cycle is complete. With
//! [`Files::Over`] a step overwrites the files of the cycle before the last. Results stay
//! readable for the same time, but no step can be repeated. In return, the system does not
//! allocate, clear and free space for all files in each step.
//!
//! The batch is a serious rival. Partitions fit into the processor's caches. Files are written
//! in large pieces without syncing, and are read from memory if the machine has enough.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;

use crate::batch::Batch;
use crate::document::mix;
use crate::{BODY_BYTES, Corpus, Document, KEYS, KEYS_AT_FIRST};

/// The bytes of a record: id, keys, representative, the representative's keys, body.
const BYTES: usize = 8 * (2 + 2 * KEYS) + BODY_BYTES;
const CLUSTER_AT: usize = 8 * (1 + KEYS);
const CURRENT_AT: usize = 8 * (2 + KEYS);

/// The number of records that a mapper reads at once.
const READ_RECORDS: usize = 256;
/// The number of records that a mapper collects for one partition before it writes them.
const SPILL_RECORDS: usize = 32;
/// The approximate number of records in a partition. They stay in a processor's cache while
/// they are grouped.
const PARTITION_RECORDS: u64 = 2048;
/// The most partitions. A larger repository has larger partitions.
const PARTITIONS_MAX: u64 = 1024;

/// The row-wise batch.
///
/// See [`Batch`] for an example.
#[derive(Debug)]
pub struct RowBatch {
    dir: PathBuf,
    corpus: Corpus,
    documents: u64,
    threads: usize,
    partitions: usize,
    /// The number of documents that the last cycle took.
    arrived: u64,
    /// The number of cycles so far.
    cycles: u64,
    files: Files,
}

/// The files that the steps of a [`RowBatch`] write.
///
/// See [`Batch`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// New files.
    New,
    /// The files of earlier cycles.
    Over,
}

impl Files {
    fn open(self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(self == Files::New).open(path)
    }

    fn write(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    }

    fn remove(self, paths: &[PathBuf]) -> io::Result<()> {
        match self {
            Files::New => paths.iter().try_for_each(fs::remove_file),
            Files::Over => Ok(()),
        }
    }
}

impl RowBatch {
    /// Creates a repository of `documents` documents in a directory, for a batch with
    /// `threads` threads.
    ///
    /// # Errors
    /// The errors of file operations.
    pub fn create(
        dir: &Path,
        corpus: Corpus,
        documents: u64,
        threads: usize,
        files: Files,
    ) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let partitions = (documents / PARTITION_RECORDS).clamp(threads as u64, PARTITIONS_MAX);
        let partitions = usize::try_from(partitions).map_err(io::Error::other)?;
        let batch = RowBatch {
            dir: dir.to_owned(),
            corpus,
            documents,
            threads,
            partitions,
            arrived: 0,
            cycles: 0,
            files,
        };
        let shards = partitions as u64;
        let bounds = |shard: u64| documents * shard / shards..documents * (shard + 1) / shards;
        for (shard, path) in (0..shards).zip(batch.paths("base")) {
            batch.write_records(&path, bounds(shard).map(|id| corpus.document(id)))?;
        }
        batch.write_records(&batch.dir.join("arrivals"), std::iter::empty())?;
        Ok(batch)
    }

    /// The files that a pass of a cycle writes, one for each partition.
    fn outputs(&self, cycle: u64, pass: usize) -> Vec<PathBuf> {
        match self.files {
            Files::New => self.paths(&format!("cycle{cycle}.pass{pass}")),
            // The results of the previous cycle stay.
            Files::Over if pass + 1 == KEYS_AT_FIRST => self.paths(&format!("found{}", cycle % 2)),
            // The mappers have read these files completely before the reducers write.
            Files::Over => self.paths("handed-on"),
        }
    }

    /// The files of one step, one for each partition.
    fn paths(&self, step: &str) -> Vec<PathBuf> {
        (0..self.partitions).map(|part| self.dir.join(format!("{step}.{part}"))).collect()
    }

    /// The file that one mapper writes for one partition.
    fn spill(&self, mapper: usize, partition: usize) -> PathBuf {
        self.dir.join(format!("spill.{mapper}.{partition}"))
    }

    fn write_records(
        &self,
        path: &Path,
        documents: impl Iterator<Item = Document>,
    ) -> io::Result<()> {
        let mut records = Vec::new();
        for document in documents {
            let numbers = [document.id].into_iter().chain(document.keys);
            for number in numbers.clone().chain(numbers) {
                records.extend_from_slice(&number.to_be_bytes());
            }
            let body = records.len();
            records.resize(body + BODY_BYTES, 0);
            self.corpus.fill_body(document.id, &mut records[body..]);
        }
        fs::write(path, &records)
    }

    /// Runs one MapReduce. `pass` counts from zero.
    fn pass(&self, pass: usize) -> io::Result<()> {
        let mut inputs = match pass {
            0 => self.paths("base"),
            _ => self.outputs(self.cycles, pass - 1),
        };
        if pass == 0 {
            inputs.push(self.dir.join("arrivals"));
        }
        let key_at = CURRENT_AT + 8 * pass;
        let next = AtomicUsize::new(0);
        self.on_threads(|mapper| self.map(mapper, &inputs, &next, key_at))?;
        let (outputs, next) = (self.outputs(self.cycles, pass), AtomicUsize::new(0));
        self.on_threads(|_| self.reduce(&outputs, &next, key_at))?;
        // The repository's files stay; the files between two passes are removed.
        let read = if pass == 0 { Vec::new() } else { inputs };
        self.files.remove(&read)
    }

    fn on_threads(&self, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
        let work = &work;
        std::thread::scope(|scope| {
            let started: Vec<_> =
                (0..self.threads).map(|number| scope.spawn(move || work(number))).collect();
            started.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| io::Error::other("a thread of the batch panicked"))?
            })
        })
    }

    fn map(
        &self,
        mapper: usize,
        inputs: &[PathBuf],
        next: &AtomicUsize,
        key_at: usize,
    ) -> io::Result<()> {
        let spill = |partition| {
            let file = self.files.open(&self.spill(mapper, partition))?;
            Ok(BufWriter::with_capacity(SPILL_RECORDS * BYTES, file))
        };
        let mut spills = (0..self.partitions).map(spill).collect::<io::Result<Vec<_>>>()?;
        let mut buffer = vec![0; READ_RECORDS * BYTES];
        while let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut left = fs::metadata(input)?.len();
            let mut input = File::open(input)?;
            while left > 0 {
                let length = left.min(buffer.len() as u64);
                left -= length;
                let piece = &mut buffer[..length as usize];
                input.read_exact(piece)?;
                for record in piece.chunks_exact(BYTES) {
                    let partition = mix(number_at(record, key_at)) % self.partitions as u64;
                    spills[partition as usize].write_all(record)?;
                }
            }
        }
        spills.into_iter().try_for_each(|mut spill| {
            // An earlier cycle may have left a longer file.
            let written = spill.stream_position()?;
            spill.into_inner()?.set_len(written)
        })
    }

    fn reduce(&self, outputs: &[PathBuf], next: &AtomicUsize, key_at: usize) -> io::Result<()> {
        let mut records = Vec::new();
        // For each key: the earliest cluster, and that cluster's keys.
        let mut earliest: HashMap<u64, (u64, [u8; 8 * KEYS]), FixedState> = HashMap::default();
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            let Some(output) = outputs.get(partition) else { return Ok(()) };
            records.clear();
            for mapper in 0..self.threads {
                let spill = self.spill(mapper, partition);
                File::open(&spill)?.read_to_end(&mut records)?;
                self.files.remove(&[spill])?;
            }
            earliest.clear();
            for record in records.chunks_exact(BYTES) {
                let (key, cluster) = (number_at(record, key_at), number_at(record, CLUSTER_AT));
                let known = earliest.get(&key).is_some_and(|(first, _)| *first <= cluster);
                if !known {
                    let mut keys = [0; 8 * KEYS];
                    keys.copy_from_slice(&record[CURRENT_AT..CURRENT_AT + 8 * KEYS]);
                    earliest.insert(key, (cluster, keys));
                }
            }
            for record in records.chunks_exact_mut(BYTES) {
                if let Some((cluster, keys)) = earliest.get(&number_at(record, key_at)) {
                    record[CLUSTER_AT..CURRENT_AT].copy_from_slice(&cluster.to_be_bytes());
                    record[CURRENT_AT..CURRENT_AT + 8 * KEYS].copy_from_slice(keys);
                }
            }
            self.files.write(output, &records)?;
        }
    }
}

impl Batch for RowBatch {
    fn name(&self) -> &'static str {
        match self.files {
            Files::New => "rows",
            Files::Over => "rows over old files",
        }
    }

    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()> {
        self.arrived = arrivals.len() as u64;
        self.write_records(&self.dir.join("arrivals"), arrivals.iter().copied())?;
        let before = self.outputs(self.cycles, KEYS_AT_FIRST - 1);
        self.cycles += 1;
        (0..KEYS_AT_FIRST).try_for_each(|pass| self.pass(pass))?;
        let before = if self.cycles > 1 { before } else { Vec::new() };
        self.files.remove(&before)
    }

    fn clusters(&mut self) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for file in self.outputs(self.cycles, KEYS_AT_FIRST - 1) {
            let records = fs::read(file)?;
            let pair = |record| (number_at(record, 0), number_at(record, CLUSTER_AT));
            found.extend(records.chunks_exact(BYTES).map(pair));
        }
        found.sort_unstable();
        let expected = self.documents + self.arrived;
        if found.len() as u64 != expected {
            let what = format!("{} documents came out of {expected}", found.len());
            return Err(io::Error::other(what));
        }
        Ok(found.into_iter().map(|(_, cluster)| cluster).collect())
    }
}

fn number_at(record: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&record[at..at + 8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule;

    #[test]
    fn cycles_are_exact_whatever_came_before() {
        for files in [Files::New, Files::Over] {
            cycles_are_exact(files);
        }
    }

    fn cycles_are_exact(files: Files) {
        let dir = tempfile::tempdir().unwrap();
        let corpus = Corpus::new(9000, 5);
        let mut batch = RowBatch::create(dir.path(), corpus, 9000, 2, files).unwrap();
        assert!(batch.partitions > 2);
        for arrivals in [0..0, 9000..12_000, 9500..9501, 9000..9700_u64] {
            let arrivals: Vec<Document> = arrivals.map(|id| corpus.document(id)).collect();
            batch.cycle(&arrivals).unwrap();
            let base = (0..9000).map(|id| corpus.document(id));
            let documents: Vec<Document> = base.chain(arrivals).collect();
            assert_eq!(batch.clusters().unwrap(), rule::passes(&documents, 3));
        }
        // With `New`: the repository, the arrivals, and the results of the last cycle. With
        // `Over` also the results of the cycle before, the output of two mappers, and the
        // files between passes.
        let expected = if files == Files::New { 2 } else { 6 };
        let found = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(found, expected * batch.partitions + 1);
    }

    #[test]
    fn bodies_are_carried_through() {
        let dir = tempfile::tempdir().unwrap();
        let corpus = Corpus::new(100, 5);
        let mut batch = RowBatch::create(dir.path(), corpus, 100, 1, Files::New).unwrap();
        batch.cycle(&[]).unwrap();
        let records = fs::read(dir.path().join("cycle1.pass2.0")).unwrap();
        assert_eq!((records.len(), BYTES), (100 * BYTES, 1024));
        for record in records.chunks_exact(BYTES) {
            let document = corpus.document(number_at(record, 0));
            assert_eq!(document.keys[3], number_at(record, 8 * KEYS));
            assert_eq!(corpus.body(document.id), record[BYTES - BODY_BYTES..]);
        }
    }
}

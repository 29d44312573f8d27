//! Copies the files of one moment into the directory of a backup.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bigtable::Error;

use crate::backup::list::{Content, List, content_file};
use crate::backup::moment::{Moment, damaged};
use crate::backup::pool::{Pool, writing};
use crate::opening::{Damage, Inventory, Journal, Named, Runs, Tail};

/// Why a backup was not made.
pub(super) enum Stop {
    /// The engine is being closed. If it is opened anew, begin again.
    Closing,
    Failed(Error),
}

/// An error of the store's files.
fn of_store(path: &Path, error: &io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::Interrupted => Stop::Closing,
        _ => Stop::Failed(damaged(&Damage::io(path, error))),
    }
}

/// An error of the backup's files.
fn of_pool(path: &Path, error: &io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::Interrupted => Stop::Closing,
        _ => Stop::Failed(writing(path, error)),
    }
}

/// Copies the files of a moment, and returns the list of the backup.
pub(super) fn copy(moment: &Moment, pool: &mut Pool) -> Result<List, Stop> {
    let mut copying = Copying { moment, list: pool.begin(), pool };
    let mut journals = BTreeMap::new();
    let (mut last, count) = (None, moment.journals.len());
    for (position, journal) in moment.journals.iter().enumerate() {
        let own = copying.journal(journal, &mut last, position + 1 == count)?;
        journals.insert(journal.0, own.unwrap_or(0));
    }
    let short = moment.reaches.filter(|reaches| last.is_none_or(|last| last < *reaches));
    if let (Some(reaches), Some((_, newest))) = (short, moment.journals.last()) {
        let problem = format!("batch {reaches}, or a later one, is missing at its end");
        return Err(Stop::Failed(damaged(&Damage::new(newest, problem))));
    }
    for (number, runs) in &moment.keyspaces {
        copying.keyspace(*number, runs)?;
    }
    let engine = moment.engine.directory.engine();
    let version = fs::read(engine.join("version"));
    let version = version.map_err(|e| of_store(&engine.join("version"), &e))?;
    copying.bytes("engine/version".to_owned(), &version)?;
    let inventory = Inventory { journals, keyspaces: moment.inventory.keyspaces.clone() };
    copying.bytes(crate::opening::INVENTORY_FILE.to_owned(), inventory.text().as_bytes())?;
    Ok(copying.list)
}

struct Copying<'a> {
    moment: &'a Moment,
    pool: &'a mut Pool,
    list: List,
}

impl Copying<'_> {
    fn bytes(&mut self, path: String, mut bytes: &[u8]) -> Result<(), Stop> {
        let put = self.pool.put(&mut bytes, |_| Ok(()));
        let content = put.map_err(|e| of_pool(self.pool.dir(), &e))?;
        self.list.files.push((path, content));
        Ok(())
    }

    /// Copies the batches that a journal had at the moment; returns the number of its last one.
    fn journal(
        &mut self,
        file: &(u64, PathBuf),
        last: &mut Option<u64>,
        newest: bool,
    ) -> Result<Option<u64>, Stop> {
        let (number, path) = file;
        let (mut keep, mut own, before) = (0, None, *last);
        let end = self.moment.end;
        let open = || self.moment.open(path).map_err(|e| of_store(path, &e));
        let read = Journal::read_open(open()?, file, before, |batch| {
            if batch.number < end {
                (keep, own) = (batch.end, Some(batch.number));
            }
        });
        let journal = read.map_err(|e| of_store(path, &e))?;
        *last = own.or(before);
        // A batch that is being written may follow the part that is kept.
        if journal.end == keep && journal.tail != Tail::Clean {
            let behind = journal.behind_in(open()?).map_err(|e| of_store(path, &e))?;
            let lost = behind.batches.iter().any(|batch| batch.number < end);
            if lost || !newest {
                let problem = format!("the journal is damaged at byte {keep}");
                return Err(Stop::Failed(damaged(&Damage::new(path, problem))));
            }
        }
        let put = self.pool.put(&mut open()?.take(keep), self.moment.between());
        let content = put.map_err(|e| of_pool(self.pool.dir(), &e))?;
        // The journal was read twice. The backup consists of what the second read has returned.
        let copy = (*number, content_file(self.pool.dir(), content));
        let copied = Journal::read(&copy, before, |_| {}).map_err(|e| of_pool(&copy.1, &e))?;
        if copied.end != keep {
            let problem = "two reads of the file gave different contents";
            return Err(Stop::Failed(damaged(&Damage::new(path, problem))));
        }
        self.list.files.push((format!("engine/{number}.jnl"), content));
        Ok(own)
    }

    fn keyspace(&mut self, number: u64, runs: &Runs) -> Result<(), Stop> {
        let dir = format!("engine/keyspaces/{number}");
        let manifest = runs.manifest_of(|_| true);
        let manifest = manifest.map_err(|e| of_store(Path::new(&dir), &e))?;
        for file in runs.files() {
            self.file(&dir, file)?;
        }
        self.bytes(format!("{dir}/v{}", runs.number), &manifest.content)?;
        self.bytes(format!("{dir}/current"), &manifest.current)
    }

    /// Copies a file that never changes. Its checksum is in the manifest.
    fn file(&mut self, dir: &str, file: &Named) -> Result<(), Stop> {
        let store = |e: io::Error| of_store(&file.path, &e);
        let mut source = self.moment.open(&file.path).map_err(store)?;
        let bytes = source.metadata().map_err(store)?.len();
        let wanted = Content { sum: file.checksum, bytes };
        let moment = self.moment;
        let has =
            self.pool.has(wanted, moment.between()).map_err(|e| of_pool(self.pool.dir(), &e))?;
        // Read the file even if the backup has it, because a backup also detects damage of the
        // store.
        let found = if has {
            let summed =
                crate::opening::copy_summed(&mut source, &mut io::sink(), moment.between());
            let (sum, bytes) = summed.map_err(store)?;
            Content { sum, bytes }
        } else {
            let put = self.pool.put(&mut source, moment.between());
            put.map_err(|e| of_pool(self.pool.dir(), &e))?
        };
        if found != wanted {
            let problem = "its checksum is not the one in the manifest";
            return Err(Stop::Failed(damaged(&Damage::new(&file.path, problem))));
        }
        let mut parts = file.path.components().rev().filter_map(|part| part.as_os_str().to_str());
        let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.list.files.push((format!("{dir}/{folder}/{name}"), found));
        Ok(())
    }
}

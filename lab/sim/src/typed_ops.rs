//! Compares sequences of typed operations with a map of versions.
//!
//! Every string of bytes encodes a sequence, so a fuzzer can draw one. The transactions of a
//! sequence commit, crash between their phases, or only read, at the present and in the past.
//! Their values are short and long. The check is small and
//! serial. It is a second opinion beside the simulator: the expected values come from a map
//! that one page of code maintains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bigtable::{MemoryStore, Timestamp};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Bytes, Client, Column, Error, Incarnation, Options, Oracle, ProcessLocks, Result, Services,
    Table, Transaction, WindowOracle,
};

/// Columns and rows are few, so that operations touch the same cells.
static COLUMNS: [Column; 2] = [Column::literal("a"), Column::literal("b:c")];
const ROWS: u8 = 4;
/// Values of 300 bytes do not fit into a lock, but into the record of a commit in one step. Longer
/// ones fit into neither.
const VALUE_BYTES: [usize; 4] = [0, 1, 300, 2000];

/// A cell: row and index of the column.
type Cell = (u8, usize);

/// The writes of a transaction; `None` for a delete.
type Writes = BTreeMap<Cell, Option<Bytes>>;

/// Runs the sequence that the bytes encode.
///
/// # Errors
/// Returns the errors of the client, none of which is expected.
///
/// # Panics
/// If a read differs from the map.
pub fn check(bytes: &[u8]) -> Result<()> {
    let runtime = VirtualRuntime::new(1);
    runtime.clone().block_on(async move {
        let mut world = World::new(&runtime).await?;
        let mut bytes = bytes.iter().copied();
        while let Some(op) = bytes.next() {
            let argument = bytes.next().unwrap_or_default();
            world.step(op, argument).await?;
        }
        Ok(())
    })
}

struct World {
    services: Services,
    client: Client,
    table: Table,
    /// The versions of each cell: commit timestamp and value, `None` for a delete.
    versions: BTreeMap<Cell, BTreeMap<Timestamp, Option<Bytes>>>,
    /// Timestamps of commits and reads.
    moments: BTreeSet<Timestamp>,
}

impl World {
    async fn new(runtime: &VirtualRuntime) -> Result<Self> {
        let store = Arc::new(MemoryStore::new());
        let oracle: Arc<dyn Oracle> = Arc::new(WindowOracle::open(&*store, Incarnation(1)).await?);
        let runtime = Arc::new(runtime.clone());
        let locks = Arc::new(ProcessLocks::new(runtime.clone()));
        let services = Services { store, oracle, locks, runtime };
        let client = Client::open(services.clone(), Options::default()).await?;
        let table = client.table("t").await?;
        let (versions, moments) = (BTreeMap::new(), BTreeSet::new());
        Ok(World { services, client, table, versions, moments })
    }

    async fn step(&mut self, op: u8, argument: u8) -> Result<()> {
        match op % 8 {
            0 | 1 => self.commit(argument).await,
            2 => self.crash(argument, false).await,
            3 => self.crash(argument, true).await,
            4 => self.compare_scan(argument).await,
            5 => self.compare_past(argument).await,
            _ => self.compare_cell(argument).await,
        }
    }

    /// Returns the writes of a transaction: one bit of the argument for each of six cells.
    fn writes(argument: u8) -> Writes {
        let length = VALUE_BYTES[usize::from(argument >> 6)];
        let mut writes = BTreeMap::new();
        for bit in (0..6).filter(|bit| argument & (1 << bit) != 0) {
            let delete = bit == 5;
            let cell = (bit % ROWS, usize::from(bit / ROWS));
            writes.insert(cell, (!delete).then(|| vec![argument; length].into()));
        }
        writes
    }

    async fn commit(&mut self, argument: u8) -> Result<()> {
        let writes = World::writes(argument);
        let mut tx = self.client.begin().await?;
        buffer(&mut tx, &self.table, &writes)?;
        // Locks of crashed clients are in the way; the commit has to resolve them.
        let commit_ts = tx.commit().await?;
        self.remember(writes, commit_ts);
        Ok(())
    }

    /// Runs a transaction whose client dies before its commit point, or immediately after it.
    async fn crash(&mut self, argument: u8, behind: bool) -> Result<()> {
        let writes = World::writes(argument);
        let client = Client::open(self.services.clone(), Options::default()).await?;
        let mut tx = client.begin().await?;
        buffer(&mut tx, &client.table("t").await?, &writes)?;
        let prewritten = match tx.prewrite().await {
            Err(Error::Invalid { .. }) if writes.is_empty() => return Ok(()),
            prewritten => prewritten?,
        };
        if behind {
            let commit_ts = prewritten.commit_primary().await?.commit_ts();
            self.remember(writes, commit_ts);
        }
        Ok(())
    }

    fn remember(&mut self, writes: Writes, commit_ts: Timestamp) {
        self.moments.insert(commit_ts);
        for (cell, value) in writes {
            self.versions.entry(cell).or_default().insert(commit_ts, value);
        }
    }

    fn expected(&self, cell: Cell, at: Timestamp) -> Option<Bytes> {
        let versions = self.versions.get(&cell)?;
        versions.range(..=at).next_back().and_then(|(_, value)| value.clone())
    }

    async fn compare_cell(&mut self, argument: u8) -> Result<()> {
        let cell = (argument % ROWS, usize::from(argument / ROWS) % COLUMNS.len());
        let tx = self.client.begin().await?;
        self.moments.insert(tx.start_ts());
        let value = tx.get(&self.table, vec![cell.0], &COLUMNS[cell.1]).await?;
        assert_eq!(value, self.expected(cell, tx.start_ts()), "{cell:?} now");
        Ok(())
    }

    async fn compare_past(&self, argument: u8) -> Result<()> {
        let Some(at) = self.moments.iter().nth(usize::from(argument) % self.moments.len().max(1))
        else {
            return Ok(());
        };
        let past = self.client.snapshot_at(*at).await?;
        for row in 0..ROWS {
            for (index, column) in COLUMNS.iter().enumerate() {
                let value = past.get(&self.table, vec![row], column).await?;
                assert_eq!(value, self.expected((row, index), *at), "{row}/{column} at {at}");
            }
        }
        Ok(())
    }

    async fn compare_scan(&self, argument: u8) -> Result<()> {
        let limit = usize::from(argument % 5);
        let tx = self.client.begin().await?;
        let mut expected = Vec::new();
        for row in 0..ROWS {
            let cells = COLUMNS.iter().enumerate();
            let live = |(index, column): (usize, &Column)| {
                Some((column.clone(), self.expected((row, index), tx.start_ts())?))
            };
            let cells: Vec<_> = cells.filter_map(live).collect();
            if !cells.is_empty() {
                expected.push((vec![row], cells));
            }
        }
        expected.truncate(limit);
        let found = tx.scan(&self.table).limit(limit).collect().await?;
        let found: Vec<_> =
            found.into_iter().map(|row| (row.row.as_bytes().to_vec(), row.cells)).collect();
        assert_eq!(found, expected, "a scan of {limit} rows");
        Ok(())
    }
}

fn buffer(tx: &mut Transaction, table: &Table, writes: &Writes) -> Result<()> {
    for ((row, column), value) in writes {
        let column = &COLUMNS[*column];
        match value {
            Some(value) => tx.set(table, vec![*row], column, value.clone())?,
            None => tx.delete(table, vec![*row], column)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_sequence_agrees_with_the_map(bytes in vec(any::<u8>(), 0..160)) {
            super::check(&bytes).unwrap();
        }

        #[test]
        fn records_have_one_encoding(bytes in vec(any::<u8>(), 0..90)) {
            percolator_core::testing::check_lock_record(&bytes);
            percolator_core::testing::check_write_record(&bytes);
        }

        /// Checks likely records: the tag and flags of a lock, followed by any bytes.
        #[test]
        fn lock_records_have_one_encoding(
            secondary in any::<bool>(),
            flags in 0..8_u8,
            bytes in vec(prop_oneof![Just(0), any::<u8>()], 28..60),
        ) {
            let mut lock = vec![if secondary { b'S' } else { b'P' }, 1, flags];
            lock.extend(bytes);
            percolator_core::testing::check_lock_record(&lock);
        }
    }
}

//! A caller: does one thing after the other on cells of its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bigtable_grpc::{BareConditional, BareRead};
use futures::{StreamExt, stream};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Settings;
use super::bed::{Bed, COLUMN, Form, Part, value};
use crate::turns::nanos;

/// Cells that are written by one transaction before anything is measured.
const LOAD_AT_ONCE: usize = 500;
/// Reads in flight of the check at the end.
const CHECKS_AT_ONCE: usize = 64;
/// Requests that are made beforehand for the first turn; for later ones twice what was needed.
const PREPARED_MIN: usize = 500;

/// What a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    BareCommit,
    Commit { cells: usize, form: Form },
    BareRead,
    Get,
}

/// A caller, and what it knows of its cells.
#[derive(Debug)]
pub(super) struct Caller {
    random: SmallRng,
    /// The numbers of its cells.
    cells: Vec<usize>,
    /// How often each of them was written, in each part.
    written: [Vec<u64>; 2],
    /// How often each cell will have been written once the prepared commits are through.
    prepared: Vec<u64>,
    commits: VecDeque<(usize, [BareConditional; 2])>,
    reads: Vec<BareRead>,
    /// The most operations of one turn.
    most: usize,
    /// Transactions that it was told are committed.
    pub(super) committed: u64,
    /// Answers that were not as they had to be.
    pub(super) wrong: u64,
}

impl Default for Caller {
    fn default() -> Self {
        Caller::new(0, Vec::new())
    }
}

impl Caller {
    /// All callers, which share the cells among them.
    pub(super) fn all(settings: &Settings) -> Vec<Caller> {
        let caller = |number: usize| {
            let cells = (number..settings.cells).step_by(settings.callers).collect();
            Caller::new(settings.turns.seed + number as u64, cells)
        };
        (0..settings.callers).map(caller).collect()
    }

    fn new(seed: u64, cells: Vec<usize>) -> Self {
        let nothing = vec![0; cells.len()];
        Caller {
            random: SmallRng::seed_from_u64(seed),
            cells,
            written: [nothing.clone(), nothing.clone()],
            prepared: nothing,
            commits: VecDeque::new(),
            reads: Vec::new(),
            most: PREPARED_MIN,
            committed: 0,
            wrong: 0,
        }
    }

    /// Writes each of its cells once.
    pub(super) async fn load(&mut self, bed: &Bed) -> anyhow::Result<()> {
        let own: Vec<usize> = (0..self.cells.len()).collect();
        for own in own.chunks(LOAD_AT_ONCE) {
            for part in Part::ALL {
                self.write(bed, part, Form::Usual, own).await?;
            }
        }
        self.prepared.fill(1);
        Ok(())
    }

    /// One transaction on these of its cells.
    async fn write(
        &mut self,
        bed: &Bed,
        part: Part,
        form: Form,
        own: &[usize],
    ) -> anyhow::Result<()> {
        let written = &mut self.written[part as usize];
        let (client, table) = bed.client(part, form);
        let mut tx = client.begin().await?;
        for &own in own {
            let cell = self.cells[own];
            tx.set(table, &bed.keys[cell], &COLUMN, value(cell, written[own] + 1))?;
        }
        tx.commit().await?;
        own.iter().for_each(|own| written[*own] += 1);
        self.committed += 1;
        Ok(())
    }

    /// Makes requests beforehand.
    pub(super) async fn prepare(&mut self, bed: &Bed, work: Work) -> anyhow::Result<()> {
        match work {
            Work::BareCommit => {
                while self.commits.len() < 2 * self.most {
                    let own = self.pick();
                    let (cell, written) = (self.cells[own], self.prepared[own] + 1);
                    let key = &bed.keys[cell];
                    let [prewrite, commit] = bed.template.commit(key, value(cell, written)).await?;
                    let bare = [bed.bare.conditional(&prewrite)?, bed.bare.conditional(&commit)?];
                    self.commits.push_back((own, bare));
                    self.prepared[own] = written;
                }
            }
            Work::BareRead => {
                // A read of the present, as those of `get`.
                let select = bed.template.read().await?;
                self.reads.clear();
                for _ in 0..2 * self.most {
                    let own = self.pick();
                    let cell = self.cells[own];
                    self.reads.push(bed.bare.read(&bed.keys[cell], &select)?);
                }
            }
            Work::Commit { .. } | Work::Get => {}
        }
        Ok(())
    }

    fn pick(&mut self) -> usize {
        self.random.random_range(0..self.cells.len())
    }

    /// Works for this long, or until nothing is left that was prepared. Returns what each operation
    /// took, in nanoseconds; one reading of the clock ends an operation and begins the next.
    pub(super) async fn call(
        &mut self,
        bed: &Bed,
        work: Work,
        since: Instant,
        length: Duration,
    ) -> anyhow::Result<Vec<u64>> {
        let mut latencies = Vec::with_capacity(2 * self.most);
        let mut last = since.elapsed();
        while last < length && self.once(bed, work).await? {
            let now = since.elapsed();
            latencies.push(nanos(now - last));
            last = now;
        }
        self.most = self.most.max(latencies.len());
        Ok(latencies)
    }

    /// One operation; `false` if nothing is prepared for it.
    async fn once(&mut self, bed: &Bed, work: Work) -> anyhow::Result<bool> {
        match work {
            Work::BareCommit => {
                let Some((own, [prewrite, commit])) = self.commits.pop_front() else {
                    return Ok(false);
                };
                let rejected = bed.bare.send(prewrite).await?;
                let committed = bed.bare.send(commit).await?;
                self.wrong += u64::from(rejected || !committed);
                self.written[Part::Bare as usize][own] += 1;
            }
            Work::Commit { cells, form } => {
                let first = self.pick();
                let own: Vec<_> = (first..first + cells).map(|i| i % self.cells.len()).collect();
                self.write(bed, Part::Cells, form, &own).await?;
            }
            Work::BareRead => {
                let Some(read) = self.reads.pop() else { return Ok(false) };
                self.wrong += u64::from(bed.bare.send_read(read).await? != 1);
            }
            Work::Get => {
                let own = self.pick();
                let wrong = !self.is_right(bed, Part::Cells, own).await?;
                self.wrong += u64::from(wrong);
            }
        }
        Ok(true)
    }

    /// Whether a cell is as this caller last wrote it.
    async fn is_right(&self, bed: &Bed, part: Part, own: usize) -> anyhow::Result<bool> {
        let cell = self.cells[own];
        let snapshot = bed.db.snapshot().await?;
        let found = snapshot.get(bed.table(part), &bed.keys[cell], &COLUMN).await?;
        Ok(found == Some(value(cell, self.written[part as usize][own])))
    }

    /// Reads every cell in each part, and returns how many.
    pub(super) async fn check(&mut self, bed: &Bed) -> anyhow::Result<u64> {
        let all =
            Part::ALL.into_iter().flat_map(|part| (0..self.cells.len()).map(move |i| (part, i)));
        let reads = stream::iter(all).map(|(part, own)| self.is_right(bed, part, own));
        let right: Vec<_> = reads.buffer_unordered(CHECKS_AT_ONCE).collect().await;
        let right = right.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.wrong += right.iter().filter(|right| !**right).count() as u64;
        Ok(right.len() as u64)
    }
}

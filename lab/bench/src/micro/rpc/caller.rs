//! Implements a caller that repeats one kind of operation on cells of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Context as _;
use bigtable_grpc::{BareConditional, BareRead};
use futures::{StreamExt, stream};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::bed::{COLUMN, value};
use super::bed::{Bed, Form, Part};
use crate::callers::AsyncCaller;

/// Most cells that one transaction writes before anything is measured.
const LOAD_AT_ONCE: usize = 500;
/// Reads in flight during the check at the end.
const CHECKS_AT_ONCE: usize = 64;
/// Fewest requests prepared for a turn. Later turns get twice the number that was needed.
const PREPARED_MIN: usize = 500;

/// The kind of a caller's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    BareCommit,
    Commit { cells: usize, form: Form },
    BareRead,
    Get,
}

/// A caller, and its expectations of its cells.
#[derive(Debug)]
pub(super) struct Caller {
    bed: Arc<Bed>,
    /// The operation of this turn, and the number of operations so far.
    work: Work,
    done: usize,
    random: SmallRng,
    cells: Vec<usize>,
    /// Number of writes of each cell, in each copy.
    written: [Vec<u64>; 2],
    /// Number of writes of each cell after all prepared commits.
    prepared: Vec<u64>,
    commits: VecDeque<(usize, [BareConditional; 2])>,
    reads: Vec<BareRead>,
    /// The most operations of one turn so far.
    most: usize,
    pub(super) committed: u64,
    pub(super) wrong: u64,
}

impl Caller {
    /// Creates all callers, and divides the cells among them.
    pub(super) fn all(bed: &Arc<Bed>, callers: usize, cells: usize, seed: u64) -> Vec<Caller> {
        let caller = |number: usize| {
            let cells: Vec<usize> = (number..cells).step_by(callers).collect();
            let nothing = vec![0; cells.len()];
            Caller {
                bed: bed.clone(),
                work: Work::Get,
                done: 0,
                random: SmallRng::seed_from_u64(seed + number as u64),
                cells,
                written: [nothing.clone(), nothing.clone()],
                prepared: nothing,
                commits: VecDeque::new(),
                reads: Vec::new(),
                most: PREPARED_MIN,
                committed: 0,
                wrong: 0,
            }
        };
        (0..callers).map(caller).collect()
    }

    pub(super) async fn load(&mut self) -> anyhow::Result<()> {
        let own: Vec<usize> = (0..self.cells.len()).collect();
        for own in own.chunks(LOAD_AT_ONCE) {
            for part in Part::ALL {
                self.write(part, Form::Usual, own).await?;
            }
        }
        self.prepared.fill(1);
        Ok(())
    }

    async fn write(&mut self, part: Part, form: Form, own: &[usize]) -> anyhow::Result<()> {
        let written = &mut self.written[part as usize];
        let (client, table) = self.bed.client(part, form);
        let mut tx = client.begin().await?;
        for &own in own {
            let cell = self.cells[own];
            tx.set(table, &self.bed.keys[cell], &COLUMN, value(cell, written[own] + 1))?;
        }
        tx.commit().await?;
        own.iter().for_each(|own| written[*own] += 1);
        self.committed += 1;
        Ok(())
    }

    /// Begins a turn, and prepares its requests.
    pub(super) async fn prepare(&mut self, work: Work) -> anyhow::Result<()> {
        self.most = self.most.max(self.done);
        (self.work, self.done) = (work, 0);
        let bed = self.bed.clone();
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
                // A read as of now, like those of `get`.
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

    async fn is_right(&self, part: Part, own: usize) -> anyhow::Result<bool> {
        let (bed, cell) = (&self.bed, self.cells[own]);
        let snapshot = bed.db.snapshot().await?;
        let found = snapshot.get(bed.table(part), &bed.keys[cell], &COLUMN).await?;
        Ok(found == Some(value(cell, self.written[part as usize][own])))
    }

    /// Reads every cell in each copy, and returns the number of reads.
    pub(super) async fn check(&mut self) -> anyhow::Result<u64> {
        let all =
            Part::ALL.into_iter().flat_map(|part| (0..self.cells.len()).map(move |i| (part, i)));
        let reads = stream::iter(all).map(|(part, own)| self.is_right(part, own));
        let right: Vec<_> = reads.buffer_unordered(CHECKS_AT_ONCE).collect().await;
        let right = right.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.wrong += right.iter().filter(|right| !**right).count() as u64;
        Ok(right.len() as u64)
    }
}

impl AsyncCaller for Caller {
    /// `false` once the prepared requests are used up.
    fn is_ready(&self) -> bool {
        match self.work {
            Work::BareCommit => !self.commits.is_empty(),
            Work::BareRead => !self.reads.is_empty(),
            Work::Commit { .. } | Work::Get => true,
        }
    }

    async fn attempt(&mut self) -> anyhow::Result<bool> {
        self.done += 1;
        match self.work {
            Work::BareCommit => {
                let prepared = self.commits.pop_front().context("a prepared commit")?;
                let (own, [prewrite, commit]) = prepared;
                let rejected = self.bed.bare.send(prewrite).await?;
                let committed = self.bed.bare.send(commit).await?;
                self.wrong += u64::from(rejected || !committed);
                self.written[Part::Bare as usize][own] += 1;
            }
            Work::Commit { cells, form } => {
                let first = self.pick();
                let own: Vec<_> = (first..first + cells).map(|i| i % self.cells.len()).collect();
                self.write(Part::Cells, form, &own).await?;
            }
            Work::BareRead => {
                let read = self.reads.pop().context("a prepared read")?;
                self.wrong += u64::from(self.bed.bare.send_read(read).await? != 1);
            }
            Work::Get => {
                let own = self.pick();
                let wrong = !self.is_right(Part::Cells, own).await?;
                self.wrong += u64::from(wrong);
            }
        }
        Ok(true)
    }
}

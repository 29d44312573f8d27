//! Implements a caller that repeatedly reads or writes cells.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;

use super::cells::{Cells, Held};
use crate::callers::AsyncCaller;

/// Most cells. At the end the benchmark checks that they stayed in memory.
pub(crate) const CELLS_MAX: usize = 1_000_000;

/// Number of cells that a larger transaction writes, each in a row of its own.
pub(crate) const TEN: usize = 10;

/// Operations of one of many callers before others run.
const YIELD_EVERY: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Get,
    SnapshotGet,
    BeginGet,
    Set,
    /// Writes ten cells; counted in cells.
    SetTen,
}

impl Work {
    /// Number of operations that it counts as.
    pub(super) fn counts(self) -> u64 {
        if self == Work::SetTen { TEN as u64 } else { 1 }
    }
}

/// A caller that works on cells of its own.
pub(super) struct Caller {
    pub(super) cells: Arc<Cells>,
    pub(super) work: Work,
    pub(super) number: usize,
    /// Number of callers that share the cells.
    pub(super) of: usize,
    pub(super) done: usize,
    pub(super) random: SmallRng,
    pub(super) held: Held,
}

impl AsyncCaller for Caller {
    /// Does one operation on random cells, which includes the drawing of the cells.
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        self.done += 1;
        self.one().await?;
        Ok(true)
    }

    /// Gets of a store in this process never wait, so without this no other caller would run.
    fn gives_way(&self) -> bool {
        self.of > 1 && (self.done + 1).is_multiple_of(YIELD_EVERY)
    }
}

impl Caller {
    pub(super) async fn one(&mut self) -> anyhow::Result<()> {
        let own = self.cells.len() / self.of;
        let first = self.random.random_range(0..own);
        let cell = |drawn: usize| self.number + self.of * (drawn % own);
        let at = cell(first);
        match self.work {
            Work::Get => self.cells.get(at, self.number, &mut self.held).await,
            Work::SnapshotGet => self.cells.snapshot_get(at).await,
            Work::BeginGet => self.cells.begin_get(at).await,
            Work::Set => self.cells.set(&[at], self.number, &mut self.random).await,
            Work::SetTen => {
                let ten: [usize; TEN] = std::array::from_fn(|i| cell(first + i));
                self.cells.set(&ten, self.number, &mut self.random).await
            }
        }
    }
}

//! Implements a caller that repeatedly reads or writes cells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

use super::cells::{Cells, Held};
use crate::turns::nanos;

/// Most cells. At the end the benchmark checks that they stayed in memory.
pub(crate) const CELLS_MAX: usize = 1_000_000;

/// Number of cells that a larger transaction writes, each in a row of its own.
pub(crate) const TEN: usize = 10;

/// Operations of one of many callers before others run.
pub(super) const YIELD_EVERY: usize = 16;

/// The kind of an operation.
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
    pub(super) number: usize,
    /// Number of callers that share the cells.
    pub(super) of: usize,
    pub(super) random: SmallRng,
    pub(super) held: Held,
}

impl Caller {
    /// Works on random cells for this long. One reading of the clock ends an operation and
    /// begins the next, which includes the drawing of the cell.
    pub(super) async fn call(
        &mut self,
        work: Work,
        since: Instant,
        length: Duration,
        mut record: impl FnMut(u64),
    ) -> anyhow::Result<()> {
        let (mut last, mut done) = (since.elapsed(), 0_usize);
        while last < length {
            done += 1;
            if self.of > 1 && done.is_multiple_of(YIELD_EVERY) {
                // Gets of a store in this process never wait, so without this no other caller
                // would run.
                tokio::task::yield_now().await;
                last = since.elapsed();
            }
            self.one(work).await?;
            let now = since.elapsed();
            record(nanos(now - last));
            last = now;
        }
        Ok(())
    }

    /// Does one operation on random cells.
    pub(super) async fn one(&mut self, work: Work) -> anyhow::Result<()> {
        let own = self.cells.len() / self.of;
        let first = self.random.random_range(0..own);
        let cell = |drawn: usize| self.number + self.of * (drawn % own);
        let at = cell(first);
        match work {
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

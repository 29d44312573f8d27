//! A caller that reads and writes cells over and over, and what it does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

use super::cells::{Cells, Held};
use crate::turns::nanos;

/// Most cells. Whether they stay in memory is looked at in the end.
pub(crate) const CELLS_MAX: usize = 1_000_000;

/// How many cells a larger transaction writes, each in a row of its own.
pub(crate) const TEN: usize = 10;

/// How many operations one of many callers does before others have their turn.
pub(super) const YIELD_EVERY: usize = 16;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Get,
    SnapshotGet,
    BeginGet,
    Set,
    /// Ten cells; counted in cells.
    SetTen,
}

impl Work {
    /// How many operations it counts as.
    pub(super) fn counts(self) -> u64 {
        if self == Work::SetTen { TEN as u64 } else { 1 }
    }
}

/// Works on cells of its own.
pub(super) struct Caller {
    pub(super) cells: Arc<Cells>,
    pub(super) number: usize,
    /// How many callers share the cells.
    pub(super) of: usize,
    pub(super) random: SmallRng,
    pub(super) held: Held,
}

impl Caller {
    /// Works on random cells for this long. One reading of the clock ends an operation and begins
    /// the next, the drawing of the cell included.
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
                // Gets of a store in this process wait for nothing, and others would have no turn.
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

    /// Works on random cells once.
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

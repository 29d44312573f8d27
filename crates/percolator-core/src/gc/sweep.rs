//! Step 2: resolves every lock below the safe point, before anything is collected.
//!
//! Collection may drop the evidence by which a lock is resolved, so the locks come first
//! (H06). The floor has been raised before, so no new lock below it can be placed, and one
//! pass finds all of them. The lock of a committed transaction is rolled forward, including
//! its notification (H49). A lock whose owner is alive ends the round, because the owner may
//! still need its records.

use std::collections::BTreeSet;

use bigtable::{PageLimit, RowRange, Selection, TimeRange, Timestamp};

use crate::gc::pace::Pace;
use crate::gc::report::GcCounts;
use crate::records::layout::LOCK;
use crate::resolve::{FoundLock, Resolved, resolve};
use crate::shared::Shared;
use crate::{LockView, Result, Table};

/// Most rows of one page.
const PAGE_ROWS: usize = 256;

/// Resolves every lock below the safe point, in all tables. Returns the first lock whose owner
/// is alive, if there is one.
pub(super) async fn sweep_locks(
    shared: &Shared,
    safe_point: Timestamp,
    pace: &mut Pace,
    counts: &mut GcCounts,
) -> Result<Option<LockView>> {
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        if let Some(alive) = sweep_table(shared, &table, safe_point, pace, counts).await? {
            return Ok(Some(alive));
        }
    }
    Ok(None)
}

async fn sweep_table(
    shared: &Shared,
    table: &Table,
    safe_point: Timestamp,
    pace: &mut Pace,
    counts: &mut GcCounts,
) -> Result<Option<LockView>> {
    let below = TimeRange::below(safe_point);
    let select = Selection::default().family(LOCK, below, u32::MAX);
    let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.store().scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        for row in &page.rows {
            // Resolving a lock also removes the transaction's other locks in the row.
            let mut gone = BTreeSet::new();
            for cell in &row.cells {
                if !gone.contains(&cell.timestamp) {
                    let met = FoundLock::decode(table, &row.key, cell)?;
                    if resolve(shared, &met).await? == Resolved::Alive {
                        return crate::resolve::inspect::view(table, &row.key, cell).map(Some);
                    }
                    gone.insert(cell.timestamp);
                }
                counts.locks += 1;
            }
        }
        left = page.resume;
        pace.pause(shared).await;
    }
    Ok(None)
}

//! Drops stale notifications that lie in a table of their own. If they lie in the row,
//! [`collect`](super::collect) drops them.
//!
//! Collection reads the notifications first. After that, it reads each notified cell at the
//! highest timestamp, together with its locks. A transaction locks its cells before it
//! notifies. So the second read finds the lock, or the cell as it is after the lock was
//! removed. Notifications of locked cells, of dirty cells and for weak observers stay.

use bigtable::{ConditionalMutation, Mutation, PageLimit, Row, RowRange, Selection, TimeRange};

use crate::gc::collect::{Bounds, is_clean};
use crate::gc::pace::Pace;
use crate::gc::report::GcCounts;
use crate::records::layout::NOTIFY;
use crate::shared::Shared;
use crate::txn::limits::in_requests;
use crate::{Column, Result, Table};

/// Most rows of one page.
const PAGE_ROWS: usize = 256;

/// Drops notifications below the safe point whose cells are not dirty.
pub(super) async fn collect_notifications(
    shared: &Shared,
    table: &Table,
    bounds: &Bounds,
    pace: &mut Pace,
    counts: &mut GcCounts,
) -> Result<()> {
    let below = TimeRange::below(bounds.safe_point);
    let select = Selection::default().family(NOTIFY, below, u32::MAX);
    let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.notify_store().scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        let mut requests = Vec::new();
        for found in &page.rows {
            requests.extend(drop_stale(shared, table, found, bounds, counts).await?);
        }
        for result in table.notify_store().check_and_mutate_rows(requests).await {
            result?;
        }
        left = page.resume;
        pace.pause(shared).await;
    }
    Ok(())
}

/// Builds the requests that drop a row's stale notifications, exactly the versions that were
/// seen.
async fn drop_stale(
    shared: &Shared,
    table: &Table,
    found: &Row,
    bounds: &Bounds,
    counts: &mut GcCounts,
) -> Result<Vec<ConditionalMutation>> {
    let row = table.notified_row(&found.key)?;
    let mut otherwise = Vec::new();
    for versions in found.cells.chunk_by(|a, b| a.qualifier == b.qualifier) {
        let column = Column::from_stored(versions[0].qualifier.clone());
        if !is_clean(shared, table, &row, &column, bounds).await? {
            continue;
        }
        counts.cells += 1;
        counts.notifications += versions.len() as u64;
        otherwise.extend(versions.iter().map(|version| {
            Mutation::delete(NOTIFY, column.to_bytes(), TimeRange::at(version.timestamp))
        }));
    }
    Ok(in_requests(&shared.limits(), &found.key, otherwise))
}

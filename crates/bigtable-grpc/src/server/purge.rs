//! Removes the cells of many rows, for dropped families and ranges of rows. It works page by
//! page, and deletes each row's cells in one step.

use std::collections::BTreeSet;

use bigtable::TimeRange;
use bigtable::{Bytes, Family, Mutation, PageLimit, Result, Row, RowRange, Selection, Table};
use bigtable_fjall::{FjallTable, RowEdit};

use super::layout;
use super::schema::FamilyRecord;

/// Most rows and bytes of one page.
pub(super) const PAGE: PageLimit = PageLimit { rows_max: 512, bytes_max: 2 << 20 };

/// Removes the cells of dropped families.
pub(crate) async fn families(table: &FjallTable, dead: &[FamilyRecord]) -> Result<()> {
    let engine: BTreeSet<Family> = dead.iter().map(|f| layout::engine_family(&f.name)).collect();
    let select = layout::whole(engine);
    let numbers: BTreeSet<u32> = dead.iter().map(|family| family.number).collect();
    let is_dead = |qualifier: &Bytes| {
        layout::split_qualifier(qualifier).is_some_and(|(number, _)| numbers.contains(&number))
    };
    remove(table, RowRange::all(), &select, is_dead).await
}

/// Removes the rows of a range, in the state in which the purge reaches each.
pub(crate) async fn rows(table: &FjallTable, range: RowRange) -> Result<()> {
    remove(table, range, &layout::everything(), |_| true).await
}

async fn remove(
    table: &FjallTable,
    range: RowRange,
    select: &Selection,
    goes: impl Fn(&Bytes) -> bool,
) -> Result<()> {
    let mut next = Some(range);
    while let Some(range) = next {
        let mut page = table.scan(&range, select, PAGE).await?;
        let mut edits = Vec::with_capacity(page.rows.len());
        for row in &mut page.rows {
            row.cells.retain(|cell| goes(&cell.qualifier));
            let deletes = deletes(row);
            if !deletes.is_empty() {
                let decide = move |_| deletes.clone();
                edits.push(RowEdit::new(&row.key, Selection::default(), decide));
            }
        }
        for result in table.edit_rows(edits).await {
            result?;
        }
        next = page.resume;
        // Yields, so that other tasks run during a long purge.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The mutations that delete the cells of a row.
pub(crate) fn deletes(row: &Row) -> Vec<Mutation> {
    let mut deletes: Vec<Mutation> = Vec::with_capacity(row.cells.len());
    let mut whole: Option<(&Family, &Bytes)> = None;
    for cell in &row.cells {
        let column = (&cell.family, &cell.qualifier);
        let time = if layout::deletes_whole_columns(&cell.family) {
            if whole == Some(column) {
                continue;
            }
            whole = Some(column);
            TimeRange::ALL
        } else {
            TimeRange::at(cell.timestamp)
        };
        deletes.push(Mutation::delete(cell.family.clone(), cell.qualifier.clone(), time));
    }
    deletes
}

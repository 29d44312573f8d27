//! Finding dirty cells by scanning (paper section 2.4).
//!
//! A pass begins at a random tablet and goes around all of them. In each tablet it begins at a
//! random place and goes around too: first from there to the tablet's end, then from its beginning
//! (H61). A worker that meets another one on a row jumps to a new random place, so that scanners do
//! not clump behind a slow one. A pass leaves cells for which a hint waits to the worker that takes
//! the hint.
//!
//! While hints wait, a pass looks at a few pages only, and the next one goes on behind them: the
//! worker that takes it takes over the rest of the round.

use std::collections::VecDeque;
use std::ops::Bound;
use std::time::Duration;

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange};

use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::observe::elsewhere::rests;
use crate::observe::handle::{Visit, visit};
use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::{Column, Result};

/// Most rows of one page of a notification scan. While its rows are visited one after the other,
/// other workers visit some of them: the larger a page, the more of it is out of date at its end.
const PAGE_ROWS: usize = 64;
/// How many pages of a table one pass looks at while hints wait: most of what they list has a hint,
/// and is skipped.
const PAGES_BUSY: usize = 16;
/// How often one pass jumps away from other workers before it ends.
const JUMPS_MAX: u32 = 4;
/// How many tablets one pass looks at, so that idle workers of a huge table stay quiet.
const TABLETS_MAX: usize = 64;
/// How long a table's tablets are believed to be what they were. They say where to begin, and
/// always cover the whole table; where they are out of date, scanners share the work less evenly.
const TABLETS_EVERY: Duration = Duration::from_secs(30);
/// How many places a scanner remembers to begin at.
const PLACES_MAX: usize = 64;

/// A look at the first page of a range.
struct Walked {
    /// Whether another worker is at one of its rows, so that others were not visited.
    met: bool,
    /// Its rows.
    page: RowRange,
    /// Whether the store has found nothing as far as it looked at once.
    was_empty: bool,
    /// Those of the range behind it.
    rest: Option<RowRange>,
}

/// Where a scanner has found dirty rows: places to begin the next pass at.
#[derive(Debug, Default)]
pub(super) struct Places {
    rows: VecDeque<RowKey>,
}

/// One pass over each table with observed columns. Returns whether anything was dirty.
pub(super) async fn pass(context: &Context, places: &mut Places) -> Result<bool> {
    let mut found = false;
    if !context.elsewhere.is_empty() || context.shared.known_schema().pauses() {
        // Workers that have nothing to do ask for no timestamp, and learn of no change with
        // one.
        context.shared.learn_schema().await?;
    }
    let mut tables = context.scanned_tables();
    let first = context.random_below(tables.len().max(1));
    tables.rotate_left(first);
    for (table, columns) in tables {
        let mut jumps = 0;
        while !pass_table(context, &table, &columns, places, &mut found).await? {
            jumps += 1;
            context.shared.counters().jumps.bump();
            if jumps >= JUMPS_MAX {
                break;
            }
        }
        if context.is_stopping() {
            break;
        }
    }
    Ok(found)
}

/// One pass over a table's tablets; `false` when it met another worker.
async fn pass_table(
    context: &Context,
    table: &Table,
    columns: &[Column],
    places: &mut Places,
    found: &mut bool,
) -> Result<bool> {
    let mut tablets = tablets(context, table).await?;
    let first = context.random_below(tablets.len().max(1));
    tablets.rotate_left(first);
    let mut select = Selection::default();
    for column in columns {
        select = select.column(NOTIFY, column.to_bytes(), TimeRange::ALL, 1);
    }
    tablets.truncate(TABLETS_MAX);
    let around = || tablets.iter().flat_map(|tablet| around(context, table, tablet, places));
    if !context.hints.is_empty() {
        if !context.unwalked().contains_key(table.name()) {
            context.unwalked().insert(table.name().to_owned(), around().collect());
        }
        return pass_some(context, table, &select, places, found).await;
    }
    // There is time for the whole table.
    context.unwalked().remove(table.name());
    let mut ranges: VecDeque<RowRange> = around().collect();
    while let Some(range) = ranges.pop_front()
        && !context.is_stopping()
    {
        let Walked { met, rest, .. } =
            pass_page(context, table, &select, range, places, found).await?;
        if met {
            return Ok(false);
        }
        rest.into_iter().for_each(|rest| ranges.push_front(rest));
    }
    Ok(true)
}

/// Visits a few pages of the round that the busy workers share; `false` when it met another
/// worker. The round keeps each page that this pass did not visit to its end.
async fn pass_some(
    context: &Context,
    table: &Table,
    select: &Selection,
    places: &mut Places,
    found: &mut bool,
) -> Result<bool> {
    for _ in 0..PAGES_BUSY {
        let next = context.unwalked().get_mut(table.name()).and_then(VecDeque::pop_front);
        let Some(range) = next.filter(|_| !context.is_stopping()) else {
            // The round has ended, but for what other workers are at.
            context.unwalked().remove(table.name());
            break;
        };
        let walked = pass_page(context, table, select, range.clone(), places, found).await;
        let mut unwalked = context.unwalked();
        let left = unwalked.entry(table.name().to_owned()).or_default();
        match walked {
            Ok(Walked { met: false, rest, was_empty, .. }) => {
                let is_costly = was_empty && rest.is_some();
                rest.into_iter().for_each(|rest| left.push_front(rest));
                // The store has gone through a great many cells of other columns.
                if is_costly {
                    break;
                }
            }
            // The page's turn comes again when all else has had its own.
            Ok(Walked { page, rest, .. }) => {
                left.extend(rest.into_iter().chain([page]));
                return Ok(false);
            }
            Err(error) => {
                left.push_front(range);
                return Err(error);
            }
        }
    }
    if off(mutants::FORGETS_THE_REST) {
        context.unwalked().remove(table.name());
    }
    Ok(true)
}

/// The table's tablets, as they were a while ago.
async fn tablets(context: &Context, table: &Table) -> Result<Vec<RowRange>> {
    let now = context.runtime().now();
    if let Some((until, known)) = context.known_tablets().get(table.name())
        && now < *until
    {
        return Ok(known.clone());
    }
    let tablets = table.notify_store().tablets().await?;
    let known = (now + TABLETS_EVERY, tablets.clone());
    context.known_tablets().insert(table.name().to_owned(), known);
    Ok(tablets)
}

/// Visits the dirty rows of a range's first page.
async fn pass_page(
    context: &Context,
    table: &Table,
    select: &Selection,
    range: RowRange,
    places: &mut Places,
    found: &mut bool,
) -> Result<Walked> {
    let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
    let mut page = table.notify_store().scan(&range, select, limit).await?;
    context.shared.take_turn(page.rows.len()).await;
    let rest = page.resume.take();
    let mut visited = range;
    if let Some(rest) = &rest
        && let Bound::Excluded(row) = &rest.start
    {
        places.remember(row.clone());
        visited.end = Bound::Included(row.clone());
    }
    let (mut met, was_empty) = (false, page.rows.is_empty());
    // Not all from the first dirty row on, where they would only meet one another.
    let first = context.random_below(page.rows.len().max(1));
    page.rows.rotate_left(first);
    for row in &page.rows {
        met = !visit_row(context, table, row, found).await?;
        if met || context.is_stopping() {
            break;
        }
    }
    Ok(Walked { met, page: visited, was_empty, rest })
}

/// Visits the dirty cells of a row; `false` when another worker is there.
async fn visit_row(
    context: &Context,
    table: &Table,
    row: &bigtable::Row,
    found: &mut bool,
) -> Result<bool> {
    let notified = table.notified_row(&row.key)?;
    for cell in &row.cells {
        let column = Column::from_stored(cell.qualifier.clone());
        let found_at = cell.timestamp;
        let cell = Cell { table: table.clone(), row: notified.clone(), column };
        if rests(context, &cell, found_at) {
            continue;
        }
        *found = true;
        context.stir();
        if context.hints.is_waiting(&cell) {
            continue;
        }
        // Its observer has as many runs as it may.
        let Some(_run) = context.hints.enter(&cell) else { continue };
        if visit(context, &cell, None).await? == Visit::Met && context.options.jump {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The tablet from a random place around to it again.
fn around(context: &Context, table: &Table, tablet: &RowRange, places: &Places) -> Vec<RowRange> {
    let random = table.random_place(|| context.runtime().random());
    let inside = places.rows.iter().chain(&random).filter(|row| tablet.contains(row));
    let inside: Vec<&RowKey> = inside.collect();
    // One more than there are: the tablet's own beginning is a place too.
    match inside.get(context.random_below(inside.len() + 1)) {
        Some(row) => {
            let row = (*row).clone();
            let end = Bound::Included(row.clone());
            vec![tablet.after(row), RowRange { start: tablet.start.clone(), end }]
        }
        None => vec![tablet.clone()],
    }
}

impl Places {
    fn remember(&mut self, row: RowKey) {
        if self.rows.contains(&row) {
            return;
        }
        if self.rows.len() >= PLACES_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }
}

//! Finds dirty cells by scanning (paper section 2.4).
//!
//! A pass begins at a random tablet and visits the tablets of a table in a circle, at most 64
//! of them. In each tablet it draws a place at random. It scans from there to the tablet's end,
//! then from the tablet's beginning to that place. It draws among these places:
//!
//! * the tablet's beginning,
//! * the rows of the tablet at which the scanner's earlier pages ended,
//! * a random shard, if notifications are in a table of their own.
//!
//! A scanner that finds another worker at a row jumps to a new random place. So scanners do not
//! clump behind a slow one (H61). A pass skips cells for which a hint waits: the worker that takes
//! the hint visits them. Where runs wait for the disk together, a pass leaves hints.
//!
//! While hints wait, a pass reads a few pages only. The pages that it has not read stay in a
//! list that all workers share, and the next pass, by any worker, continues there. While hints
//! wait, no page may be lost from that list: a cell without a hint is found by scanning only. A
//! pass without waiting hints drops the list and scans the table anew.

use std::collections::VecDeque;
use std::ops::Bound;
use std::time::Duration;

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange, Timestamp};

use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::observe::elsewhere::rests;
use crate::observe::handle::{Known, Visit, concerns, visit};
use crate::observe::hints::Hint;
use crate::observe::notified::notifications_of;
use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::{Column, Result};

/// Most rows of one page of a notification scan. A scanner visits the rows of a page one after
/// the other, and meanwhile other workers handle some of them. The larger the page, the more
/// of its end is out of date.
const PAGE_ROWS: usize = 64;
/// How many notifications of a page a scanner reads again at most at a time, from a store behind a
/// network. Other workers handle many cells of a page while it is visited, and such cells are
/// passed over quickly. After a cell that was still notified, the scanner reads the next one alone:
/// that visit has taken time.
const READ_AGAIN: usize = 8;
/// How many pages of a table one pass reads while hints wait. Most cells on these pages have a
/// hint and are skipped.
const PAGES_BUSY: usize = 16;
/// How often one pass jumps away from other workers before it gives up the table.
const JUMPS_MAX: u32 = 4;
/// How many tablets one pass scans, so that idle workers of a huge table send few requests.
const TABLETS_MAX: usize = 64;
/// How long a list of tablets is used before it is read again. The list only chooses where
/// scans begin, and always covers the whole table. With an old list scanners share the work
/// less evenly.
const TABLETS_EVERY: Duration = Duration::from_secs(30);
/// How many rows a scanner remembers as places to begin at.
const PLACES_MAX: usize = 64;

/// The outcome of scanning the first page of a range.
struct Walked {
    /// Whether another worker was at one of the page's rows. The rows after it were not
    /// visited.
    met: bool,
    /// The range that the page covers.
    page: RowRange,
    /// Whether the page has no rows. It may still have a `rest`: a scan ends after many cells
    /// of other columns.
    was_empty: bool,
    /// The part of the range behind the page.
    rest: Option<RowRange>,
}

/// Rows at which a scanner's pages have ended: places to begin the next pass at.
#[derive(Debug, Default)]
pub(super) struct Places {
    rows: VecDeque<RowKey>,
}

/// One pass over each table with observed columns. Returns whether anything was dirty.
pub(super) async fn pass(context: &Context, places: &mut Places) -> Result<bool> {
    let mut found = false;
    if !context.elsewhere.is_empty() || context.shared.known_schema().pauses() {
        // Idle workers take no timestamps, and a new schema is announced with a timestamp. So
        // they ask for the schema here, to learn of retired and resumed observers.
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

/// Passes once over a table's tablets. Returns `false` if the pass found another worker at a
/// row.
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
    // No hints wait, so there is time for the whole table.
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

/// Visits a few pages of the round that the busy workers share. Returns `false` if another
/// worker was at a row. A page that was not visited to its end stays in the round.
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
            // The round ends here, except for pages that other workers are scanning.
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
                // An empty page with a rest: the store has read very many cells of other
                // columns.
                if is_costly {
                    break;
                }
            }
            // Another worker is at this page: it goes to the end of the round.
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

/// The table's tablets, from a list that is at most [`TABLETS_EVERY`] old.
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

/// Visits the dirty rows on a range's first page.
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
    let was_empty = page.rows.is_empty();
    // Begin at a random row: workers that all begin at the first one would find one another at
    // each row.
    let first = context.random_below(page.rows.len().max(1));
    page.rows.rotate_left(first);
    let cells = dirty_cells(context, table, &page.rows);
    if !cells.is_empty() {
        *found = true;
        context.stir();
    }
    let met = !visit_cells(context, &cells).await?;
    Ok(Walked { met, page: visited, was_empty, rest })
}

/// A notified cell, and the newest version of its notification that the scan has found.
struct Dirty {
    cell: Cell,
    found: Timestamp,
}

/// The cells of a page that do not rest.
fn dirty_cells(context: &Context, table: &Table, rows: &[bigtable::Row]) -> Vec<Dirty> {
    let mut dirty = Vec::new();
    for row in rows {
        let notified = match table.notified_row(&row.key) {
            Ok(notified) => notified,
            Err(error) => {
                context.report(&error);
                continue;
            }
        };
        for found in &row.cells {
            let column = Column::from_stored(found.qualifier.clone());
            let cell = Cell { table: table.clone(), row: notified.clone(), column };
            if !rests(context, &cell, found.timestamp) {
                dirty.push(Dirty { cell, found: found.timestamp });
            }
        }
    }
    dirty
}

/// Whether a scanner should visit a cell now.
fn is_due(context: &Context, Dirty { cell, found }: &Dirty) -> bool {
    concerns(context, cell) && !context.hints.is_waiting(cell) && !rests(context, cell, *found)
}

/// Leaves a cell to the workers that follow hints, if their runs wait for the disk together. A
/// scanner visits one cell after the other, and each visit would wait alone. Returns `false` if the
/// scanner should visit the cell: enough hints wait, or visits fail.
fn leave_to_hints(context: &Context, cell: &Cell) -> bool {
    let hint = || Hint { cell: cell.clone(), at: None, found: true };
    context.may_leave_to_hints() && context.hints.push(&hint())
}

/// Visits dirty cells, except those whose hint waits. Returns `false` if another worker is at a
/// row.
async fn visit_cells(context: &Context, dirty: &[Dirty]) -> Result<bool> {
    let at_most = if context.shared.services().store.commits_rows() { 1 } else { READ_AGAIN };
    let (mut next, mut at_once) = (0, 1);
    while next < dirty.len() && !context.is_stopping() {
        let begin = next;
        next = dirty.len().min(begin + at_once);
        at_once = at_most.min(2 * at_once);
        // A column that has as many runs as it may have is passed over without a read.
        let is_free = |n: &usize| context.hints.enter(&dirty[*n].cell).is_some();
        let due = |n: &usize| is_due(context, &dirty[*n]);
        let due = (begin..next).filter(due).filter(|n| !leave_to_hints(context, &dirty[*n].cell));
        let due: Vec<usize> = due.filter(is_free).collect();
        let cells: Vec<Cell> = due.iter().map(|n| dirty[*n].cell.clone()).collect();
        for (n, seen) in due.into_iter().zip(notifications_of(&cells).await?) {
            let cell = &dirty[n].cell;
            context.stir();
            if !is_due(context, &dirty[n]) {
                continue;
            }
            let Some(run) = context.hints.enter(cell) else { continue };
            let was_notified = !seen.is_empty();
            let visited = visit(context, cell, Known::Read(seen), &run).await;
            context.visited(visited.is_ok());
            if visited? == Visit::Met {
                return Ok(false);
            }
            if was_notified {
                // The readings of the cells behind it are out of date.
                (next, at_once) = (n + 1, 1);
                break;
            }
        }
    }
    Ok(true)
}

/// The tablet as ranges from a random place to its end, and from its beginning to that place.
fn around(context: &Context, table: &Table, tablet: &RowRange, places: &Places) -> Vec<RowRange> {
    let random = table.random_place(|| context.runtime().random());
    let inside = places.rows.iter().chain(&random).filter(|row| tablet.contains(row));
    let inside: Vec<&RowKey> = inside.collect();
    // One choice more than places: the tablet's own beginning.
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

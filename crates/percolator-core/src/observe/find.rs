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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange};

use crate::mutants::{self, off};
use crate::observe::handle::Visit;
use crate::observe::workers::Context;
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

/// The tablets of each scanned table, by its name, and until when they are believed.
pub(super) type Tablets = BTreeMap<String, (Duration, Vec<RowRange>)>;

/// Of each table, by its name, what the passes of busy workers have left of their round.
pub(super) type Unwalked = BTreeMap<String, VecDeque<RowRange>>;

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

impl Context {
    /// One pass over each table with observed columns. Returns whether anything was dirty.
    pub(super) async fn pass(&self, places: &mut Places) -> Result<bool> {
        let mut found = false;
        if !self.elsewhere.is_empty() {
            // Workers that have nothing to do ask for no timestamp, and learn of no change with
            // one.
            self.client.learn_schema().await?;
        }
        let mut tables = self.scanned_tables();
        let first = self.random_below(tables.len().max(1));
        tables.rotate_left(first);
        for (table, columns) in tables {
            let mut jumps = 0;
            while !self.pass_table(&table, &columns, places, &mut found).await? {
                jumps += 1;
                self.client.counters().jumps.bump();
                if jumps >= JUMPS_MAX {
                    break;
                }
            }
            if self.is_stopping() {
                break;
            }
        }
        Ok(found)
    }

    /// One pass over a table's tablets; `false` when it met another worker.
    async fn pass_table(
        &self,
        table: &Table,
        columns: &[Column],
        places: &mut Places,
        found: &mut bool,
    ) -> Result<bool> {
        let mut tablets = self.tablets(table).await?;
        let first = self.random_below(tablets.len().max(1));
        tablets.rotate_left(first);
        let mut select = Selection::default();
        for column in columns {
            select = select.column(NOTIFY, column.to_bytes(), TimeRange::ALL, 1);
        }
        if off(mutants::SCANS_ONE_TABLET) {
            tablets.sort_by(|a, b| format!("{a:?}").cmp(&format!("{b:?}")));
            tablets.truncate(1);
        }
        tablets.truncate(TABLETS_MAX);
        let around = || tablets.iter().flat_map(|tablet| self.around(table, tablet, places));
        if !self.hints.is_empty() {
            if !self.unwalked().contains_key(table.name()) {
                self.unwalked().insert(table.name().to_owned(), around().collect());
            }
            return self.pass_some(table, &select, places, found).await;
        }
        // There is time for the whole table.
        self.unwalked().remove(table.name());
        let mut ranges: VecDeque<RowRange> = around().collect();
        while let Some(range) = ranges.pop_front()
            && !self.is_stopping()
        {
            let Walked { met, rest, .. } =
                self.pass_page(table, &select, range, places, found).await?;
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
        &self,
        table: &Table,
        select: &Selection,
        places: &mut Places,
        found: &mut bool,
    ) -> Result<bool> {
        for _ in 0..PAGES_BUSY {
            let next = self.unwalked().get_mut(table.name()).and_then(VecDeque::pop_front);
            let Some(range) = next.filter(|_| !self.is_stopping()) else {
                // The round has ended, but for what other workers are at.
                self.unwalked().remove(table.name());
                break;
            };
            let walked = self.pass_page(table, select, range.clone(), places, found).await;
            let mut unwalked = self.unwalked();
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
            self.unwalked().remove(table.name());
        }
        Ok(true)
    }

    /// The table's tablets, as they were a while ago.
    async fn tablets(&self, table: &Table) -> Result<Vec<RowRange>> {
        let now = self.runtime().now();
        if let Some((until, known)) = self.known_tablets().get(table.name())
            && now < *until
        {
            return Ok(known.clone());
        }
        let tablets = table.notify_store().tablets().await?;
        let known = (now + TABLETS_EVERY, tablets.clone());
        self.known_tablets().insert(table.name().to_owned(), known);
        Ok(tablets)
    }

    /// Visits the dirty rows of a range's first page.
    async fn pass_page(
        &self,
        table: &Table,
        select: &Selection,
        range: RowRange,
        places: &mut Places,
        found: &mut bool,
    ) -> Result<Walked> {
        let limit = PageLimit { rows_max: PAGE_ROWS, ..PageLimit::default() };
        let mut page = table.notify_store().scan(&range, select, limit).await?;
        self.client.take_turn(page.rows.len()).await;
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
        let first = self.random_below(page.rows.len().max(1));
        page.rows.rotate_left(first);
        for row in &page.rows {
            met = !self.visit_row(table, row, found).await?;
            if met || self.is_stopping() {
                break;
            }
        }
        Ok(Walked { met, page: visited, was_empty, rest })
    }

    /// Visits the dirty cells of a row; `false` when another worker is there.
    async fn visit_row(
        &self,
        table: &Table,
        row: &bigtable::Row,
        found: &mut bool,
    ) -> Result<bool> {
        let notified = table.notified_row(&row.key)?;
        for cell in &row.cells {
            let column = Column::from_stored(cell.qualifier.clone());
            let found_at = cell.timestamp;
            let cell = Cell { table: table.clone(), row: notified.clone(), column };
            if self.rests(&cell, found_at) {
                continue;
            }
            *found = true;
            self.stir();
            if self.hints.is_waiting(&cell) {
                continue;
            }
            // Its observer has as many runs as it may.
            let Some(_run) = self.hints.enter(&cell) else { continue };
            if self.visit(&cell, None).await? == Visit::Met && self.options.jump {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The tablet from a random place around to it again.
    fn around(&self, table: &Table, tablet: &RowRange, places: &Places) -> Vec<RowRange> {
        let random = table.random_place(|| self.runtime().random());
        let inside = places.rows.iter().chain(&random).filter(|row| tablet.contains(row));
        let inside: Vec<&RowKey> = inside.collect();
        // One more than there are: the tablet's own beginning is a place too.
        match inside.get(self.random_below(inside.len() + 1)) {
            Some(row) => {
                let row = (*row).clone();
                let end = Bound::Included(row.clone());
                vec![tablet.after(row), RowRange { start: tablet.start.clone(), end }]
            }
            None => vec![tablet.clone()],
        }
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

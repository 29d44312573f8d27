//! Finding dirty cells by scanning (paper section 2.4).
//!
//! A pass begins at a random tablet and goes around all of them; each it begins at a random place and
//! goes around: first from there to the tablet's end, then from its beginning (H61). Whoever meets another worker on a row jumps to a new
//! random place, so that scanners do not clump behind a slow one. Cells for which a hint waits are
//! left to whoever takes the hint.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange};

use crate::column::{Cell, Table};
use crate::layout::NOTIFY;
use crate::mutants::{self, off};
use crate::observe::handle::Visit;
use crate::observe::workers::Context;
use crate::{Column, Result};

/// Most rows of one page of a notification scan. While its rows are visited one after the other, other workers
/// visit some of them: the larger a page, the more of it is out of date at its end.
const PAGE_ROWS: usize = 64;
/// How many pages of a table one pass looks at while hints wait. The next pass goes on behind them.
const PAGES_BUSY: usize = 4;
/// How often one pass jumps away from other workers before it ends.
const JUMPS_MAX: u32 = 4;
/// How many tablets one pass looks at, so that idle workers of a huge table stay quiet.
const TABLETS_MAX: usize = 64;
/// How long a table's tablets are believed to be what they were. They say where to begin, and always cover the whole
/// table; where they are out of date, scanners share the work less evenly.
const TABLETS_EVERY: Duration = Duration::from_secs(30);
/// How many places a scanner remembers to begin at.
const PLACES_MAX: usize = 64;

/// The tablets of each scanned table, by its name, and until when they are believed.
pub(super) type Tablets = BTreeMap<String, (Duration, Vec<RowRange>)>;

/// Of each table the ranges that the last pass has left, because hints waited.
pub(super) type Unwalked = BTreeMap<String, VecDeque<RowRange>>;

/// How a look at one page ended.
enum Walked {
    /// Another worker is at one of its rows.
    Met,
    /// All of it was visited; this is left of its range.
    Upto(Option<RowRange>),
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
        let all = || {
            let tablets = tablets.iter().take(TABLETS_MAX);
            tablets.flat_map(|tablet| self.around(table, tablet, places)).collect()
        };
        let busy = !self.hints.is_empty();
        // Without hints there is time for the whole table.
        let left = self.unwalked().remove(table.name()).filter(|_| busy);
        let mut ranges: VecDeque<RowRange> = left.unwrap_or_else(all);
        let mut pages_left = if busy { PAGES_BUSY } else { usize::MAX };
        while let Some(range) = ranges.pop_front()
            && !self.is_stopping()
        {
            if pages_left == 0 {
                ranges.push_front(range);
                if !off(mutants::FORGETS_THE_REST) {
                    self.unwalked().insert(table.name().to_owned(), ranges);
                }
                break;
            }
            pages_left -= 1;
            match self.pass_page(table, &select, range, places, found).await? {
                Walked::Met => return Ok(false),
                Walked::Upto(Some(rest)) => ranges.push_front(rest),
                Walked::Upto(None) => {}
            }
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

    /// Visits the dirty rows of a range's first page. Returns the rest of the range.
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
        if let Some(resume) = &page.resume
            && let std::ops::Bound::Excluded(row) = &resume.start
        {
            places.remember(row.clone());
        }
        // Not all from the first dirty row on, where they would only meet one another.
        let first = self.random_below(page.rows.len().max(1));
        page.rows.rotate_left(first);
        for row in &page.rows {
            *found = true;
            self.stir();
            if !self.visit_row(table, row).await? {
                return Ok(Walked::Met);
            }
            if self.is_stopping() {
                break;
            }
        }
        Ok(Walked::Upto(page.resume))
    }

    /// Visits the dirty cells of a row; `false` when another worker is there.
    async fn visit_row(&self, table: &Table, row: &bigtable::Row) -> Result<bool> {
        let notified = table.notified_row(&row.key)?;
        for cell in &row.cells {
            let column = Column::from_stored(cell.qualifier.clone());
            let cell = Cell { table: table.clone(), row: notified.clone(), column };
            if self.hints.is_waiting(&cell) {
                continue;
            }
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
                let end = std::ops::Bound::Included(row.clone());
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

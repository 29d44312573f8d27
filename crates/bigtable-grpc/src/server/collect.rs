//! Applies the garbage collection rules of tables in the background.
//!
//! A round visits every table with rules, page by page, and deletes the cells that the rules
//! remove. Collection is lazy, as in Google's service: until its round has come, a cell that a
//! rule removes is still read, and counts in filters.
//!
//! Invariants:
//!
//! * The page holds the table's schema, so a rule that a client has removed or changed deletes
//!   nothing after the client's answer.
//! * The decision about a row falls in the row's edit. A client may have deleted newer versions
//!   since the page was read, or may have written an old version again.
//! * Tables of Percolator are skipped, even if they have rules.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Bytes, Family, Mutation, Result, Row, RowRange, Selection};
use bigtable::{Table as _, TimeRange, Timestamp};
use bigtable_fjall::{FjallTable, RowEdit};
use tokio::time::Instant;

use super::layout::{self, COLUMNS_MAX};
use super::mutate::now;
use super::purge::PAGE;
use super::rules::{Rule, is_percolators};
use super::schema::Schema;
use super::tables::{Served, Tables};

/// Shortest time between two rounds.
pub(crate) const COLLECT_EVERY: Duration = Duration::from_secs(60);
/// After a round, the collector rests for so many times as long as the round took. So rounds
/// need one hundredth of the time at most, however large the tables are.
const REST_FACTOR: u32 = 100;

/// Collects until the future is dropped.
pub(crate) async fn follow(tables: Arc<Tables>) -> Infallible {
    let mut rest = COLLECT_EVERY;
    loop {
        tokio::time::sleep(rest).await;
        let began = Instant::now();
        round(&tables, now()).await;
        rest = began.elapsed().saturating_mul(REST_FACTOR).max(COLLECT_EVERY);
    }
}

/// Applies all rules once, as of the time `now`. A table that fails is left to the next round.
pub(crate) async fn round(tables: &Tables, now: Timestamp) {
    for served in tables.all().await {
        let collected = collect(&served, now).await;
        let name = &served.schema().await.record.name;
        match collected {
            Ok(0) => {}
            Ok(columns) => tracing::debug!(
                target: "percolator::store", event = "gc_rules", table = %name, columns,
                "garbage collection rules removed versions"
            ),
            Err(error) => tracing::warn!(
                target: "percolator::store", event = "gc_rules_failed", table = %name, %error,
                "garbage collection rules were not applied; the next round tries again"
            ),
        }
    }
}

/// Applies the rules of one table. Returns in how many columns of rows it deleted versions.
async fn collect(served: &Served, now: Timestamp) -> Result<usize> {
    let mut next = Some(RowRange::all());
    let mut columns = 0;
    while let Some(range) = next {
        // A deleted table has nothing to collect.
        let Ok(held) = served.hold_schema().await else { break };
        let Some(rules) = Rules::of(&held, now)? else { break };
        let (resume, deleted) = page(&served.engine, &range, Arc::new(rules)).await?;
        drop(held);
        columns += deleted;
        next = resume;
        // Yields, so that other tasks run during a long round.
        tokio::task::yield_now().await;
    }
    Ok(columns)
}

/// Applies the rules to one page of rows. Returns the rest of the range.
async fn page(
    table: &FjallTable,
    range: &RowRange,
    rules: Arc<Rules>,
) -> Result<(Option<RowRange>, usize)> {
    let page = table.scan(range, &rules.select, PAGE).await?;
    let (edits, columns) = edits(&page.rows, &rules);
    for result in table.edit_rows(edits).await {
        result?;
    }
    Ok((page.resume, columns))
}

/// The edits of the rows that have something to remove, and the number of their columns.
pub(super) fn edits(rows: &[Row], rules: &Arc<Rules>) -> (Vec<RowEdit>, usize) {
    let mut edits = Vec::new();
    let mut columns = 0;
    for row in rows {
        let old = rules.old(row);
        if old.is_empty() {
            continue;
        }
        columns += old.len();
        let select = if old.len() > COLUMNS_MAX { rules.select.clone() } else { select(old) };
        let rules = rules.clone();
        let decide = move |row: Row| rules.old(&row).into_iter().map(Old::delete).collect();
        edits.push(RowEdit::new(&row.key, select, decide));
    }
    (edits, columns)
}

/// The rules of one table.
#[derive(Debug)]
pub(super) struct Rules {
    /// By the family's number.
    rules: BTreeMap<u32, Rule>,
    /// The engine's families with cells of these families.
    pub(super) select: Selection,
    now: Timestamp,
}

impl Rules {
    /// The rules to apply; `None` if there are none.
    pub(super) fn of(schema: &Schema, now: Timestamp) -> Result<Option<Rules>> {
        if is_percolators(&schema.record) {
            return Ok(None);
        }
        let mut rules = BTreeMap::new();
        let mut engine = BTreeSet::new();
        for family in schema.families().filter(|family| !family.gc_rule.is_empty()) {
            let rule = Rule::decode(&family.gc_rule).map_err(|error| {
                bigtable::Error::invalid(format!(
                    "the rule of family {} is damaged: {error}",
                    family.name
                ))
            })?;
            rules.insert(family.number, rule);
            engine.insert(layout::engine_family(&family.name));
        }
        if rules.is_empty() {
            return Ok(None);
        }
        Ok(Some(Rules { rules, select: layout::whole(engine), now }))
    }

    /// The versions of a row that the rules remove.
    fn old(&self, row: &Row) -> Vec<Old> {
        let columns =
            row.cells.chunk_by(|a, b| (&a.family, &a.qualifier) == (&b.family, &b.qualifier));
        let old = |cells: &[bigtable::Cell]| {
            let first = cells.first()?;
            let (number, _) = layout::split_qualifier(&first.qualifier)?;
            let times: Vec<_> = cells.iter().map(|cell| cell.timestamp).collect();
            let kept = self.rules.get(&number)?.kept(&times, self.now);
            let newest = *times.get(kept)?;
            Some(Old { family: first.family.clone(), qualifier: first.qualifier.clone(), newest })
        };
        columns.filter_map(old).collect()
    }
}

/// The versions of a column that go: this one, and all older ones.
#[derive(Debug)]
struct Old {
    family: Family,
    qualifier: Bytes,
    newest: Timestamp,
}

impl Old {
    fn delete(self) -> Mutation {
        Mutation::delete(self.family, self.qualifier, TimeRange::up_to(self.newest))
    }
}

/// Selects all versions of these columns.
fn select(columns: Vec<Old>) -> Selection {
    let one = |select: Selection, old: Old| {
        select.column(old.family, old.qualifier, TimeRange::ALL, u32::MAX)
    };
    columns.into_iter().fold(Selection::default(), one)
}

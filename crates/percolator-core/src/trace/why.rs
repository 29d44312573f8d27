//! Explains why a cell is as it is. The explanation leads up from a write to the transaction
//! that no observer began. It leads down to everything that the write has set off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bigtable::{RowKey, Timestamp};

use crate::records::schema::Strength;
use crate::resolve::explain::cell_state;
use crate::resolve::inspect::first_acknowledged;
use crate::shared::Shared;
use crate::trace::find::Finder;
use crate::trace::record::{TraceCause, TraceRecord};
use crate::{CellName, CellState, Column, Error, LockFate, Result, Table};

/// The most transactions of an answer, and the most of these that lead to the write.
const NODES_MAX: usize = 500;
const CAUSES_MAX: usize = 200;
/// The most cells that are looked at for acknowledgements.
const LOOKS_MAX: usize = 1_000;
/// The most steps from the write.
const DEPTH_MAX: usize = 32;

/// Why a cell is as it is at a timestamp, as far as the trace shows.
///
/// ```
/// # use percolator_core::face as percolator;
/// # use percolator_core::testing::{VirtualRuntime, client};
/// use percolator::watch::Sampling;
/// use percolator::{Column, Options};
///
/// # let runtime = VirtualRuntime::new(1);
/// # runtime.block_on(async {
/// let options = Options { trace: Sampling::All, ..Options::default() };
/// # let db = client(&runtime, options).await?;
/// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// let set = async |mut tx: percolator::Attempt| tx.set(&accounts, "Bob", &bal, "$3");
/// db.named("transfer").transact(set).await?;
/// // The trace is written half a second after the commit.
/// # db.runtime().sleep(std::time::Duration::from_secs(1)).await;
/// let why = db.why(&accounts, "Bob", &bal, None).await?.unwrap();
/// let record = why.nodes[0].record.as_ref().unwrap();
/// assert_eq!(record.name.as_deref(), Some("transfer"));
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Why {
    /// The cell.
    pub cell: CellName,
    /// The timestamp at which it is looked at.
    pub at: Timestamp,
    /// The write that a reader at that timestamp finds.
    pub write: WhyWrite,
    /// The transactions, in order of their timestamps: at most 500.
    pub nodes: Vec<WhyNode>,
    /// The changes by which one set off another.
    pub edges: Vec<WhyEdge>,
    /// Whether there may be more transactions than are shown.
    pub cut: bool,
}

/// A write.
///
/// See [`Why`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyWrite {
    /// The start timestamp of the transaction that wrote.
    pub start_ts: Timestamp,
    /// Its commit timestamp.
    pub commit_ts: Timestamp,
    /// Whether the write has deleted the cell.
    pub deleted: bool,
}

/// The place of a transaction in an answer.
///
/// See [`Why`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// It led to the write.
    Cause,
    /// It made the write.
    Own,
    /// The write has set it off.
    Effect,
}

impl Side {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Side::Cause => "cause",
            Side::Own => "own",
            Side::Effect => "effect",
        }
    }
}

/// A transaction.
///
/// See [`Why`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyNode {
    /// Its commit timestamp; its start timestamp if it wrote nothing.
    pub ts: Timestamp,
    /// Its place.
    pub side: Side,
    /// How many steps it is away from the write.
    pub depth: usize,
    /// The trace's record of it. `None` if the trace has none.
    pub record: Option<TraceRecord>,
    /// The time from the earliest commit among its causes in this answer until it began. Both
    /// moments are by the clocks of the clients that committed.
    pub delay: Option<Duration>,
}

/// A change by which one transaction has set off another.
///
/// See [`Why`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct WhyEdge {
    /// The transaction that changed the cell.
    pub from: Timestamp,
    /// The observer's transaction.
    pub to: Timestamp,
    /// The cell.
    pub cell: CellName,
}

/// A transaction of an answer as a list shows it.
///
/// See [`Why::lines`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyLine<'w> {
    /// The transaction.
    pub node: &'w WhyNode,
    /// How many steps it stands to the right: the depth in the tree of effects.
    pub indent: usize,
    /// The first change that set it off.
    pub because: Option<&'w CellName>,
}

impl Why {
    /// The causes from the root on, the write's own transaction, and then the tree of what it has
    /// set off.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|db| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
    /// db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// let why = db.why(&accounts, "Bob", &bal, None).await?.unwrap();
    /// assert_eq!((why.lines().len(), why.lines()[0].indent), (1, 0));
    /// # Ok(()) });
    /// ```
    pub fn lines(&self) -> Vec<WhyLine<'_>> {
        let by_ts: BTreeMap<Timestamp, &WhyNode> = self.nodes.iter().map(|n| (n.ts, n)).collect();
        let because = |ts| self.edges.iter().find(|edge| edge.to == ts).map(|edge| &edge.cell);
        let line = |node, indent, ts| WhyLine { node, indent, because: because(ts) };
        let before = self.nodes.iter().filter(|node| node.side != Side::Effect);
        let mut lines: Vec<WhyLine<'_>> = before.map(|node| line(node, 0, node.ts)).collect();
        let mut seen = BTreeSet::new();
        // The last one is next.
        let mut left: Vec<(Timestamp, usize)> = vec![(self.write.commit_ts, 0)];
        while let Some((from, indent)) = left.pop() {
            if let Some(node) = by_ts.get(&from).filter(|node| node.side == Side::Effect) {
                lines.push(line(*node, indent, from));
            }
            let first = left.len();
            for edge in self.edges.iter().filter(|edge| edge.from == from) {
                let is_effect = |node: &&WhyNode| node.side == Side::Effect;
                if by_ts.get(&edge.to).is_some_and(is_effect) && seen.insert(edge.to) {
                    left.push((edge.to, indent + 1));
                }
            }
            left[first..].reverse();
        }
        lines
    }
}

/// Finds out why a cell is as it is. Returns `None` if the cell was not written at or before
/// that timestamp.
pub(crate) async fn why(
    shared: &Shared,
    table: &Table,
    row: impl Into<RowKey>,
    column: &Column,
    at: Option<Timestamp>,
) -> Result<Option<Why>> {
    let state = cell_state(shared, table, row, column).await?;
    let at = at.unwrap_or(state.latest);
    if at > state.latest {
        return Err(Error::NotIssued { asked: at, latest: state.latest });
    }
    if at < state.floor {
        return Err(Error::TooOld { asked: at, floor: state.floor });
    }
    let Some(write) = written(&state, at) else { return Ok(None) };
    let mut walk = Walk::over(shared, state.floor).await?;
    walk.up(write.commit_ts).await?;
    walk.down(write.commit_ts).await?;
    let Walk { nodes, edges, cut, .. } = walk;
    let mut why = Why {
        cell: state.cell,
        at,
        write,
        nodes: nodes.into_values().collect(),
        edges: edges.into_iter().collect(),
        cut,
    };
    why.measure();
    Ok(Some(why))
}

/// The write that a reader finds: the newest write record, or a lock whose transaction has
/// committed.
fn written(state: &CellState, at: Timestamp) -> Option<WhyWrite> {
    let of = state.moments.iter().filter_map(|moment| {
        let write = moment.write.as_ref().map(|write| WhyWrite {
            start_ts: write.start_ts,
            commit_ts: moment.timestamp,
            deleted: write.delete,
        });
        let locked = || {
            let lock = moment.lock.as_ref()?;
            let Some(LockFate::RollForward(commit_ts)) = state.fates.get(&lock.start_ts) else {
                return None;
            };
            let (start_ts, commit_ts) = (lock.start_ts, *commit_ts);
            Some(WhyWrite { start_ts, commit_ts, deleted: lock.delete })
        };
        write.or_else(locked).filter(|write| write.commit_ts <= at)
    });
    of.max_by_key(|write| write.commit_ts)
}

/// A breadth-first walk through the trace.
struct Walk<'s> {
    shared: &'s Shared,
    finder: Finder<'s>,
    /// Acknowledgements below this timestamp may be collected.
    floor: Timestamp,
    nodes: BTreeMap<Timestamp, WhyNode>,
    edges: BTreeSet<WhyEdge>,
    /// How many more cells are looked at for acknowledgements.
    looks_left: usize,
    cut: bool,
}

impl<'s> Walk<'s> {
    async fn over(shared: &'s Shared, floor: Timestamp) -> Result<Self> {
        Ok(Walk {
            shared,
            floor,
            finder: Finder::open(shared).await?,
            nodes: BTreeMap::new(),
            edges: BTreeSet::new(),
            looks_left: LOOKS_MAX,
            cut: false,
        })
    }

    /// Adds a transaction, if there is room. Returns whether it is new.
    async fn add(
        &mut self,
        ts: Timestamp,
        (side, depth): (Side, usize),
        nodes_max: usize,
    ) -> Result<bool> {
        if self.nodes.contains_key(&ts) {
            return Ok(false);
        }
        if self.nodes.len() >= nodes_max || depth > DEPTH_MAX {
            self.cut = true;
            return Ok(false);
        }
        let record = self.finder.transaction(ts).await?.cloned();
        self.nodes.insert(ts, WhyNode { ts, side, depth, record, delay: None });
        Ok(true)
    }

    /// Adds the transaction that made the write, its causes, and all causes of these.
    async fn up(&mut self, own: Timestamp) -> Result<()> {
        self.add(own, (Side::Own, 0), NODES_MAX).await?;
        let mut left = VecDeque::from([(own, 0)]);
        while let Some((to, depth)) = left.pop_front() {
            let record = self.nodes[&to].record.as_ref();
            let causes = record.map_or_else(Vec::new, |record| record.causes.clone());
            for TraceCause { cell, commit_ts: from } in causes {
                if self.add(from, (Side::Cause, depth + 1), CAUSES_MAX).await? {
                    left.push_back((from, depth + 1));
                }
                self.join(from, to, cell);
            }
        }
        Ok(())
    }

    /// Adds the runs that the transaction has set off, and all runs that these have set off.
    async fn down(&mut self, own: Timestamp) -> Result<()> {
        let mut left = VecDeque::from([(own, 0)]);
        while let Some((from, depth)) = left.pop_front() {
            let links = self.finder.set_off_by(from).await?;
            let mut effects: Vec<_> = links.map(|link| (link.effect, link.cell.clone())).collect();
            effects.extend(self.handled_later(from, &effects).await?);
            for (effect, cell) in effects {
                if self.add(effect, (Side::Effect, depth + 1), NODES_MAX).await? {
                    left.push_back((effect, depth + 1));
                }
                self.join(from, effect, cell);
            }
        }
        Ok(())
    }

    /// Finds the runs that handled a transaction's changes together with later changes of the
    /// same cells. Such a run names the later changes as its causes. For each strong observer,
    /// it is the first run that has acknowledged the cell since.
    async fn handled_later(
        &mut self,
        from: Timestamp,
        known: &[(Timestamp, CellName)],
    ) -> Result<Vec<(Timestamp, CellName)>> {
        let mut found = Vec::new();
        let Some(record) = self.nodes[&from].record.as_ref().filter(|_| from >= self.floor) else {
            return Ok(found);
        };
        let schema = self.shared.known_schema();
        for cell in &record.cells {
            let strong = schema.strength(&cell.table, &cell.column) == Some(Strength::Strong);
            if !strong || known.iter().any(|(_, known)| known == cell) {
                continue;
            }
            // A full answer has no room for what would be found.
            if self.looks_left == 0 || self.cut && self.nodes.len() >= NODES_MAX {
                self.cut = true;
                break;
            }
            self.looks_left -= 1;
            let table = self.shared.table(&cell.table).await?;
            let runs = first_acknowledged(&table, &cell.row, &cell.column, &schema, from).await?;
            found.extend(runs.into_iter().map(|effect| (effect, cell.clone())));
        }
        Ok(found)
    }

    fn join(&mut self, from: Timestamp, to: Timestamp, cell: CellName) {
        if self.nodes.contains_key(&from) && self.nodes.contains_key(&to) {
            self.edges.insert(WhyEdge { from, to, cell });
        }
    }
}

impl Why {
    /// Computes how long each transaction waited before it began.
    fn measure(&mut self) {
        let of = |node: &WhyNode| Some((node.ts, node.record.as_ref()?.wall_ms));
        let ended: BTreeMap<Timestamp, u64> = self.nodes.iter().filter_map(of).collect();
        for node in &mut self.nodes {
            let causes = self.edges.iter().filter(|edge| edge.to == node.ts);
            let first = causes.filter_map(|edge| ended.get(&edge.from)).min();
            node.delay = node.record.as_ref().zip(first).map(|(record, first)| {
                let since = Duration::from_millis(record.wall_ms.saturating_sub(*first));
                since.saturating_sub(record.took)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    /// 1 led to 2, which set off 3 and 4. Of these, 3 set off 6, and both set off 5.
    #[test]
    fn a_list_has_the_causes_then_the_write_and_then_a_tree() {
        let node = |n, side| WhyNode { ts: ts(n), side, depth: 0, record: None, delay: None };
        let cell = |row: &str| CellName {
            table: "t".into(),
            row: RowKey::from(row.to_owned()),
            column: Column::literal("f:a"),
        };
        let edge = |from, to, row| WhyEdge { from: ts(from), to: ts(to), cell: cell(row) };
        let sides =
            [Side::Cause, Side::Own, Side::Effect, Side::Effect, Side::Effect, Side::Effect];
        let why = Why {
            cell: cell("r"),
            at: ts(9),
            write: WhyWrite { start_ts: ts(2), commit_ts: ts(2), deleted: false },
            nodes: (1..).zip(sides).map(|(n, side)| node(n, side)).collect(),
            edges: vec![
                edge(1, 2, "a"),
                edge(2, 3, "b"),
                edge(2, 4, "c"),
                edge(3, 5, "d"),
                edge(3, 6, "e"),
                edge(4, 5, "f"),
            ],
            cut: false,
        };
        let lines = why.lines().into_iter().map(|line| {
            let because = line.because.map(|cell| cell.row.to_string());
            (line.node.ts.as_u64(), line.indent, because.unwrap_or_default())
        });
        let expected =
            [(1, 0, ""), (2, 0, "a"), (3, 1, "b"), (5, 2, "d"), (6, 2, "e"), (4, 1, "c")];
        assert_eq!(lines.collect::<Vec<_>>(), expected.map(|(n, i, b)| (n, i, b.to_owned())));
    }
}

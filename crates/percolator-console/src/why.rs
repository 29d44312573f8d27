//! Why a cell is as it is, as the API and `percolator why --json` write it.

use percolator::Timestamp;
use percolator::admin::{CellName, Why, WhyEdge, WhyLine};
use serde::Serialize;
use serde_json::Value;

use crate::cells::{CellDto, cell_dto};

/// Why a cell is as it is.
#[derive(Debug, Serialize)]
pub(crate) struct WhyDto {
    cell: CellDto,
    /// The timestamp of the reader.
    at: u64,
    write: WriteDto,
    /// In the order of a list: causes, the write's own, effects as a tree.
    nodes: Vec<NodeDto>,
    edges: Vec<EdgeDto>,
    /// Whether there are more than are shown.
    cut: bool,
}

/// The write that a reader finds.
#[derive(Debug, Serialize)]
struct WriteDto {
    start_ts: u64,
    commit_ts: u64,
    deleted: bool,
}

/// A transaction.
#[derive(Debug, Serialize)]
struct NodeDto {
    /// Its commit timestamp, or its start timestamp if it wrote nothing.
    ts: u64,
    /// `cause`, `own`, or `effect`.
    side: &'static str,
    depth: usize,
    /// How many steps it stands to the right in a list.
    indent: usize,
    /// The first change that set it off.
    because: Option<CellDto>,
    recorded: bool,
    name: Option<String>,
    start_ts: Option<u64>,
    commit_ts: Option<u64>,
    client: Option<String>,
    /// When it committed, in milliseconds since 1970.
    wall_ms: Option<u64>,
    took_ms: Option<f64>,
    /// From the commit of the first of its causes until it began.
    delay_ms: Option<f64>,
    /// How many changes it handled, cells it wrote, and cells it notified.
    changes: Option<usize>,
    written: Option<usize>,
    notified: Option<usize>,
    /// The first of the cells that it wrote or notified.
    cells: Vec<CellDto>,
}

/// A change by which one transaction has set off another.
#[derive(Debug, Serialize)]
struct EdgeDto {
    from: u64,
    to: u64,
    cell: CellDto,
}

fn cell(name: &CellName) -> CellDto {
    cell_dto(&name.table, &name.row, &name.column)
}

impl From<WhyLine<'_>> for NodeDto {
    fn from(line: WhyLine<'_>) -> Self {
        let node = line.node;
        let record = node.record.as_ref();
        NodeDto {
            ts: node.ts.as_u64(),
            side: node.side.name(),
            depth: node.depth,
            indent: line.indent,
            because: line.because.map(cell),
            recorded: record.is_some(),
            name: record.and_then(|record| record.name.clone()),
            start_ts: record.map(|record| record.start_ts.as_u64()),
            commit_ts: record.map(|record| record.commit_ts.as_u64()),
            client: record.map(|record| record.client.to_string()),
            wall_ms: record.map(|record| record.wall_ms),
            took_ms: record.map(|record| record.took.as_secs_f64() * 1e3),
            delay_ms: node.delay.map(|delay| delay.as_secs_f64() * 1e3),
            changes: record.map(|record| record.causes_total),
            written: record.map(|record| record.written_total),
            notified: record.map(|record| record.notified_total),
            cells: record.map_or_else(Vec::new, |record| record.cells.iter().map(cell).collect()),
        }
    }
}

impl From<&Why> for WhyDto {
    fn from(why: &Why) -> Self {
        let edge = |edge: &WhyEdge| EdgeDto {
            from: edge.from.as_u64(),
            to: edge.to.as_u64(),
            cell: cell(&edge.cell),
        };
        let ts = Timestamp::as_u64;
        WhyDto {
            cell: cell(&why.cell),
            at: ts(why.at),
            write: WriteDto {
                start_ts: ts(why.write.start_ts),
                commit_ts: ts(why.write.commit_ts),
                deleted: why.write.deleted,
            },
            nodes: why.lines().into_iter().map(NodeDto::from).collect(),
            edges: why.edges.iter().map(edge).collect(),
            cut: why.cut,
        }
    }
}

/// The JSON that `/api/v1/why` answers, for a program that prints the same.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::{Column, Percolator};
/// let db = Percolator::in_memory().await?;
/// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
/// let why = db.why(&accounts, "Bob", &bal, None).await?.unwrap();
/// let json = percolator_console::why_json(&why);
/// // Nothing was traced.
/// assert_eq!(json["nodes"][0]["recorded"], false);
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
pub fn why_json(why: &Why) -> Value {
    serde_json::to_value(WhyDto::from(why)).unwrap_or(Value::Null)
}

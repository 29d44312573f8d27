//! Encodes and decodes the entries of the trace: transactions, and the changes that set them
//! off.

use std::time::Duration;

use bigtable::Timestamp;
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::{Reader, put_bytes16, start_of};
use crate::records::column::put_cell;
use crate::watch::CellRef;
use crate::{CellName, Change, Incarnation};

/// The most cells, and the most causes, that an entry names. It has the number of all.
pub(super) const NAMED_MAX: usize = 32;
/// Once a list in an entry has this many bytes, no more names are added to it.
const NAMES_BYTES_MAX: usize = 8 << 10;
/// How many bytes of a transaction's name are kept.
const NAME_BYTES_MAX: usize = 256;

const TRANSACTION: u8 = 1;
const LINK: u8 = 2;

/// A transaction, as the trace keeps it.
///
/// See [`Client::why`](crate::Client::why).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceRecord {
    /// The name that [`Client::named`](crate::Client::named) gave it. For an observer's run,
    /// the name of the observer.
    pub name: Option<String>,
    /// Its start timestamp.
    pub start_ts: Timestamp,
    /// Its commit timestamp; its start timestamp if it wrote nothing.
    pub commit_ts: Timestamp,
    /// The client that committed it.
    pub client: Incarnation,
    /// When it committed, in milliseconds since 1970 by that client's clock.
    pub wall_ms: u64,
    /// The time from its begin until its commit point.
    pub took: Duration,
    /// The changes that it handled, if an observer began it: the first 32.
    pub causes: Vec<TraceCause>,
    /// How many changes it handled.
    pub causes_total: usize,
    /// The cells that it wrote, and then those that it notified: the first 32.
    pub cells: Vec<CellName>,
    /// How many cells it wrote.
    pub written_total: usize,
    /// How many cells it notified and did not write.
    pub notified_total: usize,
}

/// A change that an observer's transaction handled.
///
/// See [`TraceRecord`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceCause {
    /// The cell that changed.
    pub cell: CellName,
    /// The commit timestamp of the transaction that changed it.
    pub commit_ts: Timestamp,
}

/// A change with the run that handled it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    /// The commit timestamp of the change.
    pub(super) cause: Timestamp,
    /// The run's commit timestamp; its start timestamp if it wrote nothing.
    pub(super) effect: Timestamp,
    /// The cell that changed.
    pub(super) cell: CellName,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Transaction(TraceRecord),
    Link(Link),
}

/// The facts about a transaction when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) start_ts: Timestamp,
    pub(super) commit_ts: Timestamp,
    pub(super) client: Incarnation,
    pub(super) wall_ms: u64,
    pub(super) took: Duration,
    pub(super) causes: &'a [Change],
    /// Older changes of the same cells: the index in `causes`, and the commit timestamp.
    pub(super) earlier: &'a [(usize, Timestamp)],
}

impl Facts<'_> {
    /// All changes that the transaction handled: the index in `causes`, and the commit timestamp.
    pub(super) fn handled(&self) -> impl Iterator<Item = (usize, Timestamp)> {
        let newest = self.causes.iter().enumerate().map(|(index, cause)| (index, cause.commit_ts));
        newest.chain(self.earlier.iter().copied())
    }
}

fn put_ref(out: &mut BytesMut, cell: CellRef<'_>) {
    put_cell(out, cell.table, cell.row, cell.column);
}

/// Writes as many items as there is room for. Before them, writes the number of all items and
/// the number of written ones. Returns the number of all.
fn put_some<T>(
    out: &mut BytesMut,
    items: impl Iterator<Item = T>,
    put: impl Fn(&mut BytesMut, T),
) -> usize {
    let at = out.len();
    out.put_u32(0);
    out.put_u16(0);
    let (mut total, mut here) = (0, 0);
    for item in items {
        total += 1;
        if here < NAMED_MAX && out.len() - at < NAMES_BYTES_MAX {
            put(out, item);
            here += 1;
        }
    }
    out[at..at + 4].copy_from_slice(&u32::try_from(total).unwrap_or(u32::MAX).to_be_bytes());
    out[at + 4..at + 6].copy_from_slice(&(here as u16).to_be_bytes());
    total
}

/// Encodes a transaction.
pub(super) fn transaction<'c>(
    facts: &Facts<'_>,
    written: impl Iterator<Item = CellRef<'c>>,
    notified: impl Iterator<Item = CellRef<'c>>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(192);
    begin(&mut out, TRANSACTION);
    out.put_u64(facts.commit_ts.as_u64());
    out.put_u64(facts.start_ts.as_u64());
    out.put_u128(facts.client.0);
    out.put_u64(facts.wall_ms);
    out.put_u64(u64::try_from(facts.took.as_micros()).unwrap_or(u64::MAX));
    out.put_u8(facts.name.is_some().into());
    let name = start_of(facts.name.unwrap_or_default(), NAME_BYTES_MAX);
    put_bytes16(&mut out, name.as_bytes());
    put_some(&mut out, facts.causes.iter(), |out, cause| {
        let Change { table, row, column, commit_ts, .. } = cause;
        put_cell(out, table.name(), row, column);
        out.put_u64(commit_ts.as_u64());
    });
    put_some(&mut out, written, put_ref);
    put_some(&mut out, notified, put_ref);
    end(out)
}

/// Encodes a change with the run that handled it.
pub(super) fn link(cause: Timestamp, effect: Timestamp, cell: CellRef<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    begin(&mut out, LINK);
    out.put_u64(cause.as_u64());
    out.put_u64(effect.as_u64());
    put_ref(&mut out, cell);
    end(out)
}

fn begin(out: &mut BytesMut, kind: u8) {
    out.put_u8(kind);
    out.put_u32(0);
}

/// Writes the length of the entry's body into its head. So a program that does not know the
/// kind can skip the entry.
fn end(mut out: BytesMut) -> Bytes {
    let len = u32::try_from(out.len() - 5).unwrap_or(u32::MAX);
    out[1..5].copy_from_slice(&len.to_be_bytes());
    out.freeze()
}

/// Decodes the entries of a row. Leaves out entries that are damaged, or of a kind that this
/// program does not know.
pub(super) fn decode(entries: &Bytes) -> impl Iterator<Item = Entry> {
    bodies(entries).filter_map(|(kind, mut body)| match kind {
        TRANSACTION => decode_transaction(&mut body).map(Entry::Transaction),
        LINK => decode_link(&mut body).map(Entry::Link),
        _ => None,
    })
}

/// The commit timestamps of the transactions of a row.
pub(super) fn commits(entries: &Bytes) -> impl Iterator<Item = Timestamp> {
    let transactions = bodies(entries).filter(|(kind, _)| *kind == TRANSACTION);
    transactions.filter_map(|(_, mut body)| timestamp(&mut body))
}

/// The kind and the body of each entry.
fn bodies(entries: &Bytes) -> impl Iterator<Item = (u8, Reader)> {
    let mut reader = Reader::new(entries);
    std::iter::from_fn(move || Some((reader.u8()?, Reader::new(&reader.bytes32()?))))
}

fn timestamp(reader: &mut Reader) -> Option<Timestamp> {
    Timestamp::new(reader.u64()?)
}

fn some<T>(reader: &mut Reader, of: impl Fn(&mut Reader) -> Option<T>) -> Option<(usize, Vec<T>)> {
    let (total, here) = (reader.u32()?, reader.u16()?);
    let items = (0..here).map(|_| of(reader)).collect::<Option<_>>()?;
    Some((usize::try_from(total).ok()?, items))
}

fn decode_transaction(reader: &mut Reader) -> Option<TraceRecord> {
    let (commit_ts, start_ts) = (timestamp(reader)?, timestamp(reader)?);
    let client = Incarnation(reader.u128()?);
    let (wall_ms, took) = (reader.u64()?, Duration::from_micros(reader.u64()?));
    let is_named = reader.u8()? != 0;
    let name = Some(reader.string16()?).filter(|_| is_named);
    let cause = |reader: &mut Reader| {
        Some(TraceCause { cell: CellName::read(reader)?, commit_ts: timestamp(reader)? })
    };
    let (causes_total, causes) = some(reader, cause)?;
    let (written_total, mut cells) = some(reader, CellName::read)?;
    let (notified_total, notified) = some(reader, CellName::read)?;
    cells.extend(notified);
    Some(TraceRecord {
        name,
        start_ts,
        commit_ts,
        client,
        wall_ms,
        took,
        causes,
        causes_total,
        cells,
        written_total,
        notified_total,
    })
}

fn decode_link(reader: &mut Reader) -> Option<Link> {
    let (cause, effect) = (timestamp(reader)?, timestamp(reader)?);
    Some(Link { cause, effect, cell: CellName::read(reader)? })
}

#[cfg(test)]
mod tests {
    use bigtable::RowKey;

    use super::*;
    use crate::Column;

    const BAL: Column = Column::literal("bal");

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    fn facts(name: Option<&str>) -> Facts<'_> {
        Facts {
            name,
            start_ts: ts(5),
            commit_ts: ts(8),
            client: Incarnation(3),
            wall_ms: 1_000,
            took: Duration::from_micros(70),
            causes: &[],
            earlier: &[],
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written_and_unknown_kinds_are_passed_over() {
        let bal = BAL;
        let rows: Vec<RowKey> = (0..100).map(|n| RowKey::from(format!("row {n}"))).collect();
        let cells = || rows.iter().map(|row| CellRef { table: "t", row, column: &bal });
        let mut row = BytesMut::new();
        row.put_slice(&transaction(&facts(Some("move")), cells(), cells().take(1)));
        row.put_slice(&[9, 0, 0, 0, 2, 1, 1]);
        row.put_slice(&link(ts(2), ts(8), cells().next().unwrap()));
        row.put_slice(&transaction(&facts(None), cells().take(0), cells().take(0)));
        let row = row.freeze();
        assert_eq!(commits(&row).collect::<Vec<_>>(), [ts(8), ts(8)]);
        let entries: Vec<Entry> = decode(&row).collect();
        let [Entry::Transaction(first), Entry::Link(link), Entry::Transaction(last)] = &entries[..]
        else {
            panic!("{entries:?}");
        };
        assert_eq!(
            (first.name.as_deref(), first.start_ts, first.commit_ts),
            (Some("move"), ts(5), ts(8))
        );
        assert_eq!((first.written_total, first.notified_total, first.cells.len()), (100, 1, 33));
        assert_eq!((first.took, first.wall_ms), (Duration::from_micros(70), 1_000));
        assert_eq!((link.cause, link.effect, &link.cell.row), (ts(2), ts(8), &rows[0]));
        assert_eq!((&last.name, last.cells.len()), (&None, 0));
    }

    #[test]
    fn long_names_are_cut_and_no_bytes_cost_more_than_themselves() {
        let (bal, long) = (BAL, RowKey::from("k".repeat(4_000)));
        let cells = || (0..1_000).map(|_| CellRef { table: "t", row: &long, column: &bal });
        let name = "é".repeat(300);
        let entry = transaction(&facts(Some(&name)), cells(), cells());
        assert!(entry.len() < 40_000, "{} bytes", entry.len());
        let Entry::Transaction(record) = decode(&entry).next().unwrap() else { panic!() };
        assert_eq!((record.written_total, record.name.unwrap().len()), (1_000, NAME_BYTES_MAX));
        for end in 0..entry.len().min(400) {
            assert!(decode(&entry.slice(..end)).next().is_none());
        }
    }
}

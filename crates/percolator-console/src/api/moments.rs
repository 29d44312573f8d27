//! Converts the history of a cell to JSON, moment by moment. A moment is a timestamp with the
//! value, lock and write record that the cell has there, as in the paper's Figure 4. The JSON also
//! explains each record, and the steps of a reader, in the sentences of
//! `percolator cell --explain`.

use std::sync::LazyLock;

use percolator::admin::{
    CellState, Explanation, LockFate, LockView, LockWaiter, Moment, ReadOutcome, ReaderView,
};
use percolator::{Bytes, Column, Percolator, Result, RowKey, Table, Timestamp};
use serde::Serialize;

use crate::cells::{CellDto, Key, beginning, cell_dto};
use crate::recorder::{Age, Clock, wall_ms};

/// The longest value that is shown as it is, in bytes.
const VALUE_BYTES_MAX: usize = 4_096;

/// The key of the hashes that replace hidden values. Without the key a visitor cannot guess a
/// value and compare hashes. Equal values have equal hashes.
static HIDING: LazyLock<[u8; 32]> = LazyLock::new(rand::random);

/// A value: as it is, its beginning, or its length and hash.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ValueDto {
    bytes: usize,
    /// `None` if values are hidden.
    value: Option<Key>,
    /// Whether `value` is only its beginning.
    cut: bool,
    /// The first sixteen digits of a keyed BLAKE3 hash, if values are hidden.
    hash: Option<String>,
}

pub(crate) fn value_dto(value: &Bytes, hide: bool) -> ValueDto {
    let cut = value.len() > VALUE_BYTES_MAX;
    if hide {
        let hash = blake3::keyed_hash(&HIDING, value).to_hex()[..16].to_owned();
        return ValueDto { bytes: value.len(), value: None, cut: false, hash: Some(hash) };
    }
    let shown = Key::of(beginning(value, VALUE_BYTES_MAX));
    ValueDto { bytes: value.len(), value: Some(shown), cut, hash: None }
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LockDto {
    pub(crate) cell: CellDto,
    pub(crate) start_ts: u64,
    /// The age from this process's samples of timestamps, else from the owner's wall clock.
    pub(crate) age: Age,
    pub(crate) owner: String,
    /// `None` if this lock is the primary.
    pub(crate) primary: Option<CellDto>,
    pub(crate) delete: bool,
    pub(crate) fate: FateDto,
    /// The readers that wait for its transaction, as far as this process knows.
    pub(crate) waiters: Vec<WaiterDto>,
}

/// A reader that waits for a lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WaiterDto {
    /// The timestamp that it reads at.
    pub(crate) at: u64,
    pub(crate) cell: CellDto,
    pub(crate) waited_ms: f64,
}

pub(crate) fn waiter_dto(waiter: &LockWaiter) -> WaiterDto {
    let cell = &waiter.cell;
    WaiterDto {
        at: waiter.at.as_u64(),
        cell: cell_dto(&cell.table, &cell.row, &cell.column),
        waited_ms: waiter.waited.as_secs_f64() * 1e3,
    }
}

/// The fate of a lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FateDto {
    pub(crate) kind: &'static str,
    pub(crate) commit_ts: Option<u64>,
}

impl From<LockFate> for FateDto {
    fn from(fate: LockFate) -> Self {
        let (kind, commit_ts) = match fate {
            LockFate::RollForward(commit_ts) => ("roll_forward", Some(commit_ts.as_u64())),
            LockFate::RollBack => ("roll_back", None),
            LockFate::OwnerDead => ("owner_dead", None),
            LockFate::OwnerAlive => ("owner_alive", None),
        };
        FateDto { kind, commit_ts }
    }
}

pub(crate) fn lock_dto(clock: &Clock, lock: &LockView, fate: LockFate) -> LockDto {
    let seconds = wall_ms().saturating_sub(lock.wall_ms) as f64 / 1e3;
    let by_wall = Age { seconds, at_least: false };
    let of = |name: &percolator::admin::CellName| cell_dto(&name.table, &name.row, &name.column);
    LockDto {
        cell: of(&lock.cell),
        start_ts: lock.start_ts.as_u64(),
        age: clock.age(lock.start_ts).filter(|age| !age.at_least).unwrap_or(by_wall),
        owner: lock.owner.to_string(),
        primary: lock.primary.as_ref().map(of),
        delete: lock.delete,
        fate: fate.into(),
        waiters: Vec::new(),
    }
}

/// The records of a cell at one timestamp.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MomentDto {
    ts: u64,
    age: Option<Age>,
    data: Option<ValueDto>,
    lock: Option<LockDto>,
    write: Option<WriteDto>,
    rolled_back: bool,
    notify: bool,
    /// Observers that have acknowledged, with the start timestamp of their run.
    acks: Vec<AckDto>,
    /// The meaning of each record, in sentences.
    meaning: Vec<String>,
}

/// An acknowledgement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AckDto {
    observer: String,
    start_ts: u64,
}

impl MomentDto {
    /// The fate of its lock.
    pub(crate) fn fate(&self) -> Option<&FateDto> {
        self.lock.as_ref().map(|lock| &lock.fate)
    }
}

/// A write record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WriteDto {
    start_ts: u64,
    delete: bool,
}

/// The steps of a reader, and their outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReaderDto {
    at: u64,
    /// Its step about a lock, before it reads.
    first: Option<&'static str>,
    outcome: &'static str,
    value: Option<ValueDto>,
    because: String,
}

impl ReaderDto {
    fn of(reader: &ReaderView, hide: bool) -> Self {
        let value = match &reader.outcome {
            ReadOutcome::Value { value, .. } => Some(value_dto(value, hide)),
            _ => None,
        };
        ReaderDto {
            at: reader.at.as_u64(),
            first: reader.first.map(|first| first.name()),
            outcome: reader.outcome.name(),
            value,
            because: reader.because.clone(),
        }
    }
}

/// The history of a cell with its meaning, as `percolator cell --explain` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Explained {
    pub(crate) moments: Vec<MomentDto>,
    pub(crate) reader: ReaderDto,
    /// How many moments there are.
    pub(crate) total: usize,
    pub(crate) latest_ts: u64,
    /// Timestamps below this may be collected.
    pub(crate) floor: u64,
    /// A version that changes when a moment or the fate of a lock changes.
    pub(crate) version: String,
}

/// The cell to explain, the number of its moments, and the reader.
pub(crate) struct Question<'q> {
    pub(crate) table: &'q Table,
    pub(crate) row: &'q RowKey,
    pub(crate) column: &'q Column,
    /// The reader's timestamp; the latest one if none is given.
    pub(crate) at: Option<Timestamp>,
    /// The most moments; the newest are shown.
    pub(crate) moments_max: usize,
    /// Whether values are hidden.
    pub(crate) hide: bool,
}

pub(crate) async fn explained(
    db: &Percolator,
    clock: &Clock,
    question: &Question<'_>,
) -> Result<Explained> {
    let Question { table, row, column, at, moments_max, hide } = *question;
    let state = db.cell_state(table, row.clone(), column).await?;
    let explained = state.explain(at);
    let (mut moments, mut hasher) = (Vec::new(), blake3::Hasher::new());
    for moment in state.moments.iter().take(moments_max) {
        let of = |line: &&Explanation| line.timestamp == moment.timestamp;
        let meaning = explained.lines.iter().filter(of).map(|line| line.text.clone()).collect();
        let dto = MomentDto { meaning, ..moment_dto(clock, &state, moment, hide) };
        // Ages change with time, but do not change the cell. A new fate of a lock does.
        hasher.update(format!("{moment:?}{:?}", dto.fate()).as_bytes());
        moments.push(dto);
    }
    Ok(Explained {
        moments,
        reader: ReaderDto::of(&explained.reader, hide),
        total: state.moments.len(),
        latest_ts: state.latest.as_u64(),
        floor: state.floor.as_u64(),
        version: hasher.finalize().to_hex()[..16].to_owned(),
    })
}

fn moment_dto(clock: &Clock, state: &CellState, moment: &Moment, hide: bool) -> MomentDto {
    let lock = moment.lock.as_ref().map(|lock| {
        let fate = state.fates.get(&lock.start_ts).copied().unwrap_or(LockFate::OwnerAlive);
        lock_dto(clock, lock, fate)
    });
    MomentDto {
        ts: moment.timestamp.as_u64(),
        age: clock.age(moment.timestamp),
        data: moment.data.as_ref().map(|value| value_dto(value, hide)),
        lock,
        write: moment
            .write
            .as_ref()
            .map(|write| WriteDto { start_ts: write.start_ts.as_u64(), delete: write.delete }),
        rolled_back: moment.rolled_back,
        notify: moment.notify,
        acks: moment
            .acks
            .iter()
            .map(|(observer, ts)| AckDto { observer: observer.clone(), start_ts: ts.as_u64() })
            .collect(),
        meaning: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters_and_hidden_ones_are_hashed() {
        let long: String = "é".repeat(VALUE_BYTES_MAX);
        let shown = value_dto(&format!("x{long}").into(), false);
        assert!(shown.cut && matches!(shown.value, Some(Key::Utf8(_))), "{shown:?}");
        let hidden = value_dto(&Bytes::from_static(b"secret"), true);
        assert_eq!((hidden.bytes, hidden.value), (6, None));
        assert_eq!(hidden.hash.unwrap().len(), 16);
        assert!(!value_dto(&Bytes::from_static(b"short"), false).cut);
    }
}

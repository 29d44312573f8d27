//! The history of a cell as JSON: the paper's Figure 4.

use percolator::admin::{LockFate, LockView, Moment};
use percolator::{Bytes, Percolator, Result};
use serde::Serialize;

use crate::cells::{CellDto, Key, cell_dto};
use crate::recorder::{Age, Clock, wall_ms};

/// The longest value that is shown as it is, in bytes.
const VALUE_BYTES_MAX: usize = 4_096;

/// A value: as it is, its beginning, or its length and hash.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ValueDto {
    bytes: usize,
    /// `None` if values are hidden.
    value: Option<Key>,
    /// Whether `value` is only its beginning.
    cut: bool,
    /// BLAKE3, the first sixteen digits; if values are hidden.
    hash: Option<String>,
}

pub(crate) fn value_dto(value: &Bytes, hide: bool) -> ValueDto {
    let cut = value.len() > VALUE_BYTES_MAX;
    if hide {
        let hash = blake3::hash(value).to_hex()[..16].to_owned();
        return ValueDto { bytes: value.len(), value: None, cut: false, hash: Some(hash) };
    }
    let mut end = value.len().min(VALUE_BYTES_MAX);
    // Not in the middle of a character.
    while cut && end > VALUE_BYTES_MAX - 4 && value[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    ValueDto { bytes: value.len(), value: Some(Key::of(&value[..end])), cut, hash: None }
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LockDto {
    pub(crate) cell: CellDto,
    pub(crate) start_ts: u64,
    /// By this process's samples of timestamps, else by the owner's wall clock.
    pub(crate) age: Age,
    pub(crate) owner: String,
    /// `None`: this is the primary.
    pub(crate) primary: Option<CellDto>,
    pub(crate) delete: bool,
    pub(crate) fate: FateDto,
}

/// What will become of a lock.
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

pub(crate) async fn lock_dto(db: &Percolator, clock: &Clock, lock: &LockView) -> Result<LockDto> {
    let fate = db.lock_fate(lock).await?;
    let seconds = wall_ms().saturating_sub(lock.wall_ms) as f64 / 1e3;
    let by_wall = Age { seconds, at_least: false };
    let of = |name: &percolator::admin::CellName| cell_dto(&name.table, &name.row, &name.column);
    Ok(LockDto {
        cell: of(&lock.cell),
        start_ts: lock.start_ts.as_u64(),
        age: clock.age(lock.start_ts).filter(|age| !age.at_least).unwrap_or(by_wall),
        owner: lock.owner.to_string(),
        primary: lock.primary.as_ref().map(of),
        delete: lock.delete,
        fate: fate.into(),
    })
}

/// What a cell holds at one timestamp.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MomentDto {
    ts: u64,
    age: Option<Age>,
    data: Option<ValueDto>,
    lock: Option<LockDto>,
    write: Option<WriteDto>,
    rolled_back: bool,
    notify: bool,
}

impl MomentDto {
    /// What will become of its lock.
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

pub(crate) async fn moment_dto(
    db: &Percolator,
    clock: &Clock,
    moment: &Moment,
    hide: bool,
) -> Result<MomentDto> {
    let lock = match &moment.lock {
        Some(lock) => Some(lock_dto(db, clock, lock).await?),
        None => None,
    };
    Ok(MomentDto {
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
    })
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

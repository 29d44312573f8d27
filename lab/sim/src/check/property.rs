//! Names the properties; findings carry these names.

/// A read returns the newest version committed at or before its start timestamp.
pub const SNAPSHOT_READ: &str = "snapshot read";
/// A scan returns exactly the live cells of its range.
pub const SNAPSHOT_SCAN: &str = "snapshot scan";
/// A transaction sees its own writes.
pub const OWN_WRITES: &str = "own writes";
/// No two committed writers of a cell overlap.
pub const NO_CONFLICT: &str = "no overlapping writers";
/// A transaction that began after another ended is ordered after it.
pub const REAL_TIME: &str = "real-time order";
/// A transaction whose client received a commit timestamp has its records at that timestamp.
pub const NO_LOST_COMMIT: &str = "no lost commit";
/// A transaction whose client received "aborted" has no record.
pub const NO_FALSE_ABORT: &str = "no false abort";
/// A transaction has one commit timestamp, and a version one writer.
pub const ONE_COMMIT: &str = "one commit";
/// Start and commit timestamps are distinct and ordered.
pub const TIMESTAMPS: &str = "distinct timestamps";
/// The oracle never repeats a timestamp and never goes back.
pub const ORACLE: &str = "oracle order";
/// All cells of a transaction commit, or none.
pub const WHOLE: &str = "whole transactions";
/// No lock is left when everything has been resolved.
pub const NO_LOCK_LEFT: &str = "no lock left";
/// A transaction never has both a tomb and a record, or both a lock and a record.
pub const TOMB_OR_RECORD: &str = "tomb or record";
/// Every record that points at a value has it.
pub const DATA: &str = "data of a record";
/// After garbage collection a cell has at most one version below the safe point, and no
/// dropped version appears again.
pub const COLLECTED: &str = "collected";
/// An observer's run commits at most once for each change.
pub const OBSERVED_ONCE: &str = "observed once";
/// Every change was handled, or a notification of it is left.
pub const OBSERVED: &str = "observed";
/// A read returns the result that `explain` predicts.
pub const EXPLAINED: &str = "explained";
/// All work ends once the faults have stopped.
pub const LIVENESS: &str = "liveness";
/// The simulation completes its set-up, before the faults begin.
pub const SET_UP: &str = "set-up";

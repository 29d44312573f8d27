//! The names of the properties, as findings carry them.

/// A read returns the newest version committed at or before its start timestamp.
pub const SNAPSHOT_READ: &str = "snapshot read";
/// A scan returns exactly the live cells of its range.
pub const SNAPSHOT_SCAN: &str = "snapshot scan";
/// A transaction sees its own writes.
pub const OWN_WRITES: &str = "own writes";
/// No two committed writers of a cell overlap.
pub const NO_CONFLICT: &str = "no overlapping writers";
/// A transaction that began after another had ended follows it.
pub const REAL_TIME: &str = "real-time order";
/// What was told to have committed has its records, at that timestamp.
pub const NO_LOST_COMMIT: &str = "no lost commit";
/// What was told to have aborted has no record.
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
/// After garbage collection a cell has one version at most below the safe point, and none that
/// was dropped comes again.
pub const COLLECTED: &str = "collected";
/// An observer's run commits at most once for each change.
pub const OBSERVED_ONCE: &str = "observed once";
/// Every change is handled, or still notified.
pub const OBSERVED: &str = "observed";
/// A read does what `explain` says of it.
pub const EXPLAINED: &str = "explained";
/// Everything comes to rest once nothing goes wrong any more.
pub const LIVENESS: &str = "liveness";
/// A world gets as far as its storm.
pub const SET_UP: &str = "set-up";

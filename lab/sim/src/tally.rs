//! Counts the faults of a run, and the things that must happen sometimes.
//!
//! If one of those things never happens, the simulation does not test what it claims to.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All variants, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Returns the name in reports.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

kinds! {
    /// A kind of fault.
    Fault {
        /// A request that never arrived.
        RequestLost = "request_lost",
        /// A reply that never arrived.
        ReplyLost = "reply_lost",
        /// A request that arrived twice.
        Duplicate = "duplicate",
        /// A copy that arrived long after its transaction.
        LateDuplicate = "late_duplicate",
        /// A message with a delay from the long tail.
        Slow = "slow",
        /// A request that its server refused as busy.
        Busy = "busy",
        /// A message stopped by a partition.
        Partitioned = "partitioned",
        /// A partition both ways.
        Partition = "partition",
        /// A partition one way.
        OneWay = "one_way_partition",
        /// A process stopped for some time.
        Pause = "pause",
        /// A process killed, and a successor started.
        Kill = "kill",
        /// A wall clock stepped.
        ClockStep = "clock_step",
        /// The store killed and restarted.
        StoreKill = "store_kill",
        /// The power of the store's machine cut.
        PowerCut = "power_cut",
        /// The oracle killed, and a successor started.
        OracleKill = "oracle_kill",
        /// The oracle paused, a successor started, and the old one woken.
        OraclePause = "oracle_pause",
        /// A second oracle started beside the first.
        OracleRival = "oracle_rival",
        /// The leading oracle resigned.
        OracleResigned = "oracle_resigned",
        /// A live client's session with the lock service lost.
        SessionLoss = "session_loss",
        /// The lock service restarted with nothing in memory.
        LockRestart = "lock_service_restart",
        /// Tablet boundaries moved.
        TabletMove = "tablet_move",
        /// The garbage collection floor raised.
        FloorRaised = "floor_raised",
        /// Observers registered while writers ran.
        Registration = "late_registration",
        /// A copy of a prewrite that arrived after its deadline and after a collection.
        Ghost = "ghost",
        /// A write of the store that failed, with all mutations that waited for it.
        WriteFailure = "write_failure",
        /// An observer paused, and resumed later.
        ObserverPause = "observer_pause",
        /// A request that found no room for its locks.
        Overloaded = "overloaded",
    }
}

kinds! {
    /// Something that must happen sometimes.
    Sometimes {
        /// A prewrite was rejected because of its own transaction's tomb.
        TombBlockedPrewrite = "tomb_blocked_prewrite",
        /// Another client rolled a committed transaction forward.
        RollForwardByOther = "roll_forward_by_other",
        /// A client received `Unknown` for a transaction that had committed.
        UnknownThenCommitted = "commit_unknown_then_committed",
        /// A client received `Unknown` for a transaction that had not committed.
        UnknownThenAborted = "commit_unknown_then_aborted",
        /// A transaction committed although its client had abandoned the commit.
        HungUpThenCommitted = "hung_up_then_committed",
        /// A transaction committed although its primary lock was older than its lifetime,
        /// because heartbeats had prolonged it.
        HeartbeatSavedLock = "heartbeat_saved_lock",
        /// A live owner's primary was rolled back by another client.
        LeaseCleanedLiveOwner = "lease_cleaned_live_owner",
        /// A reader found a lock.
        ReadBlocked = "read_blocked",
        /// A clearing of notifications left a newer one.
        NotifyKeptByNewer = "notify_kept_by_newer",
        /// An observer's run was rejected because another run had acknowledged.
        AckConflict = "ack_conflict",
        /// A run that followed a hint committed without a look at the acknowledgement.
        HintedRun = "hinted_run",
        /// A run that followed a hint was rejected, because it was not the only one.
        HintedRejected = "hinted_rejected",
        /// A transaction's two timestamps came from two oracles.
        OracleFailoverMidCommit = "oracle_failover_mid_commit",
        /// A read below the floor was refused.
        TooOldRead = "too_old_read",
        /// A store kill lost mutations that were not synced yet.
        TornWalRecovered = "torn_wal_recovered",
        /// A power cut undid renewals that had been acknowledged.
        RenewalsLost = "renewals_lost",
        /// A one-step commit succeeded.
        OneStepCommitted = "one_step_committed",
        /// A one-step commit was rejected.
        OneStepRejected = "one_step_rejected",
        /// A one-step commit fell back to two phases, because there was no timestamp in memory
        /// or because an observer had been registered.
        OneStepWithoutTimestamp = "one_step_without_timestamp",
        /// A round of garbage collection in the storm dropped versions.
        VersionsCollected = "versions_collected",
        /// A lock whose owner lived ended a round of garbage collection.
        CollectionBlocked = "collection_blocked",
        /// Observers ran for notifications in the rows they are about, in a store with a floor.
        ObservedInRow = "observed_in_row",
        /// The same in a store without a floor, like HBase.
        ObservedLikeHbase = "observed_like_hbase",
        /// Observers ran for notifications in tables of their own.
        ObservedApart = "observed_apart",
        /// A client answered reads from columns that it had read ahead.
        ReadAhead = "read_ahead",
        /// A `glance` returned what the client wanted to read.
        Glanced = "glanced",
        /// Conditional mutations that had waited for each other went in one request.
        Gathered = "gathered",
        /// Reads that had waited for each other went in one request.
        GatheredReads = "gathered_reads",
        /// A timestamp came from an oracle that had stood by before.
        FailedOver = "failed_over",
        /// A request was dropped at its deadline.
        DeadlinePassed = "deadline_passed",
        /// Versions were dropped in the storm from a store without a floor.
        CollectedUnfenced = "collected_without_floor",
        /// A retention that is too short for late requests was refused.
        RetentionRefused = "retention_refused",
        /// A client failed its open transactions because its registration had lapsed.
        Lapsed = "lapsed",
        /// A lock was placed after garbage collection had removed the record or tomb that
        /// would have rejected it.
        LateLock = "late_lock",
        /// A reader waited for a one-step commit that was not published yet.
        WaitedForPending = "waited_for_pending",
        /// A change was applied after its time, because it had waited for the log with its row
        /// locked.
        WaitedForLog = "waited_for_log",
        /// A write of the store failed, and the store refused all requests until its next start.
        WriteFailed = "write_failed",
        /// A scan needed several pages.
        PagedScan = "paged_scan",
        /// A batch's transaction did not commit.
        BatchAborted = "batch_aborted",
        /// A worker renewed the advisory lock on a row because an observer took long.
        RowLockRenewed = "row_lock_renewed",
        /// Workers were stopped in the middle of a run.
        RunAbandoned = "run_abandoned",
        /// Workers ran only some of a column's observers.
        PartlyObserved = "partly_observed",
        /// An observer ran after a pause in which the cell had changed.
        RanAfterPause = "ran_after_pause",
        /// `explain` predicted a reader that rolls a transaction forward.
        ExplainedRollForward = "explained_roll_forward",
        /// `explain` predicted a reader that removes a lock.
        ExplainedRollBack = "explained_roll_back",
        /// `explain` predicted a reader that rolls a dead owner's transaction back.
        ExplainedDecision = "explained_decision",
        /// `explain` predicted a reader that waits for a lock.
        ExplainedWait = "explained_wait",
    }
}

/// Counters of one run.
#[derive(Debug)]
pub(crate) struct Tally {
    messages: AtomicU64,
    faults: [AtomicU64; KINDS_MAX],
    sometimes: [AtomicU64; KINDS_MAX],
}

/// At least the number of variants of each enum.
const KINDS_MAX: usize = 64;

const _: () = assert!(Fault::ALL.len() <= KINDS_MAX && Sometimes::ALL.len() <= KINDS_MAX);

impl Default for Tally {
    fn default() -> Self {
        let none = || [const { AtomicU64::new(0) }; KINDS_MAX];
        Tally { messages: AtomicU64::new(0), faults: none(), sometimes: none() }
    }
}

impl Tally {
    pub(crate) fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn happened(&self, what: Sometimes) {
        self.sometimes[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Returns the counts, in the order of [`Fault::ALL`].
    pub(crate) fn faults(&self) -> Vec<u64> {
        Fault::ALL.iter().map(|f| self.faults[*f as usize].load(Ordering::Relaxed)).collect()
    }

    /// Returns the counts, in the order of [`Sometimes::ALL`].
    pub(crate) fn sometimes(&self) -> Vec<u64> {
        let count = |s: &Sometimes| self.sometimes[*s as usize].load(Ordering::Relaxed);
        Sometimes::ALL.iter().map(count).collect()
    }
}

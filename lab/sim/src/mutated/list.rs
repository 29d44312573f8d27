//! Lists the simulator's own mutants. Each has a name and the hazards that it lets through. A
//! wrapper around a client's store or oracle makes all but `NO_SILENCE` and `WAITING_ROW_IS_FREE`,
//! which the simulated store server makes.

bigtable::mutants! {
    NO_TOMB_ON_ROLLBACK "no-tomb-on-rollback" "H01",
    NO_TOMB_ON_MISSING_PRIMARY "no-tomb-on-missing-primary" "H02",
    PREWRITE_BELOW_FLOOR "prewrite-below-floor" "H04",
    PREWRITE_IGNORES_TOMBS "prewrite-ignores-tombs" "H05",
    UNKNOWN_STEP_MEANS_ABORTED "unknown-step-means-aborted" "H07",
    COMMIT_TS_FIRST "commit-ts-first" "H08",
    BLIND_COMMIT "blind-commit" "H12",
    PREWRITE_IGNORES_LOCKS "prewrite-ignores-locks" "H14",
    BLIND_HEARTBEAT "blind-heartbeat" "H15",
    BLIND_ROLLBACK "blind-rollback" "H16",
    PREWRITE_IGNORES_WRITES "prewrite-ignores-writes" "H20 H36",
    READS_IGNORE_LOCKS "reads-ignore-locks" "H27 H28",
    READS_EXCLUDE_S "reads-exclude-s" "H29",
    SCAN_WITHOUT_LOCK_ROWS "scan-without-lock-rows" "H30",
    SCAN_RESUMES_PAST_LOCKS "scan-resumes-past-locks" "H31",
    NEWEST_RECORD_ONLY "newest-record-only" "H32",
    READ_BELOW_FLOOR "read-below-floor" "H35",
    FIRST_CELL_STANDS_FOR_ALL "first-cell-stands-for-all" "H38",
    STALE_BEGIN "stale-begin" "H39",
    COMMIT_FORGETS_NOTIFY "commit-forgets-notify" "H48",
    SCANS_ONE_TABLET "scans-one-tablet" "H61",
    NO_SILENCE "no-silence" "H71",
    WAITING_ROW_IS_FREE "waiting-row-is-free" "H76",
}

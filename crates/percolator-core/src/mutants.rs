//! Lists the defences of the protocol that can be switched off, one at a time (see
//! `bigtable::mutants`). A test or the simulation must fail whenever one of them is off.
//!
//! A wrapper of the store or the oracle can remove some defences from outside
//! (`lab/sim/src/mutated/`). This list holds the defences that no wrapper can remove, and
//! those that a test of this crate checks. The numbers (`H01`) are those of `docs/hazards.md`.

pub(crate) use bigtable::mutants::off;

bigtable::mutants! {
    NO_TOMB_ON_ABORT "no-tomb-on-abort" "H01 H24"
        by "h01_abort_by_the_owner_leaves_a_tomb_too",
    MISSING_PRIMARY_WAITS "missing-primary-waits" "H03",
    LOCKS_OF_SEVERAL_TIMES "locks-of-several-times" "H03"
        by "h03_two_secondaries_without_primary_expire_although_both_are_watched",
    GC_BEFORE_LOCKS "gc-before-locks" "H06",
    DROPPED_BEFORE_SYNC "dropped-before-sync" "H79"
        by "h79_what_the_sweep_wrote_is_durable_before_the_store_drops",
    COLLECTED_MEANS_ABORTED "collected-means-aborted" "H06"
        by "h07_h06_too_old_after_a_lost_reply_is_not_called_aborted",
    NO_LOCK_MEANS_ABORTED "no-lock-means-aborted" "H07 H64",
    SECONDARIES_UNDECIDED "secondaries-undecided" "H10",
    ANY_LOCK_IS_THE_PRIMARY "any-lock-is-the-primary" "H11"
        by "h11_a_lock_of_another_transaction_on_the_primary_is_left_alone",
    GHOST_PRIMARY "ghost-primary" "H13",
    NO_HEARTBEAT "no-heartbeat" "H15"
        by "h15_nobody_cleans_up_a_long_commit_that_keeps_its_lock_fresh",
    EXPIRY_FOR_TOKENS_ONLY "expiry-for-tokens-only" "H17 H18"
        by "h18_clocks_an_hour_off_neither_kill_the_living_nor_keep_the_dead",
    FUTURE_IS_READ "future-is-read" "H21"
        by "h21_a_timestamp_that_was_not_issued_cannot_be_read_at",
    OWN_LOCK_IS_A_CONFLICT "own-lock-is-a-conflict" "H23"
        by "h23_a_lost_reply_of_any_prewrite_changes_nothing",
    WRITER_CLEANS_NOTHING "writer-cleans-nothing" "H25"
        by "h25_a_transaction_that_only_writes_gets_past_dead_locks",
    NO_SINGLE_FLIGHT "no-single-flight" "H26"
        by "h26_many_readers_of_one_dead_transaction_decide_it_once",
    UNLOCKED_AHEAD "unlocked-ahead" "H28",
    ALIVE_IS_REMEMBERED "alive-is-remembered" "H34",
    LONG_VALUE_BELOW_FLOOR "long-value-below-floor" "H35"
        by "h35_a_long_value_that_is_collected_between_two_reads_is_too_old",
    LAPSED_READS "lapsed-reads" "H35"
        by "h35_an_answer_that_comes_after_the_registration_lapsed_is_not_believed",
    LAPSED_COMMITS "lapsed-commits" "H04 H35"
        by "h04_h35_a_transaction_whose_registration_lapsed_does_not_commit",
    COMMITS_TO_THE_LAST "commits-to-the-last" "H04 H35"
        by "h04_h35_no_commit_is_sent_that_could_be_applied_after_the_registration_lapsed",
    LAPSED_IS_HELD_AGAIN "lapsed-is-held-again" "H35"
        by "h35_a_request_of_a_timestamp_prolongs_no_snapshot_that_has_lapsed",
    LATE_LOCK_IS_RESOLVED "late-lock-is-resolved" "H06 H12",
    TOO_LATE_IS_DONE "too-late-is-done" "H06"
        by "h06_a_lock_that_was_judged_too_late_does_not_count_as_swept",
    ANY_RETENTION "any-retention" "H04 H35"
        by "h35_a_retention_that_is_too_short_drops_nothing_beneath_a_young_reader",
    GC_DROPS_NEWEST "gc-drops-newest" "H36",
    GC_DROPS_UNSEEN_DELETES "gc-drops-unseen-deletes" "H36",
    OWN_WRITES_UNSEEN "own-writes-unseen" "H37",
    WINDOW_NOT_STORED "window-not-stored" "H40",
    NO_LEASE "no-lease" "H41",
    NO_WAIT_FOR_LEASE "no-wait-for-lease" "H41",
    WAITS_LESS_THAN_A_LEASE "waits-less-than-a-lease" "H41"
        by "h41_a_leader_serves_while_its_lease_holds_and_its_successor_waits_for_that",
    RESIGNED_BEFORE_CLOSED "resigned-before-closed" "H42"
        by "h42_who_resigns_serves_nothing_from_the_moment_its_record_may_say_so",
    SUPERSEDED_SERVES "superseded-serves" "H42"
        by "h41_h42_an_oracle_that_was_superseded_serves_nothing_once_it_knows",
    OWN_RECORD_IS_FOREIGN "own-record-is-foreign" "H43"
        by "h43_a_write_of_its_own_whose_reply_was_lost_does_not_stop_an_oracle",
    SETS_ASIDE_UNSEEN "sets-aside-unseen" "H47 H56"
        by "h47_h56_setting_a_change_aside_spares_the_notification_of_a_later_write",
    CLEARS_UNSEEN "clears-unseen" "H47",
    CLEARS_IN_PREWRITE "clears-in-prewrite" "H47",
    NOTIFY_APART_AFTER_COMMIT "notify-apart-after-commit" "H48 H49",
    ROLL_FORWARD_FORGETS_NOTIFY "roll-forward-forgets-notify" "H49",
    ACK_IS_COMMIT_TS "ack-is-commit-ts" "H50",
    BATCH_CLEARS_UNCOMMITTED "batch-clears-uncommitted" "H51"
        by "h51_a_batch_that_does_not_commit_keeps_its_notifications",
    BATCH_IS_NEVER_SPLIT "batch-is-never-split" "H56"
        by "h56_a_batch_with_one_contended_change_delivers_the_others",
    IDLE_OVER_PENDING "idle-over-pending" "H48"
        by "h48_nothing_is_idle_while_a_commit_in_one_step_is_not_published",
    FLIGHT_WITHOUT_END "flight-without-end" "H77"
        by "h77_a_reader_that_is_not_polled_holds_up_no_other",
    UNPOLLED_STAYS "unpolled-stays" "H77"
        by "h77_a_commit_that_is_not_polled_is_finished",
    SKIPS_FOR_EVER "skips-for-ever" "H50"
        by "h50_a_change_after_one_that_skips_observers_runs_its_observer",
    NO_ACK "no-ack" "H51 H52",
    ACK_SOUGHT_FROM_S "ack-sought-from-s" "H51 H52"
        by "h52_a_hint_that_another_worker_was_faster_with_has_one_effect",
    DELETION_IS_HINTED "deletion-is-hinted" "H36 H52"
        by "h52_a_stale_hint_of_a_deletion_that_was_collected_has_no_effect",
    HINTED_FOR_OTHERS "hinted-for-others" "H53"
        by "h53_a_hinted_run_leaves_the_notification_to_observers_that_run_elsewhere",
    ACK_UNREAD "ack-unread" "H52 H62",
    COMMIT_CLEARS_FOR_OTHERS "commit-clears-for-others" "H53",
    CLEARS_FOR_OTHERS "clears-for-others" "H53",
    PAUSED_RUNS "paused-runs" "H75",
    PAUSED_IS_DONE "paused-is-done" "H75",
    WEAK_AFTER_COMMIT "weak-after-commit" "H57",
    SCHEMA_OF_BEGIN "schema-of-begin" "H59"
        by "h59_a_writer_with_the_old_schema_is_not_missed",
    VERSION_BEFORE_TIMESTAMP "version-before-timestamp" "H59"
        by "h59_an_old_version_comes_with_timestamps_below_the_sweep_s",
    FORGETS_THE_REST "forgets-the-rest" "H61"
        by "h61_what_has_no_hint_is_found_although_hints_wait",
    DROPPED_MEANS_DEAD "dropped-means-dead" "H72"
        by "h72_a_commit_whose_caller_lets_go_is_finished",
    ROW_LOCK_UNRENEWED "row-lock-unrenewed" "H73"
        by "h73_an_observer_that_outlasts_its_row_lock_runs_once",
    LONG_RUN_UNLOCKED "long-run-unlocked" "H73"
        by "h73_a_long_run_after_a_hint_takes_the_lock_although_it_began_without",
    RENEWS_WHAT_IS_TAKEN "renews-what-is-taken" "H73"
        by "h73_a_renewal_never_takes_back_a_lock_that_another_has",
    ADMIT_WAITS_INSIDE "admit-waits-inside" "H74"
        by "h74_an_observer_never_waits_to_be_admitted",
    OTHERS_HAVE_ACKNOWLEDGED "others-have-acknowledged" "H53"
        by "h53_a_program_without_one_of_the_observers_deletes_nothing",
    STALE_STAYS "stale-stays" "H62",
    ONE_LOCK_STANDS_FOR_ALL "one-lock-stands-for-all" "H69"
        by "h69_an_abort_leaves_no_lock_in_the_row_of_the_primary",
    A_PROBE_FOR_EACH_LOCK "a-probe-for-each-lock" "H70"
        by "h70_a_wide_row_is_committed_and_rolled_back_whatever_a_predicate_may_hold",
    WHOLE_LOCK_IS_COMPARED "whole-lock-is-compared" "H70"
        by "h70_heartbeats_that_get_no_reply_stay_within_the_limit_of_a_predicate",
    LIMITS_UNASKED "limits-unasked" "H70"
        by "h70_a_row_whose_commit_could_not_be_sent_is_refused_before_it_is_locked",
    REFUSED_COMMIT_IS_UNKNOWN "refused-commit-is-unknown" "H70"
        by "h70_a_commit_that_the_store_refuses_for_good_is_aborted_at_once",
    WINDOW_MAY_BE_LOST "window-may-be-lost" "H71"
        by "h71_nothing_but_the_renewal_of_a_lease_may_be_lost",
}

/// For the tests beside the code: switches off the defence that the environment variable
/// names, if it is set.
#[cfg(test)]
pub(crate) fn switch_off_named_mutant() {
    #[cfg(mutants)]
    if let Ok(name) = std::env::var("PERCOLATOR_MUTANT") {
        assert!(switch_off(&name), "there is no mutant {name}");
    }
}

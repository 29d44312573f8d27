//! Lists the defences of the store that tests can switch off, one at a time: see
//! `bigtable::mutants`.
//!
//! The simulator runs no line of this crate. So for each defence, a test of this crate's suite
//! fails while the defence is off.

pub(crate) use bigtable::mutants::off;

bigtable::mutants! {
    PENDING_AFTER_TIMESTAMP "pending-after-timestamp" "H08 H27"
        by "h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows",
    PENDING_CLEARED_EARLY "pending-cleared-early" "H27"
        by "h27_rows_are_pending_until_readers_see_the_batch",
    GLANCE_PASSES_PENDING "glance-passes-pending" "H27"
        by "h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows",
    READ_PASSES_PENDING "read-passes-pending" "H27"
        by "h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows",
    SCAN_PASSES_PENDING "scan-passes-pending" "H27"
        by "h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows",
    FIRST_PENDING_IS_SKIPPED "first-pending-is-skipped" "H27"
        by "h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows",
    STALE_SNAPSHOT "stale-snapshot" "H39"
        by "h39_a_read_sees_what_was_acknowledged_before_it",
    RECENT_OF_ANY_STATE "recent-of-any-state" "H27"
        by "h27_readers_of_another_state_get_nothing",
    SNAPSHOT_BEFORE_GUARD "snapshot-before-guard" "H27"
        by "h27_a_glance_misses_no_commit",
    GLANCE_BELOW_FLOOR "glance-below-floor" "H35"
        by "h35_a_glance_below_the_floor_is_refused",
    DELETES_AFTER_CLOSING "deletes-after-closing" "H63"
        by "h63_a_closed_store_deletes_no_file",
    WRITTEN_SINCE "written-since" "H78"
        by "h78_a_removal_sees_what_was_written_after_it_was_read",
    FORGOTTEN_SINCE "forgotten-since" "H78"
        by "h78_a_removal_sees_what_was_written_after_it_was_read",
    REWRITTEN_SINCE "rewritten-since" "H78"
        by "h78_a_removal_sees_what_was_written_after_it_was_read",
    SUPERSEDED_LATER "superseded-later" "H79"
        by "h79_a_merge_drops_no_version_that_a_reader_needs",
    KEPT_VERSIONS_GO "kept-versions-go" "H79"
        by "h79_a_merge_drops_no_version_that_a_reader_needs",
    SEALED_IS_FORGOTTEN "sealed-is-forgotten" "H80"
        by "h80_the_committer_sees_what_write_buffers_hold",
    RECOVERED_IS_EMPTY "recovered-is-empty" "H80"
        by "h80_the_committer_sees_what_write_buffers_hold",
    RESTART_IS_FORGOTTEN "restart-is-forgotten" "H71"
        by "h71_every_opening_reports_a_restart_until_it_is_acknowledged",
}

/// For tests: switches off the defence that the variable `PERCOLATOR_MUTANT` names, if it is
/// set.
#[cfg(test)]
pub(crate) fn switch_off_named_mutant() {
    #[cfg(mutants)]
    if let Ok(name) = std::env::var("PERCOLATOR_MUTANT") {
        assert!(switch_off(&name), "there is no mutant {name}");
    }
}

//! Tests changes that may be lost: a power cut may take back the latest of them, but nothing
//! that was synced.

use std::collections::BTreeMap;
use std::path::Path;

use bigtable::{ConditionalMutation, Mutation, RowKey, RowMutation, Syncing, Table};
use bigtable_fjall::Durability;
use futures::executor::block_on;

use super::image::{self, Image, Tail, journal_end};
use crate::{PLAIN, contents, open, set};

/// The number of renewals of the row.
const RENEWALS: u64 = 6;
const RENEWED: &str = "renewed";

/// Renews a row as liveness tokens and the oracle's lease are renewed: it writes the same cell
/// again.
fn renew(table: &dyn Table, value: u64) {
    let mutation = Mutation::set(PLAIN, "q", bigtable::Timestamp::ZERO, value.to_string());
    match value % 2 {
        0 => {
            let renewal = RowMutation::new(RENEWED).mutation(mutation).sync(Syncing::MayBeLost);
            block_on(table.mutate_row(renewal)).unwrap();
        }
        _ => {
            let renewal = ConditionalMutation::new(RENEWED);
            let sync = Syncing::MayBeLost;
            let renewal = ConditionalMutation { otherwise: vec![mutation], sync, ..renewal };
            block_on(table.check_and_mutate_row(renewal)).unwrap();
        }
    }
}

fn values(table: &dyn Table) -> BTreeMap<RowKey, String> {
    let value = |row: &bigtable::Row| String::from_utf8(row.cells[0].value.to_vec()).unwrap();
    contents(table).iter().map(|row| (row.key.clone(), value(row))).collect()
}

/// A store with a synced row, renewals, another synced row, and more renewals. Also returns
/// the journal's end after each of the last renewals.
fn renewed() -> (Image, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path(), Durability::Sync);
    let synced = |row: &str| RowMutation::new(row).mutation(set(&PLAIN, 1, "synced"));
    block_on(table.mutate_row(synced("a"))).unwrap();
    (1..=RENEWALS).for_each(|value| renew(&*table, value));
    block_on(table.mutate_row(synced("b"))).unwrap();
    let image = Image::of(dir.path());
    let mut ends = vec![journal_end(dir.path())];
    for value in RENEWALS + 1..=2 * RENEWALS {
        renew(&*table, value);
        ends.push(journal_end(dir.path()));
    }
    (image.with_journal_of(dir.path()), ends)
}

/// Opens the image after a restart of the machine, then a second time without one, and checks
/// the content both times.
fn check(image: &Image, tail: Tail, least: u64) {
    let dir = image::directory();
    image.write(dir.path(), tail);
    started_again(dir.path());
    for again in [false, true] {
        let (store, table) = open(dir.path(), Durability::Sync);
        assert!(store.restarted() != again, "{tail:?}");
        store.acknowledge_restart().unwrap();
        let found = values(&*table);
        for row in ["a", "b"] {
            let value = found.get(&RowKey::from(row)).map(String::as_str);
            assert_eq!(value, Some("synced"), "{tail:?}: row {row}");
        }
        let renewal: u64 = found[&RowKey::from(RENEWED)].parse().unwrap();
        assert_eq!(renewal, if again { 99 } else { least }, "{tail:?}");
        // From now on, a restart may lose this renewal.
        renew(&*table, 99);
    }
}

fn started_again(dir: &Path) {
    let boot = dir.join("UNSYNCED");
    assert!(boot.exists(), "nothing says that changes were left unsynced");
    std::fs::write(boot, "an earlier start of the machine").unwrap();
}

#[test]
fn h71_every_opening_reports_a_restart_until_it_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, table) = open(dir.path(), Durability::Sync);
        renew(&*table, 1);
        // `close` syncs the whole journal and removes the mark. Put the mark back, as if the
        // process had been killed.
        let boot = std::fs::read(dir.path().join("UNSYNCED")).unwrap();
        store.close().unwrap();
        std::fs::write(dir.path().join("UNSYNCED"), boot).unwrap();
    }
    assert!(!open(dir.path(), Durability::Sync).0.restarted(), "the machine was not started again");
    std::fs::write(dir.path().join("UNSYNCED"), "an earlier start of the machine").unwrap();
    for opening in 0..3 {
        let (store, table) = open(dir.path(), Durability::Sync);
        assert!(store.restarted(), "opening {opening}");
        renew(&*table, opening);
        if opening == 2 {
            store.acknowledge_restart().unwrap();
        }
        store.close().unwrap();
    }
    assert!(!open(dir.path(), Durability::Sync).0.restarted(), "it was acknowledged");
}

#[test]
fn h71_renewals_are_lost_from_the_last_on_and_nothing_that_was_synced() {
    let (image, ends) = renewed();
    for (index, pair) in ends.windows(2).enumerate() {
        let lost = RENEWALS + index as u64;
        for cut in pair[0]..pair[1] {
            check(&image, Tail::Ends(cut), lost);
        }
        check(&image, Tail::Garbage(pair[0] + 1), lost);
        check(&image, Tail::Ends(pair[1]), lost + 1);
    }
}

#[test]
fn h71_a_renewal_that_did_not_reach_the_disk_takes_those_after_it_along() {
    let (image, ends) = renewed();
    for (index, pair) in ends.windows(2).enumerate() {
        check(&image, Tail::Hole { from: pair[0], to: pair[1] }, RENEWALS + index as u64);
        check(&image, Tail::Hole { from: pair[0] + 9, to: pair[1] }, RENEWALS + index as u64);
    }
}

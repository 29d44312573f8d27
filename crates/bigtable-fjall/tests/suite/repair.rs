//! Tests repairs: everything that can be saved of a damaged store is saved, and the losses are
//! reported beforehand.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::path::Path;

use bigtable::{Mutation, RowMutation, Store, TimeRange};
use bigtable_fjall::{Durability, FjallStore, Options, Problem, Repair, check};
use futures::executor::block_on;

use crate::damage::{Files, Harm, TABLES, Tables, directory, files_of, noise, read, store, write};
use crate::{NEWEST, PLAIN, files_error, options, schema, set, ts};

/// The number of acknowledged rows that are unchanged, and the number of all acknowledged
/// rows.
fn saved_rows(found: &Tables, acknowledged: &Tables) -> (usize, usize) {
    let of = |tables: &Tables| tables.values().map(Vec::len).sum::<usize>();
    let kept = acknowledged.iter().map(|(name, rows)| {
        let found = &found[name];
        rows.iter().filter(|row| found.contains(row)).count()
    });
    (kept.sum(), of(acknowledged))
}

#[test]
fn what_can_be_saved_is_saved_and_the_rest_is_named() {
    let (files, tables) = store(Durability::Sync, false);
    let pick = |part: &str| {
        let mut found = files.iter().filter(|(name, _)| name.to_string_lossy().contains(part));
        let (name, data) = found.next().unwrap_or_else(|| panic!("a file in {part}"));
        (name.clone(), data.clone())
    };
    let journal = pick("engine/0.jnl");
    let middle = journal.1.len() / 2;
    // No checksum covers the number of a batch, which begins five bytes after the end of the batch
    // before.
    let end = journal.1[middle..].windows(4).position(|bytes| bytes == b"FJL\x03").unwrap();
    for byte in 0..8 {
        let harm = Harm::Flip(middle + end + 4 + 5 + byte, 0x40);
        let what = format!("the number of a batch, {harm:?}");
        let (said, found) = repaired(&what, &files, |dir| harm.apply(dir, &journal.0, &journal.1));
        let (saved, all) = saved_rows(&found, &tables);
        assert!(saved + 1 >= all, "{what}: {saved} of {all} rows: {said}");
        assert!(said.contains("sound batches behind them are kept"), "{said}");
    }
    // For one file of each kind: a damage, and the most rows that may be lost with it.
    for ((name, data), harm, lost_max) in [
        (journal.clone(), Harm::Flip(middle, 0x55), 1),
        (journal.clone(), Harm::Cut(middle), 20),
        (pick("INVENTORY"), Harm::Remove, 0),
        (pick("keyspaces/2/tables"), Harm::Flip(200, 1), 100),
        (pick("keyspaces/2/blobs"), Harm::Flip(200, 1), 1),
        (pick("keyspaces/2/blobs"), Harm::Remove, 100),
        (pick("keyspaces/3/current"), Harm::Remove, 0),
    ] {
        let what = format!("{} {harm:?}", name.display());
        let (_, found) = repaired(&what, &files, |dir| harm.apply(dir, &name, &data));
        let (saved, all) = saved_rows(&found, &tables);
        assert!(saved + lost_max >= all, "{what}: {saved} of {all} rows");
    }
}

/// Damages a store, repairs it, and checks that the result is an ordinary store. Returns the
/// report before writing, and the content of the new store.
fn repaired(what: &str, files: &Files, harm: impl FnOnce(&Path)) -> (String, Tables) {
    let (dir, to) = (directory(), directory());
    write(dir.path(), files);
    harm(dir.path());
    let before = files_of(dir.path());
    let repair = Repair::plan(dir.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let problem = |p: &Problem| format!("{}: {}\n", p.path.display(), p.problem);
    let said = repair.dropped().iter().chain(repair.remade()).map(problem).collect::<String>();
    assert!(!said.is_empty(), "{what}");
    let to = to.path().join("new");
    repair.write(&to).unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(repair);
    assert!(files_of(dir.path()) == before, "{what}: the damaged store was changed");
    assert_eq!(check(&to, |_| Vec::new()).unwrap().problems, [], "{what}");
    let store = FjallStore::open(&to, Options::default()).unwrap();
    let found = read(&store).unwrap();
    let row = RowMutation::new("new").mutation(set(&PLAIN, 99, "v"));
    let table = block_on(store.open_table("t", &schema())).unwrap();
    block_on(table.mutate_row(row)).unwrap();
    (said, found)
}

/// Applies a damage to every file of a keyspace whose name begins with one of these.
fn each(dir: &Path, keyspace: u64, begins: &[&str], harm: &Harm) {
    let keyspace = format!("engine/keyspaces/{keyspace}");
    for entry in fs::read_dir(dir.join(&keyspace)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if begins.iter().any(|begin| name.starts_with(begin)) {
            let path = Path::new(&keyspace).join(name);
            let data = fs::read(dir.join(&path)).unwrap();
            harm.apply(dir, &path, &data);
        }
    }
}

#[test]
fn a_lost_list_of_keyspaces_is_made_anew_from_the_inventory() {
    let (files, tables) = store(Durability::Sync, false);
    let lost = [
        (&["current"][..], Harm::Remove),
        (&["current"], Harm::Flip(3, 0x10)),
        (&["v"], Harm::Flip(9, 0x10)),
        (&["v"], Harm::Remove),
        (&["v", "current"], Harm::Cut(0)),
    ];
    for (begins, harm) in lost {
        let what = format!("{begins:?} {harm:?}");
        let (said, found) = repaired(&what, &files, |dir| each(dir, 0, begins, &harm));
        assert!(said.contains("rebuilt from the inventory, and no data is lost"), "{what}: {said}");
        assert!(found == tables, "{what}");
    }
    for lost in ["engine/keyspaces/0", "engine/keyspaces/0/tables"] {
        let (_, found) = repaired(lost, &files, |dir| fs::remove_dir_all(dir.join(lost)).unwrap());
        assert!(found == tables, "{lost}");
    }
}

#[test]
fn a_lost_manifest_is_made_anew_from_the_files() {
    let (files, tables) = store(Durability::Sync, false);
    let keyspaces = (1..).take_while(|number| {
        files.contains_key(Path::new(&format!("engine/keyspaces/{number}/current")))
    });
    let keyspaces: Vec<u64> = keyspaces.collect();
    assert!(keyspaces.len() >= 5, "{keyspaces:?}");
    for keyspace in &keyspaces {
        for (begins, harm, says) in [
            (&["current"][..], Harm::Remove, "newest manifest names these files"),
            (&["v"], Harm::Flip(9, 0x10), "newest manifest names these files"),
            (&["v"], Harm::Cut(20), "a manifest is rebuilt"),
            (&["v", "current"], Harm::Remove, "a manifest is rebuilt"),
        ] {
            let what = format!("{keyspace} {begins:?} {harm:?}");
            let (said, found) = repaired(&what, &files, |dir| each(dir, *keyspace, begins, &harm));
            assert!(said.contains(says), "{what}: {said}");
            assert!(found == tables, "{what}");
        }
    }
    // A completely lost keyspace still has its cells in the journals.
    for keyspace in &keyspaces {
        let lost = format!("engine/keyspaces/{keyspace}");
        let (said, found) =
            repaired(&lost, &files, |dir| fs::remove_dir_all(dir.join(&lost)).unwrap());
        assert!(said.contains("0 of runs"), "{lost}: {said}");
        let (saved, _) = saved_rows(&found, &tables);
        assert!(*keyspace != 1 || saved > 0, "{lost}: {saved} rows");
    }
    // Remove all manifests, and the list of keyspaces.
    let (_, found) = repaired("all", &files, |dir| {
        [0].iter().chain(&keyspaces).for_each(|number| each(dir, *number, &["v"], &Harm::Remove));
    });
    assert!(found == tables);
}

/// The files are of different ages and overlap. In whichever order they are found, the last
/// write wins.
#[test]
fn cells_that_were_overwritten_and_removed_stay_so_without_a_manifest() {
    let dir = directory();
    for round in 0..4u64 {
        let options = Options { write_buffer_bytes: 64 << 10, ..options(Durability::Buffered) };
        let store = FjallStore::open(dir.path(), options).unwrap();
        for name in TABLES {
            let table = block_on(store.open_table(name, &schema())).unwrap();
            for row in 0..60 {
                let name = format!("row{row:02}");
                let row = RowMutation::new(name).mutation(match (row + round) % 5 {
                    0 => Mutation::delete(PLAIN, "q", TimeRange::at(ts(1))),
                    _ => Mutation::set(PLAIN, "q", ts(1), noise(2000, row * 7 + round)),
                });
                let row = row.mutation(set(&NEWEST, round + 1, "v"));
                block_on(table.mutate_row(row)).unwrap();
            }
        }
    }
    let store = FjallStore::open(dir.path(), Options::default()).unwrap();
    let tables = read(&store).unwrap();
    drop(store);
    let files = files_of(dir.path());
    let plain = files.keys().filter(|name| name.starts_with("engine/keyspaces/2/tables"));
    assert!(plain.count() >= 2, "several runs");
    let (_, found) = repaired("overlapping", &files, |dir| {
        (0..6).for_each(|number| each(dir, number, &["v", "current"], &Harm::Remove));
    });
    assert!(found == tables);
}

#[test]
fn a_file_that_cannot_be_read_is_named_when_its_manifest_is_made_anew() {
    let (files, tables) = store(Durability::Sync, false);
    let lost = files.keys().find(|name| name.starts_with("engine/keyspaces/2/tables")).unwrap();
    let (said, found) = repaired("a run without a manifest", &files, |dir| {
        each(dir, 2, &["v"], &Harm::Remove);
        Harm::Flip(200, 1).apply(dir, lost, &files[lost]);
    });
    assert!(said.contains(&*lost.to_string_lossy()), "{said}");
    let (saved, all) = saved_rows(&found, &tables);
    assert!(saved < all, "{said}");
}

/// Without the catalog, the tables are unknown. An empty store would be no repair.
#[test]
fn a_store_whose_catalog_is_lost_is_not_repaired_to_an_empty_one() {
    let (mut files, _) = store(Durability::Sync, false);
    files.retain(|name, _| !name.starts_with("engine/keyspaces/1"));
    // Some entries of the catalog are also in a journal.
    let journals = files.iter_mut().filter(|(name, _)| name.ends_with("0.jnl"));
    journals.for_each(|(_, data)| data.clear());
    let (dir, to) = (directory(), directory());
    write(dir.path(), &files);
    let to = to.path().join("new");
    let (problem, remedy) = files_error(Repair::plan(dir.path()).unwrap().write(&to));
    assert!(problem.contains("catalog") && remedy.contains("backup"), "{problem}: {remedy}");
    assert!(!to.exists());
}

#[test]
fn a_store_whose_names_are_lost_in_both_places_cannot_be_repaired() {
    let (files, _) = store(Durability::Sync, false);
    let dir = directory();
    write(dir.path(), &files);
    fs::remove_file(dir.path().join("engine/keyspaces/0/current")).unwrap();
    fs::remove_file(dir.path().join("INVENTORY")).unwrap();
    let (problem, remedy) = files_error(Repair::plan(dir.path()));
    assert!(problem.contains("name") && remedy.contains("backup"), "{problem}: {remedy}");
}

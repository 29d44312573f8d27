//! Tests that sound stores open after any kill or power cut, also with the traces of an
//! interrupted update of the inventory.
//!
//! Each image is derived from a number. `SOUND_IMAGES=10000` tests that many images; without
//! the variable there are fewer.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bigtable::{RowMutation, Store};
use bigtable_fjall::Durability;
use futures::executor::block_on;
use xxhash_rust::xxh3::xxh3_64;

use super::image::{self, Image, Tail};
use super::{SECTOR, Shown, rows_of, shown_by};
use crate::{NEWEST, open, set};

const IMAGES: u64 = 400;

/// Pseudo-random numbers that differ between images, and are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// A store in the middle of its work.
struct Base {
    durability: Durability,
    image: Image,
    shown: Vec<Shown>,
}

fn base(durability: Durability, reopened: bool) -> Base {
    let dir = image::directory();
    if reopened {
        let (store, table) = open(dir.path(), durability);
        (0..8).for_each(|number| super::step(&store, &*table, number));
    }
    let (store, table) = open(dir.path(), durability);
    let (image, shown) = shown_by(dir.path(), &store, &*table, 8..24);
    Base { durability, image, shown }
}

/// The event that the machine suffers.
#[derive(Debug)]
struct Drawn {
    tail: Tail,
    restarted: bool,
    leftovers: Vec<&'static str>,
}

fn draw(base: &Base, number: u64) -> Drawn {
    let mut draw = Draw(number.wrapping_mul(0x5851_F42D_4C95_7F2D));
    let shown = &base.shown;
    let end = shown[shown.len() - 1].end;
    // The batch that was being written.
    let torn = 1 + draw.below(shown.len() - 1);
    let (from, to) = (shown[torn - 1].end, shown[torn].end);
    let cut = from + draw.below(to - from);
    let restarted = draw.below(2) == 1;
    let tail = match draw.below(4) {
        0 => Tail::Ends(cut),
        1 => Tail::Zeroes(cut),
        // Unsynced data may have a hole anywhere, with sound batches behind it.
        2 if restarted && base.durability == Durability::Buffered => {
            Tail::Hole { from: cut, to: (cut + 1 + draw.below(3 * SECTOR)).min(end) }
        }
        _ => Tail::Ends(end),
    };
    let whole = matches!(tail, Tail::Ends(cut) if cut == end);
    let mut leftovers = Vec::new();
    for leftover in ["INVENTORY.new", "RECOVERIES.new", "no lock", "no second name"] {
        if draw.below(3) == 0 {
            leftovers.push(leftover);
        }
    }
    // A journal is begun or freed only when the journal before it is synced as a whole. The
    // same holds when the store notices that.
    if whole {
        leftovers.push(["begun", "begun and named", "freed", "let go of", "-"][draw.below(5)]);
    }
    Drawn { tail, restarted, leftovers }
}

fn inventory(dir: &Path) -> String {
    fs::read_to_string(dir.join("INVENTORY")).unwrap()
}

/// Rewrites the inventory with these journals.
fn set_journals(dir: &Path, journals: &[(u64, u64)]) {
    let text = inventory(dir);
    let kept = text.lines().filter(|line| !line.starts_with("journal") && !line.starts_with("sum"));
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    for (number, reaches) in journals {
        text.push_str(&format!("journal {number} reaches {reaches}\n"));
    }
    let sum = xxh3_64(text.as_bytes());
    fs::write(dir.join("INVENTORY"), format!("{text}sum {sum:016x}\n")).unwrap();
}

fn leave(dir: &Path, leftover: &str, number: u64) {
    let [engine, second] = ["engine", "journals"].map(|name| dir.join(name));
    let journal = |dir: &Path, number: u64| dir.join(format!("{number}.jnl"));
    match leftover {
        "INVENTORY.new" | "RECOVERIES.new" => {
            let text = inventory(dir);
            let part = usize::try_from(number).unwrap() % text.len();
            fs::write(dir.join(leftover), &text[..part]).unwrap();
        }
        "no lock" => fs::remove_file(engine.join("lock")).unwrap(),
        "no second name" => fs::remove_file(journal(&second, 0)).unwrap(),
        // The engine has begun another journal. The store has not seen it, or has only named
        // it.
        "begun" | "begun and named" => {
            let allocated = if number.is_multiple_of(2) { 0 } else { 70_000 };
            fs::write(journal(&engine, 1), vec![0; allocated]).unwrap();
            if leftover == "begun and named" {
                fs::hard_link(journal(&engine, 1), journal(&second, 1)).unwrap();
            }
        }
        // The engine has removed the journal before, and the store has not seen that.
        "freed" => {
            fs::write(journal(&engine, 1), []).unwrap();
            fs::write(journal(&second, 0), fs::read(journal(&engine, 0)).unwrap()).unwrap();
            fs::remove_file(journal(&engine, 0)).unwrap();
            set_journals(dir, &[(0, 0), (1, 0)]);
            fs::hard_link(journal(&engine, 1), journal(&second, 1)).unwrap();
        }
        // The inventory no longer lists a journal, but its second name still exists.
        "let go of" => {
            let old = engine.join("old");
            fs::write(&old, "an old journal").unwrap();
            fs::rename(journal(&engine, 0), journal(&engine, 1)).unwrap();
            fs::rename(old, journal(&second, 0)).unwrap();
            set_journals(dir, &[(1, 0)]);
        }
        _ => {}
    }
}

fn check(base: &Base, number: u64) {
    let drawn = draw(base, number);
    let what = || format!("{:?} image {number}: {drawn:?}", base.durability);
    let dir = image::directory();
    base.image.write(dir.path(), drawn.tail);
    if drawn.restarted && base.durability == Durability::Buffered {
        // The kernel gives each start of the machine an id. A crash may leave the file empty.
        let name = if number.is_multiple_of(3) { "" } else { "an earlier start" };
        fs::write(dir.path().join("UNSYNCED"), name).unwrap();
    }
    drawn.leftovers.iter().for_each(|leftover| leave(dir.path(), leftover, number));
    let (store, table) = open(dir.path(), base.durability);
    let found = (rows_of(&*table), store.floor());
    let kept =
        base.shown.iter().rposition(|shown| (&shown.rows, shown.floor) == (&found.0, found.1));
    let kept = kept.unwrap_or_else(|| panic!("{}: not the state after any batch", what()));
    let whole = base.image.whole_up_to(drawn.tail);
    let durable = base.shown.iter().rposition(|shown| shown.end <= whole).unwrap_or(0);
    assert_eq!(kept, durable, "{}", what());
    let more = RowMutation::new("after").mutation(set(&NEWEST, 99, "more"));
    block_on(table.mutate_row(more)).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let before = rows_of(&*table);
    drop((store, table));
    let (_store, table) = open(dir.path(), base.durability);
    assert_eq!(rows_of(&*table), before, "{}", what());
}

#[test]
fn sound_stores_open_whatever_is_left_of_them() {
    let images = std::env::var("SOUND_IMAGES").map_or(IMAGES, |text| text.parse().unwrap());
    let bases = [Durability::Sync, Durability::Buffered]
        .map(|durability| [false, true].map(|reopened| base(durability, reopened)));
    let bases: Vec<_> = bases.into_iter().flatten().collect();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= images {
                        return;
                    }
                    check(&bases[usize::try_from(number).unwrap() % bases.len()], number);
                }
            });
        }
    });
}

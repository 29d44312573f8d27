//! Tests kills at random moments: every acknowledged mutation survives as a whole, and no
//! mutation survives in part.
//!
//! The test runs its own binary as a child, which writes, and prints each acknowledgement on
//! its standard output. The parent kills the child, opens the store and compares.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bigtable::{ConditionalMutation, Mutation, Probe, Store, Table, TimeRange};
use bigtable_fjall::Durability;
use futures::executor::block_on;

use crate::{EACH, MEMORY, NEWEST, SPILL, contents, open, set, ts};

const DIR: &str = "BIGTABLE_FJALL_KILL_DIR";
const SYNC: &str = "BIGTABLE_FJALL_KILL_SYNC";
const WRITERS: u64 = 3;
const ROUNDS: u64 = 4;
const ACKNOWLEDGED: &str = "acknowledged";

fn row(writer: u64, number: u64) -> String {
    format!("{writer}/{number:06}")
}

/// The part of the test that runs in the child. Without the variable it does nothing.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let sync = std::env::var_os(SYNC).is_some();
    let durability = if sync { Durability::Sync } else { Durability::Buffered };
    let (store, table) = open(Path::new(&dir), durability);
    let done = progress(&*table);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, table, from) = (&store, &*table, done.get(&writer).copied().unwrap_or(0));
            scope.spawn(move || {
                // A kill may have come between a write and the floor that follows it.
                block_on(store.raise_floor(ts(from / 50 * 50))).unwrap();
                for number in from + 1.. {
                    write(table, writer, number);
                    if number % 50 == 0 {
                        block_on(store.raise_floor(ts(number))).unwrap();
                    }
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "{ACKNOWLEDGED} {writer} {number}").unwrap();
                }
            });
        }
    });
}

/// Writes like a Percolator transaction: a lock beside the data, then a write that replaces
/// the lock.
fn write(table: &dyn Table, writer: u64, number: u64) {
    let row = row(writer, number);
    let prewrite = ConditionalMutation {
        predicate: vec![
            Probe::new(MEMORY, "q", TimeRange::ALL),
            Probe::new(NEWEST, "q", TimeRange::since(ts(number))),
        ],
        otherwise: EACH.iter().filter(|f| **f != NEWEST).map(|f| set(f, number, "v")).collect(),
        ..ConditionalMutation::new(row.as_str())
    };
    let locked = block_on(table.check_and_mutate_row(prewrite)).expect("the prewrite is accepted");
    assert!(!locked);
    let commit = ConditionalMutation {
        predicate: vec![Probe::new(MEMORY, "q", TimeRange::at(ts(number)))],
        then: vec![
            set(&NEWEST, number, "old"),
            set(&NEWEST, number + 1, "new"),
            Mutation::delete(MEMORY, "q", TimeRange::at(ts(number))),
            Mutation::delete(SPILL, "q", TimeRange::at(ts(number))),
        ],
        ..ConditionalMutation::new(row.as_str())
    };
    let locked = block_on(table.check_and_mutate_row(commit)).expect("the commit is accepted");
    assert!(locked);
}

/// Returns the last number of each writer, after checking that no row is half written.
fn progress(table: &dyn Table) -> BTreeMap<u64, u64> {
    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    for row in contents(table) {
        let key = row.key.to_string();
        let (writer, number) = key.split_once('/').expect("a row of this test");
        let number_of = |text: &str| text.parse::<u64>().expect("a row of this test");
        let (writer, number) = (number_of(writer), number_of(number));
        let cells: Vec<_> = row.cells.iter().map(|c| (c.family.as_str(), c.timestamp)).collect();
        let (n, next) = (ts(number), ts(number + 1));
        if cells == [("newest", next), ("newest", n), ("plain", n)] {
            let last = done.entry(writer).or_default();
            assert_eq!(*last + 1, number, "writer {writer} skipped a row");
            *last = number;
        } else {
            // The row is prewritten but not committed. Only the last row of a killed writer
            // may be.
            let prewritten = [("memory", n), ("plain", n), ("spill", n)];
            assert_eq!(cells, prewritten, "row {key} is half written");
            let clear = ConditionalMutation {
                otherwise: EACH
                    .iter()
                    .map(|f| Mutation::delete(f.clone(), "q", TimeRange::ALL))
                    .collect(),
                ..ConditionalMutation::new(row.key)
            };
            block_on(table.check_and_mutate_row(clear)).expect("the row can be cleared");
        }
    }
    done
}

/// Parses writer and number from a line that reports an acknowledgement.
fn parse(line: &str) -> Option<(u64, u64)> {
    let (_, words) = line.split_once(ACKNOWLEDGED)?;
    let (writer, number) = words.trim_start().split_once(' ')?;
    Some((writer.parse().ok()?, number.parse().ok()?))
}

fn killed(sync: bool) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut command = Command::new(std::env::current_exe().expect("the test's own binary"));
        command.args(["kill::child", "--exact", "--nocapture"]).env(DIR, dir.path());
        if sync {
            command.env(SYNC, "");
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the child starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // The child is killed after this many acknowledgements. Its exact position then
        // depends on the machine.
        let mut until_kill = [40, 1, 97, 150][round as usize % 4];
        for line in lines.map_while(Result::ok) {
            // The last line may be incomplete.
            let Some((writer, number)) = parse(&line) else { continue };
            let last = acknowledged.entry(writer).or_default();
            *last = number.max(*last);
            until_kill -= 1;
            if until_kill == 0 {
                child.kill().expect("the child can be killed");
            }
        }
        let status = child.wait().expect("the child has ended");
        assert!(!status.success(), "the child ended of its own accord");
        let (store, table) = open(dir.path(), Durability::Buffered);
        let found = progress(&*table);
        for (writer, number) in &acknowledged {
            let found = found.get(writer).copied().unwrap_or(0);
            // More may be found than the child had reported.
            assert!(found >= *number, "writer {writer}: {number} acknowledged, {found} found");
            assert!(store.floor() >= ts(number / 50 * 50), "the floor went back");
        }
    }
}

#[test]
fn buffered() {
    killed(false);
}

#[test]
fn h14_h63_what_was_acknowledged_survives_a_kill() {
    killed(true);
}

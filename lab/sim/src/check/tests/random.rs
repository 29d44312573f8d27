//! Tests the checkers on random histories of snapshot isolation. Each is accepted as it is,
//! and rejected once it is broken in one place.
//!
//! A small simulator draws the histories: a map of committed versions, and open transactions that
//! read the map as of their start. A transaction is refused if its writes overlap with a commit.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ROWS: u16 = 4;

/// One step of the simulator, on the open transaction in this slot.
#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    Read(usize, u16),
    Scan(usize, u16, u16, usize),
    Write(usize, u16, bool),
    Commit(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (slot, row) = (0..4_usize, 0..ROWS);
    let step = prop_oneof![
        slot.clone().prop_map(Step::Begin),
        (slot.clone(), row.clone()).prop_map(|(t, row)| Step::Read(t, row)),
        (slot.clone(), row.clone(), 0..=ROWS, 1..4_usize)
            .prop_map(|(t, from, to, limit)| Step::Scan(t, from, to, limit)),
        (slot.clone(), row.clone(), any::<bool>()).prop_map(|(t, r, d)| Step::Write(t, r, d)),
        (slot.clone(), row).prop_map(|(t, row)| Step::Write(t, row, false)),
        (slot, any::<bool>()).prop_map(|(t, told)| Step::Commit(t, told)),
    ];
    vec(step, 10..120)
}

#[derive(Debug, Clone)]
struct Open {
    s: u64,
    ops: Vec<Op>,
    snapshot: BTreeMap<u16, u64>,
    own: BTreeMap<u16, bool>,
}

/// The state of the simulator, with the history so far.
#[derive(Debug, Default)]
struct Simulator {
    clock: u64,
    live: BTreeMap<u16, u64>,
    newest: BTreeMap<u16, u64>,
    history: History,
}

fn cell(row: u16) -> Cell {
    Cell { table: 0, row, column: 0 }
}

impl Simulator {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn run(steps: &[Step]) -> Self {
        let mut world = Simulator::default();
        let mut open: BTreeMap<usize, Open> = BTreeMap::new();
        for step in steps {
            match *step {
                Step::Begin(slot) => {
                    if open.contains_key(&slot) {
                        continue;
                    }
                    let (s, snapshot) = (world.tick(), world.live.clone());
                    let (ops, own) = (Vec::new(), BTreeMap::new());
                    open.insert(slot, Open { s, ops, snapshot, own });
                }
                Step::Commit(slot, told) => {
                    if let Some(txn) = open.remove(&slot) {
                        world.commit(txn, told);
                    }
                }
                Step::Read(slot, row) => {
                    if let Some(txn) = open.get_mut(&slot) {
                        txn.read(row);
                    }
                }
                Step::Scan(slot, from, to, limit) => {
                    if let Some(txn) = open.get_mut(&slot) {
                        txn.scan(from, to, limit);
                    }
                }
                Step::Write(slot, row, delete) => {
                    if let Some(txn) = open.get_mut(&slot) {
                        txn.write(row, delete);
                    }
                }
            }
        }
        for txn in open.into_values() {
            world.commit(txn, true);
        }
        world
    }

    fn commit(&mut self, open: Open, told: bool) {
        let clash = open.own.keys().any(|row| self.newest.get(row).is_some_and(|c| *c > open.s));
        if open.own.is_empty() || clash {
            add(&mut self.history, txn(open.s, Outcome::Aborted, &open.ops));
            return;
        }
        let c = self.tick();
        for (row, delete) in &open.own {
            self.newest.insert(*row, c);
            match delete {
                true => self.live.remove(row),
                false => self.live.insert(*row, open.s),
            };
        }
        add(&mut self.history, txn(open.s, Outcome::Committed(ts(c)), &open.ops));
        if !told {
            self.history.txns.last_mut().unwrap().outcome = Outcome::Unknown;
        }
    }
}

impl Open {
    fn sees(&self, row: u16) -> Option<u64> {
        match self.own.get(&row) {
            Some(delete) => (!delete).then_some(self.s),
            None => self.snapshot.get(&row).copied(),
        }
    }

    fn read(&mut self, row: u16) {
        self.ops.push(Op::Read { cell: cell(row), writer: self.sees(row).map(ts) });
    }

    fn scan(&mut self, from: u16, to: u16, limit: usize) {
        let rows = (0..ROWS).filter(|row| (from..to).contains(row));
        let found = rows.filter_map(|row| Some((cell(row), ts(self.sees(row)?))));
        let found = found.take(limit).collect();
        self.ops.push(Op::Scan { from: cell(from), to, limit, found });
    }

    fn write(&mut self, row: u16, delete: bool) {
        self.ops.push(Op::Write { cell: cell(row), delete });
        self.own.insert(row, delete);
    }
}

/// Breaks a history in the `n`th place where the given way of breaking applies. Returns
/// `false` if there is no such place.
fn break_one(history: &mut History, way: u8, n: usize) -> bool {
    let mut reads: Vec<_> = Vec::new();
    for (index, txn) in history.txns.iter().enumerate() {
        for (step, op) in txn.ops.iter().enumerate() {
            match op {
                Op::Read { .. } => reads.push((index, step)),
                Op::Scan { found, .. } if !found.is_empty() => reads.push((index, step)),
                Op::Scan { .. } | Op::Write { .. } => {}
            }
        }
    }
    let committed: Vec<_> = (0..history.txns.len())
        .filter(|i| matches!(history.txns[*i].outcome, Outcome::Committed(_)))
        .collect();
    let pick = |len: usize| (len > 0).then(|| n % len.max(1));
    match way {
        // One read returns something else, or one row of a scan is missing.
        0 => {
            let Some((index, step)) = pick(reads.len()).map(|i| reads[i]) else { return false };
            match &mut history.txns[index].ops[step] {
                Op::Read { writer: writer @ Some(_), .. } => *writer = None,
                Op::Read { writer, .. } => *writer = Some(ts(1)),
                Op::Scan { found, .. } => drop(found.remove(n % found.len())),
                Op::Write { .. } => return false,
            }
        }
        // One record is missing.
        1 => {
            let told: Vec<_> = committed.iter().map(|i| history.txns[*i].start_ts).collect();
            let of: Vec<_> = (0..history.records.len())
                .filter(|i| told.contains(&history.records[*i].start_ts))
                .collect();
            let Some(index) = pick(of.len()).map(|i| of[i]) else { return false };
            history.records.remove(index);
        }
        // One client received the opposite outcome.
        2 => {
            let Some(index) = pick(committed.len()).map(|i| committed[i]) else { return false };
            history.txns[index].outcome = Outcome::Aborted;
        }
        // One record has another commit timestamp: the start timestamp of its own transaction.
        3 => {
            let Some(index) = pick(history.records.len()) else { return false };
            history.records[index].commit_ts = history.records[index].start_ts;
        }
        // A transaction that was refused because of an overlap has committed nevertheless.
        _ => {
            let refused = |txn: &&Txn| {
                txn.outcome == Outcome::Aborted
                    && txn.ops.iter().any(|op| matches!(op, Op::Write { .. }))
            };
            let of: Vec<_> = history.txns.iter().filter(refused).collect();
            let Some(index) = pick(of.len()) else { return false };
            let mut again = of[index].clone();
            history.txns.retain(|txn| txn.start_ts != again.start_ts);
            history.stamps.retain(|(ts, ..)| *ts != again.start_ts);
            let c = history.stamps.iter().map(|(ts, ..)| ts.as_u64()).max().unwrap_or(0) + 1;
            again.outcome = Outcome::Committed(ts(c.max(again.start_ts.as_u64() + 1)));
            add(history, again);
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn snapshot_isolation_is_accepted(steps in steps()) {
        let world = Simulator::run(&steps);
        prop_assert_eq!(check(&world.history), []);
    }

    #[test]
    fn one_change_is_enough_to_be_rejected(steps in steps(), way in 0..5_u8, n in any::<usize>()) {
        let mut history = Simulator::run(&steps).history;
        prop_assume!(break_one(&mut history, way, n));
        prop_assert!(!check(&history).is_empty(), "{:#?}", history);
    }
}

/// Checks that the time of a check grows little faster than the length of the history.
#[test]
fn long_histories_are_checked_quickly() {
    let mut steps = Vec::new();
    for i in 0..60_000_u32 {
        let (slot, row) = ((i % 4) as usize, (i / 7 % u32::from(ROWS)) as u16);
        steps.extend([Step::Begin(slot), Step::Read(slot, row), Step::Write(slot, row, false)]);
        steps.push(Step::Commit(((i + 1) % 4) as usize, true));
    }
    let world = Simulator::run(&steps);
    assert!(world.history.txns.len() > 10_000);
    accepts(&world.history);
}

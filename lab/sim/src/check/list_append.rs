//! Cross-checks snapshot isolation without trusting any timestamp: transactions append to
//! lists and read them.
//!
//! Every element is appended once, so a list that was read gives the order of its writers. The
//! lists yield the dependencies between transactions (Elle's rules):
//!
//! ```text
//! ww   wrote the element right behind the other's
//! wr   read a list that ends with the other's element
//! rw   read a list to which the other appended next
//! ```
//!
//! Under snapshot isolation every cycle of dependencies contains two `rw` edges in a row. The
//! check infers no order from real time, and none among elements that no transaction read.

use std::collections::{BTreeMap, BTreeSet};

mod cycles;

use super::findings::report;
use crate::history::{Finding, Outcome};
use cycles::{Edge, Kind};

/// The names of this check's findings, after Adya.
pub mod anomaly {
    /// A cycle of writes.
    pub const G0: &str = "G0";
    /// A read of a transaction that aborted.
    pub const G1A: &str = "G1a";
    /// A read of an intermediate version.
    pub const G1B: &str = "G1b";
    /// A cycle of writes and reads.
    pub const G1C: &str = "G1c";
    /// A cycle with one anti-dependency: read skew, lost update.
    pub const G_SINGLE: &str = "G-single";
    /// A cycle with several anti-dependencies, no two of them adjacent: long fork.
    pub const G_NONADJACENT: &str = "G-nonadjacent";
    /// A transaction that does not see its own appends, or that reads two different lists of
    /// one key.
    pub const INTERNAL: &str = "internal";
    /// Two reads of one key where neither list is a prefix of the other.
    pub const INCOMPATIBLE_ORDER: &str = "incompatible order";
    /// An element that was never appended, or that occurs twice.
    pub const GARBAGE: &str = "garbage element";
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOp {
    /// Appends an element that no other step appends to this key.
    Append {
        /// The list.
        key: u64,
        /// The element.
        element: u64,
    },
    /// Reads a list; an absent one is empty.
    Read {
        /// The list.
        key: u64,
        /// Its elements.
        list: Vec<u64>,
    },
}

/// A transaction, in program order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListTxn {
    /// Its steps.
    pub ops: Vec<ListOp>,
    /// The outcome; the check ignores the commit timestamp.
    pub outcome: Outcome,
}

/// Checks that snapshot isolation allows a history of appends and reads.
pub fn check(txns: &[ListTxn]) -> Vec<Finding> {
    let mut lists = Lists { txns, ..Lists::default() };
    lists.collect_appends();
    lists.check_reads();
    lists.recover_orders();
    // The order of versions is unknown where reads contradict one another.
    if lists.findings.is_empty() {
        let edges = lists.edges();
        lists.findings.extend(cycles::find(txns.len(), &edges));
    }
    lists.findings
}

#[derive(Default)]
struct Lists<'a> {
    txns: &'a [ListTxn],
    /// Of each element, by key and element: the transaction that appended it, and whether this
    /// was its last append to that key.
    writers: BTreeMap<(u64, u64), (usize, bool)>,
    /// The longest list that was read of each key.
    orders: BTreeMap<u64, Vec<u64>>,
    findings: Vec<Finding>,
}

impl Lists<'_> {
    fn collect_appends(&mut self) {
        for (index, txn) in self.txns.iter().enumerate() {
            let mut last = BTreeMap::new();
            for op in &txn.ops {
                let ListOp::Append { key, element } = op else { continue };
                if let Some(before) = last.insert(*key, *element) {
                    self.writers.insert((*key, before), (index, false));
                }
                if self.writers.insert((*key, *element), (index, true)).is_some() {
                    self.note(anomaly::GARBAGE, format!("{element} of {key} is appended twice"));
                }
            }
        }
    }

    fn note(&mut self, property: &'static str, facts: String) {
        report(&mut self.findings, property, facts);
    }

    /// Checks each read by itself, and against the other steps of its transaction.
    fn check_reads(&mut self) {
        let txns = self.txns;
        for (index, txn) in txns.iter().enumerate() {
            // Once the transaction has read a key, it must read the same list again, plus its
            // own appends.
            let mut known: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut appended: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for op in &txn.ops {
                match op {
                    ListOp::Append { key, element } => {
                        appended.entry(*key).or_default().push(*element);
                        known.entry(*key).and_modify(|list| list.push(*element));
                    }
                    ListOp::Read { key, list } => {
                        self.check_list(index, *key, list);
                        let own = appended.get(key).map_or(&[][..], Vec::as_slice);
                        let as_before = known.get(key).is_none_or(|before| before == list);
                        if !list.ends_with(own) || !as_before {
                            let facts = format!("transaction {index} read {list:?} of {key}");
                            self.note(anomaly::INTERNAL, facts);
                        }
                        known.insert(*key, list.clone());
                    }
                }
            }
        }
    }

    fn check_list(&mut self, reader: usize, key: u64, list: &[u64]) {
        let distinct: BTreeSet<_> = list.iter().collect();
        if distinct.len() < list.len() {
            self.note(anomaly::GARBAGE, format!("{key} was read as {list:?}, with a repetition"));
        }
        for element in list {
            let Some((writer, _)) = self.writers.get(&(key, *element)).copied() else {
                self.note(anomaly::GARBAGE, format!("{element} of {key} was read, not appended"));
                continue;
            };
            if self.txns[writer].outcome == Outcome::Aborted && writer != reader {
                let facts = format!("transaction {reader} read {element} of {writer}, aborted");
                self.note(anomaly::G1A, facts);
            }
        }
        let last = list.last().and_then(|element| self.writers.get(&(key, *element)).copied());
        if let Some((writer, false)) = last
            && writer != reader
        {
            let facts = format!("transaction {reader} read {key} between two appends of {writer}");
            self.note(anomaly::G1B, facts);
        }
    }

    /// Recovers the order of each key's elements: the longest list, of which all others are
    /// prefixes.
    fn recover_orders(&mut self) {
        let mut reads: BTreeMap<u64, Vec<&[u64]>> = BTreeMap::new();
        for txn in self.txns {
            // A list that contains the reader's own appends proves nothing unless the reader
            // committed.
            let mut dirty = BTreeSet::new();
            for op in &txn.ops {
                match op {
                    ListOp::Append { key, .. } => drop(dirty.insert(*key)),
                    ListOp::Read { key, list } if !dirty.contains(key) => {
                        reads.entry(*key).or_default().push(list);
                    }
                    ListOp::Read { .. } => {}
                }
            }
        }
        for (key, mut lists) in reads {
            lists.sort_by_key(|list| list.len());
            for pair in lists.windows(2) {
                let [shorter, longer] = pair else { continue };
                if !longer.starts_with(shorter) {
                    let facts = format!("{key} was read as {shorter:?} and as {longer:?}");
                    report(&mut self.findings, anomaly::INCOMPATIBLE_ORDER, facts);
                }
            }
            let longest = lists.last().map(|list| list.to_vec());
            self.orders.insert(key, longest.unwrap_or_default());
        }
    }

    fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut connect = |from: usize, to: usize, kind: Kind| {
            if from != to {
                edges.push(Edge { from, to, kind });
            }
        };
        let unread = self.unread();
        for (key, order) in &self.orders {
            let writer = |element: &u64| self.writers[&(*key, *element)].0;
            let writers: Vec<usize> = order.iter().map(writer).collect();
            for pair in writers.windows(2) {
                connect(pair[0], pair[1], Kind::Ww);
            }
            if let Some(last) = writers.last() {
                for next in unread.get(key).into_iter().flatten() {
                    connect(*last, *next, Kind::Ww);
                }
            }
        }
        for (reader, txn) in self.txns.iter().enumerate() {
            let mut dirty = BTreeSet::new();
            for op in &txn.ops {
                match op {
                    ListOp::Append { key, .. } => drop(dirty.insert(*key)),
                    ListOp::Read { key, .. } if dirty.contains(key) => {}
                    ListOp::Read { key, list } => {
                        let writer = |element: &u64| self.writers[&(*key, *element)].0;
                        if let Some(last) = list.last() {
                            connect(writer(last), reader, Kind::Wr);
                        }
                        match self.orders[key].get(list.len()) {
                            Some(next) => connect(reader, writer(next), Kind::Rw),
                            None => {
                                for next in unread.get(key).into_iter().flatten() {
                                    connect(reader, *next, Kind::Rw);
                                }
                            }
                        }
                    }
                }
            }
        }
        edges
    }

    /// Committed writers whose elements were never read, by key: they come after all elements
    /// that were.
    fn unread(&self) -> BTreeMap<u64, Vec<usize>> {
        let of = |(key, order): (&u64, &Vec<u64>)| {
            let key = *key;
            order.iter().map(move |element| (key, *element)).collect::<Vec<_>>()
        };
        let read: BTreeSet<(u64, u64)> = self.orders.iter().flat_map(of).collect();
        let mut unread: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for ((key, element), (writer, last)) in &self.writers {
            let committed = matches!(self.txns[*writer].outcome, Outcome::Committed(_));
            if *last && committed && !read.contains(&(*key, *element)) {
                unread.entry(*key).or_default().push(*writer);
            }
        }
        unread
    }
}

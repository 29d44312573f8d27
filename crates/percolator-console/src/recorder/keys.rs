//! Finds hot keys. For each minute and kind of event, it keeps a sample of keys and the number
//! of events.
//!
//! A minute keeps at most 256 keys of each kind. Each event has the same chance to be kept (a
//! reservoir). The map of the last hour is computed from these samples at each request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use percolator::RowKey;
use percolator::store::sync::locked;
use serde::{Deserialize, Serialize};

use crate::cells::beginning;
use crate::recorder::wall_ms;

/// How many minutes are kept.
pub(crate) const MINUTES_MAX: usize = 60;
/// How many keys of each kind a minute keeps.
const KEPT_MAX: usize = 256;
/// How many bytes of a key are kept.
const KEY_BYTES_MAX: usize = 64;
/// The most tables that a minute distinguishes.
const TABLES_MAX: usize = 256;
/// How many of its hottest keys a row of a map names.
const HOT_MAX: usize = 3;

/// A kind of event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// A transaction was aborted because of the row.
    #[default]
    Conflict,
    /// A lock of another transaction was found in the row.
    Wait,
    /// The row was written.
    Write,
    /// The row was read.
    Read,
}

/// The samples.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    minutes: Mutex<Minutes>,
}

#[derive(Debug, Default)]
struct Minutes {
    /// The first minute that had an event. Of those before it nothing is known.
    began: Option<u64>,
    kept: VecDeque<Minute>,
}

#[derive(Debug)]
struct Minute {
    /// Since 1970.
    number: u64,
    kinds: [Reservoir; 4],
    tables: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone, Default)]
struct Reservoir {
    /// How many events there were, each counted for as many as it stands for.
    total: u64,
    /// How many were offered.
    offered: u64,
    kept: Vec<(Arc<str>, RowKey)>,
}

impl Reservoir {
    /// Offers a key, which is made only if the reservoir keeps it.
    fn offer(&mut self, stands_for: u64, at: impl FnOnce() -> (Arc<str>, RowKey)) {
        self.total += stands_for;
        self.offered += 1;
        if self.kept.len() < KEPT_MAX {
            return self.kept.push(at());
        }
        let place = rand::random_range(0..self.offered);
        if let Some(kept) = usize::try_from(place).ok().and_then(|i| self.kept.get_mut(i)) {
            *kept = at();
        }
    }
}

/// A heat map: rows of keys, columns of minutes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Map {
    /// When each minute began, in milliseconds since 1970.
    pub(crate) minutes: Vec<u64>,
    pub(crate) rows: Vec<MapRow>,
}

/// A range of keys of one table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MapRow {
    pub(crate) table: Arc<str>,
    pub(crate) first: RowKey,
    pub(crate) last: RowKey,
    /// How many keys of it were sampled.
    pub(crate) keys: usize,
    /// About how many events each minute had.
    pub(crate) values: Vec<f64>,
    /// The hottest keys.
    pub(crate) hot: Vec<(RowKey, f64)>,
}

impl MapRow {
    /// The bytes that all of its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        let (first, last) = (self.first.as_bytes(), self.last.as_bytes());
        beginning(first, common(first, last))
    }

    /// About how many events there were.
    pub(crate) fn total(&self) -> f64 {
        self.values.iter().sum()
    }
}

/// The length of what both begin with.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A key with its events by minute.
struct Hot<'m> {
    table: &'m Arc<str>,
    row: &'m RowKey,
    values: Vec<f64>,
    total: f64,
}

impl Keys {
    /// Offers an event that stands for so many.
    pub(crate) fn offer(&self, metric: Metric, table: &str, row: &RowKey, stands_for: u64) {
        self.offer_at(wall_ms() / 60_000, metric, (table, row), stands_for);
    }

    fn offer_at(
        &self,
        number: u64,
        metric: Metric,
        (table, row): (&str, &RowKey),
        stands_for: u64,
    ) {
        let mut minutes = locked(&self.minutes);
        minutes.began.get_or_insert(number);
        let minutes = &mut minutes.kept;
        // A clock that was set back counts in the newest minute.
        if minutes.back().is_none_or(|minute| minute.number < number) {
            if minutes.len() >= MINUTES_MAX {
                minutes.pop_front();
            }
            minutes.push_back(Minute {
                number,
                kinds: Default::default(),
                tables: BTreeSet::new(),
            });
        }
        let Some(minute) = minutes.back_mut() else { return };
        let table = match minute.tables.get(table) {
            Some(known) => known.clone(),
            None => {
                let table: Arc<str> = table.into();
                if minute.tables.len() < TABLES_MAX {
                    minute.tables.insert(table.clone());
                }
                table
            }
        };
        // A copy: a key may be a part of a page that was read.
        let copy = || RowKey::from(beginning(row.as_bytes(), KEY_BYTES_MAX).to_vec());
        minute.kinds[metric as usize].offer(stands_for, || (table, copy()));
    }

    /// Makes a map of the last minutes, of about so many rows.
    pub(crate) fn map(&self, metric: Metric, minutes: usize, rows_max: usize) -> Map {
        self.map_at(wall_ms() / 60_000, metric, minutes, rows_max)
    }

    fn map_at(&self, now: u64, metric: Metric, shown: usize, rows_max: usize) -> Map {
        let (now, first, minutes) = self.since(now, metric, shown);
        let shown = (now + 1).saturating_sub(first) as usize;
        let mut hot = BTreeMap::<(&Arc<str>, &RowKey), Hot<'_>>::new();
        for (number, of) in &minutes {
            let weight = of.total as f64 / of.kept.len().max(1) as f64;
            for (table, row) in &of.kept {
                let fresh = || Hot { table, row, values: vec![0.0; shown], total: 0.0 };
                let key = hot.entry((table, row)).or_insert_with(fresh);
                key.values[(number - first) as usize] += weight;
                key.total += weight;
            }
        }
        let hot: Vec<Hot<'_>> = hot.into_values().collect();
        let rows = cut(&hot, rows_max).into_iter().map(|range| row_of(&hot[range])).collect();
        Map { minutes: (first..=now).map(|minute| minute * 60_000).collect(), rows }
    }

    /// The last and the first minute to show, and copies of the samples of these minutes. Events
    /// wait for the copying alone, not for the map.
    fn since(&self, now: u64, metric: Metric, shown: usize) -> (u64, u64, Vec<(u64, Reservoir)>) {
        let known = locked(&self.minutes);
        let now = known.kept.back().map_or(now, |newest| now.max(newest.number));
        let first = (now + 1).saturating_sub(shown as u64).max(known.began.unwrap_or(now));
        let wanted = known.kept.iter().filter(|minute| minute.number >= first);
        let copy = |minute: &Minute| (minute.number, minute.kinds[metric as usize].clone());
        (now, first, wanted.map(copy).collect())
    }
}

/// Cuts keys into ranges with about the same number of events. Each range lies within one
/// table. Where possible, a cut is made between keys that differ early.
fn cut(hot: &[Hot<'_>], rows_max: usize) -> Vec<std::ops::Range<usize>> {
    let all: f64 = hot.iter().map(|key| key.total).sum();
    let enough = if hot.len() <= rows_max { 0.0 } else { all / rows_max.max(1) as f64 };
    let (mut ranges, mut begin) = (Vec::new(), 0);
    while begin < hot.len() {
        let (mut end, mut sum) = (begin, 0.0);
        // The best end so far: where the keys beside it have least in common.
        let mut best: Option<(usize, usize)> = None;
        while end < hot.len() && hot[end].table == hot[begin].table {
            // A hot key makes a range of its own.
            if end > begin && hot[end].total >= enough && enough > 0.0 {
                best = None;
                break;
            }
            sum += hot[end].total;
            end += 1;
            if sum < enough {
                continue;
            }
            let same = hot
                .get(end)
                .filter(|next| next.table == hot[begin].table)
                .map_or(0, |next| common(hot[end - 1].row.as_bytes(), next.row.as_bytes()));
            if best.is_none_or(|(_, least)| same < least) {
                best = Some((end, same));
            }
            if sum >= enough * 1.5 {
                break;
            }
        }
        let end = best.map_or(end, |(end, _)| end);
        ranges.push(begin..end);
        begin = end;
    }
    ranges
}

fn row_of(keys: &[Hot<'_>]) -> MapRow {
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let mut values = vec![0.0; first.values.len()];
    for key in keys {
        values.iter_mut().zip(&key.values).for_each(|(sum, value)| *sum += value);
    }
    let mut hot: Vec<(RowKey, f64)> = keys.iter().map(|key| (key.row.clone(), key.total)).collect();
    hot.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    hot.truncate(HOT_MAX);
    MapRow {
        table: first.table.clone(),
        first: first.row.clone(),
        last: last.row.clone(),
        keys: keys.len(),
        values,
        hot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(keys: &Keys, minute: u64, table: &str, row: &str, times: usize) {
        for _ in 0..times {
            keys.offer_at(minute, Metric::Conflict, (table, &row.into()), 1);
        }
    }

    #[test]
    fn few_keys_have_a_row_each_and_minutes_a_column_each() {
        let keys = Keys::default();
        offer(&keys, 100, "t", "a", 3);
        offer(&keys, 101, "t", "a", 1);
        offer(&keys, 101, "u", "a", 2);
        keys.offer_at(101, Metric::Read, ("t", &"a".into()), 64);
        let map = keys.map_at(102, Metric::Conflict, 3, 10);
        assert_eq!(map.minutes, [6_000_000, 6_060_000, 6_120_000]);
        let shown: Vec<_> = map.rows.iter().map(|row| (&*row.table, row.values.clone())).collect();
        assert_eq!(shown, [("t", vec![3.0, 1.0, 0.0]), ("u", vec![0.0, 2.0, 0.0])]);
        assert_eq!(map.rows[0].hot, [("a".into(), 4.0)]);
        let read = keys.map_at(101, Metric::Read, 1, 10);
        assert_eq!(read.rows[0].values, [64.0]);
        assert_eq!(keys.map_at(200, Metric::Conflict, 60, 10).rows, []);
    }

    #[test]
    fn a_minute_keeps_a_sample_and_the_number_of_all() {
        let keys = Keys::default();
        for n in 0..20_000 {
            let row = if n % 2 == 0 { "hot".to_owned() } else { format!("cold{n:05}") };
            offer(&keys, 7, "t", &row, 1);
        }
        assert_eq!(locked(&keys.minutes).kept[0].kinds[0].kept.len(), KEPT_MAX);
        let map = keys.map_at(7, Metric::Conflict, 1, 20);
        let total: f64 = map.rows.iter().map(MapRow::total).sum();
        assert!((total - 20_000.0).abs() < 1.0, "{total}");
        let hot = map.rows.iter().find(|row| row.first == "hot".into()).unwrap();
        assert!((7_000.0..13_000.0).contains(&hot.total()), "{hot:?}");
        // A row has the share of one in twenty, or half as much again; half is in the hot one.
        assert!((5..=23).contains(&map.rows.len()), "{} rows", map.rows.len());
        let cold = &map.rows[0];
        assert!(cold.keys > 1 && cold.prefix().starts_with(b"cold"), "{cold:?}");
    }

    #[test]
    fn rows_are_cut_where_keys_differ_early() {
        let keys = Keys::default();
        for host in ["a.example", "b.example", "c.example"] {
            for page in 0..20 {
                offer(&keys, 1, "docs", &format!("https://{host}/{page:02}"), 1);
            }
        }
        let map = keys.map_at(1, Metric::Conflict, 1, 4);
        let prefixes: Vec<_> =
            map.rows.iter().map(|row| String::from_utf8_lossy(row.prefix()).into_owned()).collect();
        let hosts = ["https://a.example/", "https://b.example/", "https://c.example/"];
        assert_eq!(prefixes, hosts, "{prefixes:?}");
    }

    #[test]
    fn an_hour_is_kept_and_long_keys_are_cut() {
        let keys = Keys::default();
        for minute in 0..200 {
            offer(&keys, minute, "t", &"k".repeat(500), 1);
        }
        assert_eq!(locked(&keys.minutes).kept.len(), MINUTES_MAX);
        // The clock was set back.
        offer(&keys, 3, "t", "late", 1);
        let map = keys.map_at(199, Metric::Conflict, MINUTES_MAX, 10);
        assert_eq!(map.rows[0].first.as_bytes().len(), KEY_BYTES_MAX);
        assert_eq!((map.rows[0].total(), map.rows[1].total()), (60.0, 1.0));
    }

    #[test]
    fn keys_are_cut_between_characters() {
        let keys = Keys::default();
        // The bound lies within a character of each.
        for end in ["é", "è"] {
            offer(&keys, 1, "long", &format!("x{}", end.repeat(KEY_BYTES_MAX)), 1);
            offer(&keys, 1, "short", &format!("caf{end}"), 1);
        }
        let map = keys.map_at(1, Metric::Conflict, 1, 1);
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().to_owned();
        let [long, short] = &map.rows[..] else { panic!("{map:?}") };
        for key in [&long.first, &long.last] {
            assert_eq!(text(key.as_bytes()).len(), KEY_BYTES_MAX - 1);
        }
        assert_eq!((text(long.prefix()), text(short.prefix())), ("x".into(), "caf".into()));
        // Bytes that are no text are cut at the bound, and a key that is no longer not at all.
        for bytes in [vec![0x80; KEY_BYTES_MAX + 1], vec![0xc3]] {
            keys.offer_at(1, Metric::Read, ("t", &bytes.into()), 1);
        }
        let map = keys.map_at(1, Metric::Read, 1, 10);
        let lengths = map.rows.iter().map(|row| row.first.as_bytes().len());
        assert_eq!(lengths.collect::<Vec<_>>(), [KEY_BYTES_MAX, 1]);
    }
}

//! Draws filters: of every kind, nested, within the behaviour that both servers promise.

use rand::Rng;

use super::super::*;
use super::draw::{Draw, FUTURE};
use crate::proto::data::column_range::{EndQualifier, StartQualifier};
use crate::proto::data::row_filter::{Chain, Condition, Interleave};
use crate::proto::data::value_range::{EndValue, StartValue};
use crate::proto::data::{ColumnRange, ValueRange};

/// Greatest depth of drawn filters.
const DEPTH_MAX: usize = 4;
const PATTERNS: [&[u8]; 16] = [
    b"",
    b"q",
    b"q.*",
    b".*",
    b"\\C*",
    b"[a-r]",
    b"|q",
    b"\\x80\\x80",
    b"\x80*",
    b"[\\x7f\\x80]{2}",
    b"\\C{2}",
    b"v|w",
    b"v\\nw",
    b"[^q]*",
    b"(v|w)+",
    b"z\\.\\*",
];
const FAMILIES: [&str; 6] = ["f", "g|h", ".*", "[^f]", "f", "none"];
const KEYS: [&[u8]; 8] =
    [b"a.*", b"b/[0-9]", b"\\C*", b".*", b"row-.*", b"a\\x00|x y", b"\\xff+", b"\\C*\\xff"];
const BAD: [&[u8]; 6] = [b"[", b"(", b"*", b"a{2,1}", b"\\8", b"(?z)"];

/// Facts about the cells that reach a filter.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    depth: usize,
    /// All cells are of one family (exclusion `families`).
    one_family: bool,
    /// Some cells have the same column and time, but differ (exclusion `equals`).
    equals: bool,
    /// The cells have a label (exclusion `labels`).
    labelled: bool,
    /// The filter is a predicate, so only the presence of cells counts (exclusion `offset`).
    predicate: bool,
}

/// The effect of a filter on these facts.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    one_family: bool,
    equals: bool,
    labels: bool,
    strips: bool,
}

/// Draws filters.
pub(super) struct Filters<'a>(&'a mut Draw);

impl<'a> Filters<'a> {
    pub(super) fn of(draw: &'a mut Draw) -> Self {
        Filters(draw)
    }

    pub(super) fn any(&mut self) -> RowFilter {
        self.filter(Flow::default()).0
    }

    /// Draws a filter that every server refuses.
    pub(super) fn wrong(&mut self) -> RowFilter {
        let bad = self.0.pick(&BAD);
        let wrong = filter(match self.0.rng.random_range(0..4) {
            0 => WireFilter::ColumnQualifierRegexFilter(bad.into()),
            1 => WireFilter::ValueRegexFilter(bad.into()),
            2 => WireFilter::RowKeyRegexFilter(bad.into()),
            _ => WireFilter::RowSampleFilter(self.0.pick(&[0.0, 1.0, -0.5, 2.0])),
        });
        let pass = || filter(WireFilter::PassAllFilter(true));
        match self.0.rng.random_range(0..4) {
            0 => filter(WireFilter::Chain(Chain { filters: vec![wrong, pass()] })),
            1 => filter(WireFilter::Interleave(Interleave { filters: vec![wrong, pass()] })),
            2 => filter(WireFilter::Condition(Box::new(Condition {
                predicate_filter: Some(Box::new(wrong)),
                true_filter: Some(Box::new(pass())),
                false_filter: None,
            }))),
            _ => wrong,
        }
    }

    fn filter(&mut self, flow: Flow) -> (RowFilter, Done) {
        let nest = flow.depth < DEPTH_MAX && self.0.one_in(2);
        let unchanged =
            Done { one_family: flow.one_family, equals: flow.equals, ..Done::default() };
        let inner = Flow { depth: flow.depth + 1, ..flow };
        if !nest {
            return self.leaf(flow, unchanged);
        }
        match self.0.rng.random_range(0..10) {
            0..5 => self.chain(inner),
            5..8 => self.interleave(inner, unchanged),
            _ => self.condition(inner, unchanged),
        }
    }

    fn chain(&mut self, mut flow: Flow) -> (RowFilter, Done) {
        let mut all = Done { one_family: flow.one_family, equals: flow.equals, ..Done::default() };
        let count = self.0.rng.random_range(2..5);
        let filters = (0..count).map(|_| {
            let (filter, done) = self.filter(flow);
            (flow.one_family, flow.equals) = (done.one_family, done.equals);
            flow.labelled |= done.labels;
            all = Done {
                one_family: done.one_family,
                equals: done.equals,
                labels: all.labels | done.labels,
                strips: all.strips | done.strips,
            };
            filter
        });
        (filter(WireFilter::Chain(Chain { filters: filters.collect() })), all)
    }

    fn interleave(&mut self, flow: Flow, unchanged: Done) -> (RowFilter, Done) {
        let mut all = unchanged;
        let count = self.0.rng.random_range(2..4);
        let filters = (0..count).map(|_| {
            let (filter, done) = self.filter(flow);
            all.labels |= done.labels;
            all.strips |= done.strips;
            all.equals |= done.equals;
            filter
        });
        let filters = filters.collect();
        all.equals |= all.labels | all.strips;
        (filter(WireFilter::Interleave(Interleave { filters })), all)
    }

    fn condition(&mut self, flow: Flow, unchanged: Done) -> (RowFilter, Done) {
        let mut all = unchanged;
        let (predicate, _) = self.filter(Flow { predicate: true, ..flow });
        let mut branch = || {
            let (filter, done) = self.filter(flow);
            all.labels |= done.labels;
            all.strips |= done.strips;
            all.equals |= done.equals;
            Box::new(filter)
        };
        let (mut then, mut other) = (Some(branch()), Some(branch()));
        match self.0.rng.random_range(0..6) {
            0 => then = None,
            1 => other = None,
            _ => {}
        }
        let condition = Condition {
            predicate_filter: Some(Box::new(predicate)),
            true_filter: then,
            false_filter: other,
        };
        (filter(WireFilter::Condition(Box::new(condition))), all)
    }

    fn leaf(&mut self, flow: Flow, unchanged: Done) -> (RowFilter, Done) {
        let mut done = unchanged;
        let old = self.0.emulator.old;
        let leaf = match self.0.rng.random_range(0..20) {
            0 => WireFilter::PassAllFilter(true),
            1 if self.0.one_in(3) => WireFilter::BlockAllFilter(true),
            1 | 2 => WireFilter::RowKeyRegexFilter(self.0.pick(&KEYS).into()),
            3..5 => {
                let pattern = self.0.pick(&FAMILIES);
                done.one_family |= pattern == "f";
                WireFilter::FamilyNameRegexFilter(pattern.to_owned())
            }
            5 | 6 => WireFilter::ColumnQualifierRegexFilter(self.pattern()),
            7..10 => {
                done.one_family = true;
                WireFilter::ColumnRangeFilter(self.columns())
            }
            10 | 11 => WireFilter::TimestampRangeFilter(self.times()),
            12 => WireFilter::ValueRegexFilter(self.pattern()),
            13 => WireFilter::ValueRangeFilter(self.values()),
            14 if flow.one_family && !flow.equals && !flow.predicate && !old => {
                WireFilter::CellsPerRowOffsetFilter(self.0.rng.random_range(1..5))
            }
            15 if flow.one_family && !flow.equals => {
                WireFilter::CellsPerRowLimitFilter(self.0.rng.random_range(1..5))
            }
            14..18 if !flow.equals => {
                WireFilter::CellsPerColumnLimitFilter(self.0.rng.random_range(1..4))
            }
            18 if !flow.labelled => {
                done.labels = true;
                WireFilter::ApplyLabelTransformer(self.0.pick(&["one", "two-2"]).to_owned())
            }
            // Exclusion `labels`.
            _ if !flow.labelled => {
                done.strips = true;
                WireFilter::StripValueTransformer(true)
            }
            _ => WireFilter::PassAllFilter(true),
        };
        (filter(leaf), done)
    }

    /// Draws a pattern. Exclusion `old`: patterns of bytes that are no text.
    fn pattern(&mut self) -> bigtable::Bytes {
        loop {
            let pattern = self.0.pick(&PATTERNS);
            if !self.0.emulator.old || pattern.is_ascii() {
                return bigtable::Bytes::from_static(pattern);
            }
        }
    }

    fn columns(&mut self) -> ColumnRange {
        let (mut from, mut to) = (self.0.qualifier(), self.0.qualifier());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let start_qualifier = match self.0.rng.random_range(0..5) {
            0 => None,
            1 => Some(StartQualifier::StartQualifierOpen(from.clone())),
            _ => Some(StartQualifier::StartQualifierClosed(from.clone())),
        };
        let end_qualifier = match self.0.rng.random_range(0..5) {
            0 => None,
            1 => Some(EndQualifier::EndQualifierOpen(to)),
            2 | 3 => Some(EndQualifier::EndQualifierClosed(to)),
            // One column.
            _ => Some(EndQualifier::EndQualifierClosed(from)),
        };
        ColumnRange { family_name: self.0.family(), start_qualifier, end_qualifier }
    }

    fn values(&mut self) -> ValueRange {
        let (mut from, mut to) = (self.0.value(), self.0.value());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let start_value = match self.0.rng.random_range(0..3) {
            0 => None,
            1 => Some(StartValue::StartValueOpen(from)),
            _ => Some(StartValue::StartValueClosed(from)),
        };
        let end_value = match self.0.rng.random_range(0..3) {
            0 => None,
            1 => Some(EndValue::EndValueOpen(to)),
            _ => Some(EndValue::EndValueClosed(to)),
        };
        ValueRange { start_value, end_value }
    }

    fn times(&mut self) -> TimestampRange {
        let step = if self.0.emulator.old { 1000 } else { self.0.pick(&[1000, 1000, 500]) };
        let start = self.0.rng.random_range(0..10);
        let end = match self.0.rng.random_range(0..5) {
            0 => 0,
            1 => FUTURE,
            _ => self.0.rng.random_range(start..18) * step,
        };
        TimestampRange { start_timestamp_micros: start * step, end_timestamp_micros: end }
    }
}

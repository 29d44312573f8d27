//! Draws random requests from few names, values and times, so that they often concern the same
//! cells.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::super::*;
use super::ask::Request;
use super::filters::Filters;
use crate::families::entries;
use crate::proto::admin::drop_row_range_request::Target;
use crate::proto::admin::gc_rule::Rule as GcKind;
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::table::View;
use crate::proto::admin::{
    DeleteTableRequest, DropRowRangeRequest, GcRule, GetTableRequest, ListTablesRequest,
    ModifyColumnFamiliesRequest,
};
use crate::proto::data::mutate_rows_request::Entry;
use crate::proto::data::read_modify_write_rule::Rule;
use crate::proto::data::row_range::{EndKey, StartKey};
use crate::proto::data::{
    CheckAndMutateRowRequest, MutateRowsRequest, ReadModifyWriteRowRequest, ReadModifyWriteRule,
    RowRange, SampleRowKeysRequest,
};

/// The year 2100: later than the current time of any server.
pub(super) const FUTURE: i64 = 4_102_444_800_000_000;
/// The table with the data, and the one that is created and deleted.
const DATA: &str = "t";
const OTHER: &str = "u";
const FAMILIES: [&str; 3] = ["f", "g", "h"];
const KEYS: [&[u8]; 14] = [
    b"a",
    b"a\0",
    b"ab",
    b"b",
    b"b/1",
    b"b/2",
    b"c\xff",
    b"row-10",
    b"row-2",
    b"x y",
    b"x\n",
    b"\x80\x81",
    b"\xff\xff",
    b"\xff\xff\xff",
];
const PREFIXES: [&[u8]; 8] = [b"a", b"b/", b"row-", b"\xff", b"\xff\xff\xff", b"x", b"none", b"c"];
pub(super) const QUALIFIERS: [&[u8]; 6] = [b"", b"q", b"q\0", b"r", b"\x80\x80", b"z.*"];
pub(super) const VALUES: [&[u8]; 7] =
    [b"", b"v", b"w", b"v\nw", b"\0\xff", b"\0\0\0\0\0\0\0\x07", b"long long long long long"];

/// The abilities of the emulator; see the list of exclusions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emulator {
    /// True for the version of 2020, built from Debian's packages.
    pub(super) old: bool,
}

/// Draws the requests of one seed.
pub(super) struct Draw {
    pub(super) rng: StdRng,
    pub(super) emulator: Emulator,
}

impl Draw {
    pub(super) fn new(seed: u64, emulator: Emulator) -> Self {
        Draw { rng: StdRng::seed_from_u64(seed), emulator }
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_ratio(1, n)
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from.choose(&mut self.rng).expect("something to choose from").clone()
    }

    /// The first requests. They create the families one by one, so that these have an order.
    pub(super) fn first() -> Vec<Request> {
        let mut requests = vec![create(DATA, None)];
        requests.extend(FAMILIES.map(|family| families(DATA, family, create_family(None))));
        requests
    }

    /// The requests of a run, which begins with empty tables.
    pub(super) fn requests(&mut self, count: usize) -> Vec<Request> {
        let mut requests = Draw::first();
        while requests.len() < count {
            if self.one_in(40) && !self.emulator.old {
                requests.extend(self.family_that_goes())
            } else {
                requests.push(self.request())
            }
        }
        requests
    }

    fn request(&mut self) -> Request {
        match self.rng.random_range(0..100) {
            0..38 => Request::Read(self.read()),
            38..40 => Request::Wrong(self.wrong()),
            40..58 => Request::Mutate(self.mutate()),
            58..66 => Request::MutateMany(self.mutate_many()),
            66..82 => Request::Check(self.check()),
            82..90 => Request::Modify(self.modify()),
            90..92 => {
                let table_name = self.table();
                Request::Sample(SampleRowKeysRequest { table_name, ..Default::default() })
            }
            92..94 => self.drop_rows(),
            _ => self.admin(),
        }
    }

    /// Draws a table: usually the one with the data.
    fn table(&mut self) -> String {
        let table = if self.one_in(40) { self.pick(&["none", OTHER]) } else { DATA };
        table.to_owned()
    }

    /// Draws a table for writes. The other table may lack families, so it is left out
    /// (exclusion `partly`).
    fn written(&mut self) -> String {
        let table = if self.one_in(40) { "none" } else { DATA };
        table.to_owned()
    }

    pub(super) fn family(&mut self) -> String {
        self.pick(&FAMILIES).to_owned()
    }

    fn key(&mut self) -> bigtable::Bytes {
        bigtable::Bytes::from_static(self.pick(&KEYS))
    }

    pub(super) fn qualifier(&mut self) -> bigtable::Bytes {
        bigtable::Bytes::from_static(self.pick(&QUALIFIERS))
    }

    pub(super) fn value(&mut self) -> bigtable::Bytes {
        bigtable::Bytes::from_static(self.pick(&VALUES))
    }

    fn read(&mut self) -> ReadRowsRequest {
        let rows = if self.one_in(3) { None } else { Some(self.rows()) };
        let mut request = ReadRowsRequest {
            table_name: self.table(),
            rows,
            rows_limit: if self.one_in(3) { self.rng.random_range(1..6) } else { 0 },
            reversed: !self.emulator.old && self.one_in(5),
            ..ReadRowsRequest::default()
        };
        if !self.one_in(5) {
            request.filter = Some(Filters::of(self).any());
        }
        request
    }

    fn wrong(&mut self) -> ReadRowsRequest {
        ReadRowsRequest {
            table_name: DATA.to_owned(),
            filter: Some(Filters::of(self).wrong()),
            ..ReadRowsRequest::default()
        }
    }

    fn rows(&mut self) -> RowSet {
        let row_keys = (0..self.rng.random_range(0..4)).map(|_| self.key()).collect();
        let row_ranges = (0..self.rng.random_range(0..3)).map(|_| self.range()).collect();
        RowSet { row_keys, row_ranges }
    }

    /// Draws a range, sometimes a backwards one.
    fn range(&mut self) -> RowRange {
        let start_key = match self.rng.random_range(0..5) {
            0 => None,
            1..3 => Some(StartKey::StartKeyOpen(self.key())),
            // Exclusion `bounds`.
            3 if self.one_in(4) => Some(StartKey::StartKeyClosed(bigtable::Bytes::new())),
            _ => Some(StartKey::StartKeyClosed(self.key())),
        };
        let end_key = match self.rng.random_range(0..5) {
            0 => None,
            1 if self.one_in(4) => Some(EndKey::EndKeyOpen(bigtable::Bytes::new())),
            1..3 => Some(EndKey::EndKeyOpen(self.key())),
            _ => Some(EndKey::EndKeyClosed(self.key())),
        };
        let mut range = RowRange { start_key, end_key };
        if !self.one_in(10) {
            forwards(&mut range);
        }
        range
    }

    /// Draws the time of a cell.
    fn time(&mut self) -> i64 {
        if self.one_in(30) { FUTURE } else { self.rng.random_range(0..8) * 1000 }
    }

    fn mutation(&mut self) -> Mutation {
        let (family_name, column_qualifier) = (self.family(), self.qualifier());
        mutation(match self.rng.random_range(0..20) {
            0..14 => Wire::SetCell(SetCell {
                family_name,
                column_qualifier,
                timestamp_micros: self.time(),
                value: self.value(),
            }),
            14..18 => {
                let time_range = if self.one_in(3) { None } else { Some(self.times()) };
                Wire::DeleteFromColumn(DeleteFromColumn {
                    family_name,
                    column_qualifier,
                    time_range,
                })
            }
            18 => Wire::DeleteFromFamily(DeleteFromFamily { family_name }),
            _ => Wire::DeleteFromRow(DeleteFromRow {}),
        })
    }

    /// Draws a range of times for a deletion.
    fn times(&mut self) -> TimestampRange {
        let start = self.rng.random_range(0..8);
        let end = if self.one_in(4) { 0 } else { self.rng.random_range(start + 1..10) };
        TimestampRange { start_timestamp_micros: start * 1000, end_timestamp_micros: end * 1000 }
    }

    /// Draws a mutation that every server refuses. It comes first or alone (exclusion
    /// `partly`).
    fn wrong_mutation(&mut self) -> Mutation {
        let set = |family: &str, timestamp_micros| {
            mutation(Wire::SetCell(SetCell {
                family_name: family.to_owned(),
                timestamp_micros,
                ..SetCell::default()
            }))
        };
        match self.rng.random_range(0..4) {
            0 => set("unknown", 0),
            1 => set("f", 1500),
            2 => set("f", -5000),
            // Exclusion `unseen`: the emulator may accept one with wrong times.
            _ => mutation(Wire::DeleteFromColumn(DeleteFromColumn {
                family_name: "unknown".to_owned(),
                ..DeleteFromColumn::default()
            })),
        }
    }

    fn mutations(&mut self) -> Vec<Mutation> {
        let mut mutations: Vec<_> = Vec::new();
        if self.one_in(25) {
            mutations.push(self.wrong_mutation());
        }
        mutations.extend((0..self.rng.random_range(1..6)).map(|_| self.mutation()));
        mutations
    }

    fn mutate(&mut self) -> MutateRowRequest {
        let (table_name, row_key) = (self.written(), self.key());
        let empty = !self.emulator.old && self.one_in(60);
        let mut mutations = if empty { Vec::new() } else { self.mutations() };
        // At most one, because two may get equal or different times.
        if self.one_in(20)
            && let Some(Mutation { mutation: Some(Wire::SetCell(set)) }) = mutations.last_mut()
        {
            set.timestamp_micros = -1;
        }
        MutateRowRequest { table_name, row_key, mutations, ..MutateRowRequest::default() }
    }

    fn mutate_many(&mut self) -> MutateRowsRequest {
        let entries = (0..self.rng.random_range(1..6)).map(|_| {
            let (row_key, mutations) = (self.key(), self.mutations());
            Entry { row_key, mutations, ..Entry::default() }
        });
        let entries = entries.collect();
        MutateRowsRequest { table_name: self.written(), entries, ..MutateRowsRequest::default() }
    }

    fn check(&mut self) -> CheckAndMutateRowRequest {
        let predicate_filter = match self.rng.random_range(0..10) {
            0 => None,
            _ => Some(Filters::of(self).any()),
        };
        let mut branches = [self.mutations(), self.mutations()];
        if self.one_in(4) {
            let empty = self.rng.random_range(0..2);
            branches[empty].clear();
        }
        let [true_mutations, false_mutations] = branches;
        CheckAndMutateRowRequest {
            table_name: self.written(),
            row_key: self.key(),
            predicate_filter,
            true_mutations,
            false_mutations,
            ..CheckAndMutateRowRequest::default()
        }
    }

    /// Exclusion `partly`: only the first rule may be invalid. Exclusion `now`: no column
    /// occurs twice.
    fn modify(&mut self) -> ReadModifyWriteRowRequest {
        let mut rules: Vec<ReadModifyWriteRule> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let mut rule = ReadModifyWriteRule {
                family_name: self.family(),
                column_qualifier: self.qualifier(),
                rule: Some(Rule::AppendValue(self.value())),
            };
            if rules.is_empty() && self.one_in(2) {
                let amount = self.pick(&[1, -1, 5, i64::MAX, i64::MIN]);
                rule.rule = Some(Rule::IncrementAmount(amount));
            }
            if rules.is_empty() && self.one_in(20) {
                rule.family_name = "unknown".to_owned();
            }
            let same = |other: &ReadModifyWriteRule| {
                (&other.family_name, &other.column_qualifier)
                    == (&rule.family_name, &rule.column_qualifier)
            };
            if !rules.iter().any(same) {
                rules.push(rule);
            }
        }
        ReadModifyWriteRowRequest {
            table_name: self.written(),
            row_key: self.key(),
            rules,
            ..ReadModifyWriteRowRequest::default()
        }
    }

    fn drop_rows(&mut self) -> Request {
        let target = match self.rng.random_range(0..10) {
            0 => Some(Target::DeleteAllDataFromTable(true)),
            1 => None,
            _ => Some(Target::RowKeyPrefix(self.pick(&PREFIXES).to_vec())),
        };
        Request::Drop(DropRowRangeRequest { name: self.table(), target })
    }

    /// Usually about the table without data (exclusion `garbage`).
    fn admin(&mut self) -> Request {
        let name = self.pick(&[DATA, OTHER, OTHER, "none"]).to_owned();
        match self.rng.random_range(0..10) {
            0..2 => {
                let family = if self.one_in(2) { None } else { Some(self.family()) };
                create(OTHER, family.as_deref())
            }
            2 => Request::Delete(DeleteTableRequest {
                name: self.pick(&[OTHER, OTHER, "none"]).to_owned(),
            }),
            3..6 => self.families(),
            6..8 => Request::Describe(GetTableRequest { name, view: View::SchemaView as i32 }),
            8 => Request::List(ListTablesRequest::default()),
            _ => Request::Consistency(name),
        }
    }

    /// Creates a family in the table with data, for one mutation only (exclusion `partly`).
    fn family_that_goes(&mut self) -> [Request; 3] {
        let request = MutateRowRequest {
            table_name: DATA.to_owned(),
            row_key: self.key(),
            mutations: vec![set("k:q", 0, "gone")],
            ..MutateRowRequest::default()
        };
        let create = families(DATA, "k", create_family(None));
        [create, Request::Mutate(request), families(DATA, "k", Mod::Drop(true))]
    }

    fn families(&mut self) -> Request {
        let rule = self.gc_rule(2);
        let change = match self.rng.random_range(0..3) {
            0 => Mod::Drop(true),
            1 => create_family(rule),
            _ => Mod::Update(ColumnFamily { gc_rule: rule, ..ColumnFamily::default() }),
        };
        let family = self.pick(&["f", "g", "h", "x"]);
        families(OTHER, family, change)
    }

    fn gc_rule(&mut self, depth: u32) -> Option<GcRule> {
        let rule = match self.rng.random_range(0..5) {
            0 => return None,
            1 => GcKind::MaxNumVersions(self.rng.random_range(1..5)),
            2 => GcKind::MaxAge(prost_types::Duration { seconds: 3600, nanos: 0 }),
            n => {
                let rules = match depth {
                    0 => Vec::new(),
                    depth => (0..2).filter_map(|_| self.gc_rule(depth - 1)).collect(),
                };
                if rules.len() < 2 {
                    return None;
                }
                match n {
                    3 => GcKind::Union(crate::proto::admin::gc_rule::Union { rules }),
                    _ => GcKind::Intersection(crate::proto::admin::gc_rule::Intersection { rules }),
                }
            }
        };
        Some(GcRule { rule: Some(rule) })
    }
}

fn create(table: &str, family: Option<&str>) -> Request {
    let families = family.map(|family| (family.to_owned(), ColumnFamily::default()));
    let settings = Table { column_families: entries(families), ..Table::default() };
    Request::Create(CreateTableRequest {
        parent: String::new(),
        table_id: table.to_owned(),
        table: Some(settings),
        initial_splits: Vec::new(),
    })
}

fn create_family(gc_rule: Option<GcRule>) -> Mod {
    Mod::Create(ColumnFamily { gc_rule, ..ColumnFamily::default() })
}

/// One change for each request (exclusion `partly`).
fn families(table: &str, family: &str, change: Mod) -> Request {
    let modification =
        Modification { id: family.to_owned(), r#mod: Some(change), ..Modification::default() };
    Request::Families(ModifyColumnFamiliesRequest {
        name: table.to_owned(),
        modifications: vec![modification],
        ignore_warnings: false,
    })
}

/// Reverses a range that is backwards.
fn forwards(range: &mut RowRange) {
    let (Some(start), Some(end)) = (&mut range.start_key, &mut range.end_key) else { return };
    let (StartKey::StartKeyOpen(start) | StartKey::StartKeyClosed(start)) = start;
    let (EndKey::EndKeyOpen(end) | EndKey::EndKeyClosed(end)) = end;
    if start > end && !end.is_empty() {
        std::mem::swap(start, end);
    }
}

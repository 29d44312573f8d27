//! Maps tables of the API to tables of the engine.
//!
//! The engine's tables have fixed families, in locality groups. Families of the API come and
//! go. So each family of the API has a number that is never reused, and its cells lie in one of
//! the engine's families. The engine's qualifier is the number (four bytes, big-endian) and the
//! API's qualifier. To drop a family, the server forgets its number; from then on no reader
//! sees its cells. The server removes them afterwards.
//!
//! Family names that Percolator uses get the locality groups that its protocol needs (paper
//! section 2.2: locks and notifications in memory). All other families share one. An in-memory
//! group spills to disk beyond its bound. So an application whose family has such a name can
//! still store any number of cells in it.
//!
//! ADR-17 says what this design costs, and what would change it.

use std::sync::Arc;

use bigtable::{Bytes, Family, Layout, LocalityGroup, OnFull, Row, Selection, TableSchema};
use bigtable::{FamilySchema, Qualifiers, TimeRange};

use super::schema::{FamilyRecord, Schema};
use crate::filter::{Cell, Scope};
use crate::time;

/// Most cells in memory for each in-memory group.
const CELLS_IN_MEMORY_MAX: usize = 1_000_000;
/// Bytes of a family's number.
const NUMBER_BYTES: usize = 4;
/// Most columns that one read names individually. Beyond, it reads whole families.
pub(super) const COLUMNS_MAX: usize = 512;

const PLAIN: Family = Family::from_static("plain");
const DATA: Family = Family::from_static("data");
const LOCK: Family = Family::from_static("lock");
const WRITE: Family = Family::from_static("write");
const ROLLBACK: Family = Family::from_static("rollback");
const NOTIFY: Family = Family::from_static("notify");

/// Families that every table of Percolator's transactions has.
pub(crate) const PERCOLATOR_FAMILIES: [Family; 4] = [DATA, LOCK, WRITE, ROLLBACK];
/// The families of the engine's tables.
pub(crate) const FAMILIES: [Family; 6] = [PLAIN, DATA, LOCK, WRITE, ROLLBACK, NOTIFY];

/// The schema of the engine's tables.
pub(crate) fn engine_schema() -> TableSchema {
    let group = |family: Family| {
        let layout = match family.as_str() {
            "write" => Layout::NewestFirst,
            "lock" | "rollback" | "notify" => {
                Layout::InMemory(OnFull::Spill { cells_max: CELLS_IN_MEMORY_MAX })
            }
            _ => Layout::Versions,
        };
        // A prefix, because Percolator may use the same store directly, with groups of its own
        // names.
        let name = format!("api_{family}");
        LocalityGroup { name, families: vec![FamilySchema { family }], layout }
    };
    TableSchema { groups: FAMILIES.into_iter().map(group).collect() }
}

/// The engine's family for a family of the API.
pub(crate) fn engine_family(name: &str) -> Family {
    FAMILIES.into_iter().find(|family| family.as_str() == name).unwrap_or(PLAIN)
}

/// True if deleting all versions of a column at once is cheaper than one by one.
pub(crate) fn deletes_whole_columns(family: &Family) -> bool {
    *family == WRITE
}

/// The engine's qualifier of a column.
pub(crate) fn engine_qualifier(family: &FamilyRecord, qualifier: &[u8]) -> Bytes {
    let mut coded = Vec::with_capacity(NUMBER_BYTES + qualifier.len());
    coded.extend_from_slice(&family.number.to_be_bytes());
    coded.extend_from_slice(qualifier);
    coded.into()
}

/// Splits an engine's qualifier into the family's number and the API's qualifier.
pub(crate) fn split_qualifier(coded: &Bytes) -> Option<(u32, Bytes)> {
    let number = coded.first_chunk::<NUMBER_BYTES>()?;
    Some((u32::from_be_bytes(*number), coded.slice(NUMBER_BYTES..)))
}

/// Selects every cell of a row.
pub(crate) fn everything() -> Selection {
    whole(FAMILIES)
}

/// Selects every cell of these families of the engine.
pub(super) fn whole(families: impl IntoIterator<Item = Family>) -> Selection {
    let all = |select: Selection, family| select.family(family, TimeRange::ALL, u32::MAX);
    families.into_iter().fold(Selection::default(), all)
}

/// Converts a row of the engine to the cells that clients see, without those of dropped
/// families.
pub(crate) fn cells(schema: &Schema, row: Row) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(row.cells.len());
    let mut last: Option<(u32, Option<Arc<str>>)> = None;
    for cell in row.cells {
        let Some((number, qualifier)) = split_qualifier(&cell.qualifier) else { continue };
        if last.as_ref().is_none_or(|(known, _)| *known != number) {
            last = Some((number, schema.family_name(number)));
        }
        let Some((_, Some(family))) = &last else { continue };
        cells.push(Cell {
            family: family.clone(),
            qualifier,
            micros: time::micros(cell.timestamp),
            value: cell.value,
            labels: Vec::new(),
        });
    }
    // The engine sorts by number; the API sorts by name.
    cells.sort_by(|a, b| a.family.cmp(&b.family));
    cells
}

/// Selects from the engine the cells that these scopes cover.
pub(crate) fn selection(schema: &Schema, scopes: &[Scope]) -> Selection {
    let mut wanted = Vec::new();
    for scope in scopes {
        let families = schema.families().filter(|family| match &scope.family {
            Some(name) => *name == family.name,
            None => true,
        });
        for family in families {
            let qualifier = scope.qualifier.as_ref().map(|q| engine_qualifier(family, q));
            let engine = engine_family(&family.name);
            wanted.push(Wanted { engine, qualifier, scope });
        }
    }
    if wanted.iter().filter(|wanted| wanted.qualifier.is_some()).count() > COLUMNS_MAX {
        wanted.iter_mut().for_each(|wanted| wanted.qualifier = None);
    }
    select(wanted)
}

/// A part of a selection: a column, or a whole family of the engine.
struct Wanted<'a> {
    engine: Family,
    qualifier: Option<Bytes>,
    scope: &'a Scope,
}

/// Merges the parts so that no cell is selected twice: one entry for each column, and none
/// beside the entry of its whole family.
fn select(mut wanted: Vec<Wanted<'_>>) -> Selection {
    // A whole family sorts before its columns.
    wanted.sort_by(|a, b| (&a.engine, &a.qualifier).cmp(&(&b.engine, &b.qualifier)));
    let mut selection = Selection::default();
    for Wanted { engine, qualifier, scope } in wanted {
        let covered = selection.columns.last_mut().filter(|last| {
            let same = match (&last.qualifiers, &qualifier) {
                (Qualifiers::All, _) => true,
                (Qualifiers::Is(last), Some(qualifier)) => last == qualifier,
                (Qualifiers::Is(_), None) => false,
            };
            last.family == engine && same
        });
        match covered {
            Some(last) if last.time == scope.time => {
                last.versions_max = last.versions_max.max(scope.versions_max);
            }
            Some(last) => {
                last.time.from = last.time.from.min(scope.time.from);
                last.time.to = last.time.to.max(scope.time.to);
                last.versions_max = u32::MAX;
            }
            None => {
                selection = match qualifier {
                    Some(q) => selection.column(engine, q, scope.time, scope.versions_max),
                    None => selection.family(engine, scope.time, scope.versions_max),
                };
            }
        }
    }
    selection
}

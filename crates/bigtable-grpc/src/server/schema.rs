//! What the server keeps of each table: its name, families, and what is left to be removed.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The form of the records. It is the first byte of each.
const VERSION: u8 = 1;

/// A table, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    /// `projects/P/instances/I/tables/T`
    pub(crate) name: String,
    /// The table's number; its table in the engine is named after it.
    pub(crate) number: u32,
    /// Sorted by name.
    pub(crate) families: Vec<FamilyRecord>,
    /// The number of the next family.
    pub(crate) next_family: u32,
    pub(crate) deletion_protection: bool,
    /// Where clients asked to split the table, sorted.
    pub(crate) splits: Vec<Vec<u8>>,
    /// Families that were dropped and may still have cells.
    pub(crate) dead_families: Vec<FamilyRecord>,
    /// Deleted, and cells may be left.
    pub(crate) deleted: bool,
}

/// A family, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FamilyRecord {
    pub(crate) name: String,
    /// Never used for another family of the table.
    pub(crate) number: u32,
    /// Its garbage collection rule, as it is sent; empty if it has none.
    pub(crate) gc_rule: Vec<u8>,
}

impl TableRecord {
    /// The table's name in the engine.
    pub(crate) fn engine_name(number: u32) -> String {
        format!("t{number:08}")
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let body = postcard::to_stdvec(self).map_err(|error| error.to_string())?;
        Ok([&[VERSION], &*body].concat())
    }

    /// The record of these bytes; the error says what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&VERSION, body)) => {
                postcard::from_bytes(body).map_err(|error| format!("damaged: {error}"))
            }
            Some((version, _)) => {
                Err(format!("of version {version}, this release knows {VERSION}"))
            }
            None => Err("empty".to_owned()),
        }
    }

    /// A family of the table.
    pub(crate) fn family_mut(&mut self, name: &str) -> Option<&mut FamilyRecord> {
        self.families.iter_mut().find(|family| family.name == name)
    }

    /// Adds a family that is not there yet.
    pub(crate) fn add_family(&mut self, name: &str, gc_rule: Vec<u8>) {
        let number = self.next_family;
        self.next_family += 1;
        let at = self.families.partition_point(|family| family.name.as_str() < name);
        self.families.insert(at, FamilyRecord { name: name.to_owned(), number, gc_rule });
    }
}

/// A record, and what makes looking things up in it fast.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) record: TableRecord,
    names: HashMap<u32, Arc<str>>,
}

impl Schema {
    pub(crate) fn new(record: TableRecord) -> Self {
        let name = |family: &FamilyRecord| (family.number, family.name.as_str().into());
        let names = record.families.iter().map(name).collect();
        Schema { record, names }
    }

    pub(crate) fn families(&self) -> impl Iterator<Item = &FamilyRecord> {
        self.record.families.iter()
    }

    /// A family of the table.
    pub(crate) fn family(&self, name: &str) -> Option<&FamilyRecord> {
        let families = &self.record.families;
        let at = families.binary_search_by(|family| family.name.as_str().cmp(name)).ok()?;
        Some(&families[at])
    }

    /// The name of a family that was not dropped.
    pub(crate) fn family_name(&self, number: u32) -> Option<Arc<str>> {
        self.names.get(&number).cloned()
    }
}

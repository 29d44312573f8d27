//! Defines the record that the server keeps of each table: its name, its families, and pending
//! removals.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Format version of the records: the first byte of each.
const VERSION: u8 = 1;

/// The stored record of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    /// `projects/P/instances/I/tables/T`
    pub(crate) name: String,
    /// The number from which the name of the engine's table is made.
    pub(crate) number: u32,
    /// Sorted by name.
    pub(crate) families: Vec<FamilyRecord>,
    /// The number of the next family.
    pub(crate) next_family: u32,
    pub(crate) deletion_protection: bool,
    /// Keys at which clients asked to split the table, sorted.
    pub(crate) splits: Vec<Vec<u8>>,
    /// Dropped families that may still have cells.
    pub(crate) dead_families: Vec<FamilyRecord>,
    /// True if the table is deleted; cells may be left.
    pub(crate) deleted: bool,
}

/// The stored record of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FamilyRecord {
    pub(crate) name: String,
    /// Never reused for another family of the table.
    pub(crate) number: u32,
    /// The encoded garbage collection rule; empty if there is none.
    pub(crate) gc_rule: Vec<u8>,
}

impl TableRecord {
    /// The name of a table in the engine.
    pub(crate) fn engine_name(number: u32) -> String {
        format!("t{number:08}")
    }

    /// Encodes the record.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let body = postcard::to_stdvec(self).map_err(|error| error.to_string())?;
        Ok([&[VERSION], &*body].concat())
    }

    /// Decodes a record. The error says what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&VERSION, body)) => {
                postcard::from_bytes(body).map_err(|error| format!("damaged: {error}"))
            }
            Some((version, _)) => {
                Err(format!("of version {version}, and this release reads version {VERSION}"))
            }
            None => Err("empty".to_owned()),
        }
    }

    /// Finds a family of the table.
    pub(crate) fn family_mut(&mut self, name: &str) -> Option<&mut FamilyRecord> {
        self.families.iter_mut().find(|family| family.name == name)
    }

    /// Adds a family that does not exist yet.
    pub(crate) fn add_family(&mut self, name: &str, gc_rule: Vec<u8>) {
        let number = self.next_family;
        self.next_family += 1;
        let at = self.families.partition_point(|family| family.name.as_str() < name);
        self.families.insert(at, FamilyRecord { name: name.to_owned(), number, gc_rule });
    }
}

/// A record with an index of its families.
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

    /// Finds a family of the table.
    pub(crate) fn family(&self, name: &str) -> Option<&FamilyRecord> {
        let families = &self.record.families;
        let at = families.binary_search_by(|family| family.name.as_str().cmp(name)).ok()?;
        Some(&families[at])
    }

    /// The name of a family that has not been dropped.
    pub(crate) fn family_name(&self, number: u32) -> Option<Arc<str>> {
        self.names.get(&number).cloned()
    }
}

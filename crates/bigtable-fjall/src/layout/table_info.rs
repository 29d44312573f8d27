//! Describes an open table: its id, its groups, and the numbers of its families.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bigtable::{ColumnSelect, Error, Family, Result, TableSchema};

use crate::layout::chosen::Chosen;
use crate::layout::group::Group;

/// An open table.
#[derive(Debug)]
pub(crate) struct TableInfo {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) schema: TableSchema,
    /// The groups, in the schema's order.
    pub(crate) groups: Vec<Arc<Group>>,
    /// The families, in the schema's order, so that a family's position is its number in keys.
    pub(crate) families: Vec<FamilyInfo>,
    /// Set under the commit lock when the table is dropped.
    pub(crate) dropped: AtomicBool,
    /// Whether writes to the table may use the last part of the disk (`room.rs`).
    pub(crate) upkeep: AtomicBool,
}

/// A family of an open table.
#[derive(Debug)]
pub(crate) struct FamilyInfo {
    pub(crate) family: Family,
    /// The family's number in keys.
    pub(crate) number: u8,
    /// The position of the family's group.
    pub(crate) group: usize,
}

impl TableInfo {
    /// Returns an error once the table was dropped.
    pub(crate) fn check_there(&self) -> Result<()> {
        if self.dropped.load(Ordering::SeqCst) {
            Err(Error::invalid(format!("table {} was dropped", self.name)))
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_upkeep(&self) -> bool {
        self.upkeep.load(Ordering::Relaxed)
    }

    /// A family of the table. Requests are checked against the schema before this is called.
    pub(crate) fn family(&self, family: &Family) -> &FamilyInfo {
        let found = self.families.iter().find(|info| info.family == *family);
        found.expect("the request was checked against the schema")
    }

    /// A column of the table, with the number of its family.
    pub(crate) fn chosen<'a>(&self, select: &'a ColumnSelect) -> Chosen<'a> {
        Chosen { family: self.family(&select.family).number, select }
    }
}

/// Numbers the families for keys: a family's number is its position in the schema, which never
/// changes.
pub(crate) fn number_families(schema: &TableSchema) -> Result<Vec<FamilyInfo>> {
    let mut families = Vec::new();
    for (group, described) in schema.groups.iter().enumerate() {
        for family in &described.families {
            let number = u8::try_from(families.len());
            let number = number
                .map_err(|_| Error::invalid("the store's tables have more than 256 families"))?;
            families.push(FamilyInfo { family: family.family.clone(), number, group });
        }
    }
    Ok(families)
}

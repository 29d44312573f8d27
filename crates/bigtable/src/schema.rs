//! Defines the schema of a table: its locality groups and their families.

use crate::{Error, Family, Result};

/// The families of a table, arranged in locality groups (Bigtable paper, section 6).
///
/// ```
/// use bigtable::{FamilySchema, Layout, LocalityGroup, TableSchema};
/// let schema = TableSchema {
///     groups: vec![
///         LocalityGroup::on_disk("data", Layout::Versions),
///         LocalityGroup::in_memory("lock", bigtable::OnFull::Refuse { cells_max: 1_000_000 }),
///     ],
/// };
/// assert!(schema.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// The locality groups.
    pub groups: Vec<LocalityGroup>,
}

/// Families that are stored together, and separately from all others.
///
/// See [`TableSchema`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalityGroup {
    /// The group's name: unique in the table, of the form `[a-z0-9_]+`. Tables of one store
    /// that use the same group name must describe the group in the same way.
    pub name: String,
    /// The families in the group.
    pub families: Vec<FamilySchema>,
    /// The layout of the group's cells.
    pub layout: Layout,
}

/// A column family.
///
/// See [`TableSchema`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilySchema {
    /// The family's name.
    pub family: Family,
}

/// The layout of a locality group's cells. It changes the cost of operations, never their
/// results.
///
/// See [`TableSchema`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All versions in one sorted run. A write reads nothing; a read of the newest version
    /// seeks.
    Versions,
    /// The newest version of a column is under the column's own key, and older versions are in
    /// a history. A read or a probe of the newest version is a point lookup. A write begins
    /// with a point lookup.
    NewestFirst,
    /// Served from an ordered map in memory, and still durable ("in-memory column", paper
    /// section 2.2).
    InMemory(OnFull),
}

/// The reaction of an in-memory locality group that has reached its bound.
///
/// See [`TableSchema`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// Refuses a mutation that would *add* a cell, with [`Error::Overloaded`], and applies
    /// nothing of it. Replacing and deleting cells is never refused.
    Refuse {
        /// The most cells in memory, over all tables of the store.
        cells_max: usize,
    },
    /// Refuses nothing. Cells beyond the bound are only on disk until the group has drained,
    /// and reads see both.
    Spill {
        /// The most cells in memory, over all tables of the store.
        cells_max: usize,
    },
}

impl LocalityGroup {
    /// A group on disk with one family; both have this name.
    pub fn on_disk(name: &'static str, layout: Layout) -> Self {
        LocalityGroup {
            name: name.to_owned(),
            families: vec![FamilySchema { family: Family::from_static(name) }],
            layout,
        }
    }

    /// A group in memory with one family; both have this name.
    pub fn in_memory(name: &'static str, on_full: OnFull) -> Self {
        LocalityGroup::on_disk(name, Layout::InMemory(on_full))
    }
}

impl TableSchema {
    /// Whether the table has this family.
    pub fn has(&self, family: &Family) -> bool {
        self.groups.iter().any(|group| group.families.iter().any(|f| f.family == *family))
    }

    /// Checks that the table has this family.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] names the family.
    pub fn check_family(&self, family: &Family) -> Result<()> {
        if self.has(family) {
            Ok(())
        } else {
            Err(Error::invalid(format!("the table has no family {family}")))
        }
    }

    /// Checks the names of groups and families: unique, non-empty, and of the allowed
    /// characters.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the name.
    pub fn check(&self) -> Result<()> {
        let mut groups = std::collections::BTreeSet::new();
        let mut families = std::collections::BTreeSet::new();
        for group in &self.groups {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            if group.name.is_empty() || !group.name.bytes().all(plain) {
                return Err(Error::invalid(format!(
                    "locality group name {:?} is not of the form [a-z0-9_]+",
                    group.name
                )));
            }
            if !groups.insert(group.name.as_str()) {
                return Err(Error::invalid(format!(
                    "the schema declares locality group {} twice",
                    group.name
                )));
            }
            for FamilySchema { family } in &group.families {
                let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
                let name = family.as_str();
                if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
                    return Err(Error::invalid(format!(
                        "family name {name:?} is not of the form [-_.a-zA-Z0-9]{{1,64}}"
                    )));
                }
                if !families.insert(name) {
                    return Err(Error::invalid(format!("the schema declares family {name} twice")));
                }
            }
        }
        Ok(())
    }
}

//! Stores the catalog in a keyspace of its own: the store's tables, their groups, and the
//! floor. The floor is the timestamp below which the store refuses reads.
//!
//! ```text
//!   t<name>   id (u32, big-endian), then the description of the table's schema
//!   g<name>   the description of a locality group, the same for all tables that have it
//!   floor     u64, big-endian
//! ```
//!
//! A description is text. Each group has a line `group NAME LAYOUT`, followed by a line
//! `family NAME` for each of its families. Bounds of in-memory groups are not stored, because
//! they may differ between two openings of the store.

use std::fmt::Write;

use bigtable::Timestamp;
use bigtable::{Error, Family, FamilySchema, Layout, LocalityGroup, OnFull, Result, TableSchema};
use fjall::{Keyspace, Slice};

use crate::commit::puts::Puts;
use crate::failure::fault::Fault;

/// No group's name begins with a dot, so no group has this keyspace.
pub(crate) const KEYSPACE: &str = ".catalog";
const FLOOR: &[u8] = b"floor";
const TABLE: u8 = b't';
const GROUP: u8 = b'g';
const ID_BYTES: usize = 4;
const NO_DESCRIPTION: Fault = Fault::Damaged("the description of a table cannot be read");

/// The catalog's keyspace. Only the holder of the commit lock writes to it.
pub(crate) struct Catalog(pub(crate) Keyspace);

impl Catalog {
    pub(crate) fn floor(&self) -> std::result::Result<Timestamp, Fault> {
        let Some(stored) = self.0.get(FLOOR)? else { return Ok(Timestamp::ZERO) };
        let number = stored.as_ref().try_into().map(u64::from_be_bytes).ok();
        number.and_then(Timestamp::new).ok_or(Fault::Damaged("the floor is not a timestamp"))
    }

    pub(crate) fn put_floor(&self, puts: &mut Puts, floor: Timestamp) {
        puts.insert(&self.0, FLOOR, floor.as_u64().to_be_bytes());
    }

    /// The names of all tables, sorted.
    pub(crate) fn table_names(&self) -> std::result::Result<Vec<String>, Fault> {
        let mut names = Vec::new();
        for entry in self.0.prefix([TABLE]) {
            let key = entry.key()?;
            let name = String::from_utf8(key[1..].to_vec());
            names.push(name.map_err(|_| Fault::Damaged("a table's name is not text"))?);
        }
        Ok(names)
    }

    /// The table's id, and the description of its schema.
    pub(crate) fn table(&self, name: &str) -> std::result::Result<Option<(u32, Slice)>, Fault> {
        let Some(stored) = self.0.get(key(TABLE, name))? else { return Ok(None) };
        let (id, description) = stored
            .split_first_chunk::<ID_BYTES>()
            .ok_or(Fault::Damaged("the catalog has a table without an id"))?;
        Ok(Some((u32::from_be_bytes(*id), Slice::new(description))))
    }

    /// The schema of the table, if the table exists. Its in-memory groups have no bounds.
    pub(crate) fn schema(&self, name: &str) -> std::result::Result<Option<TableSchema>, Fault> {
        let Some((_, description)) = self.table(name)? else { return Ok(None) };
        let groups = parse(&description);
        groups.map(|groups| Some(TableSchema { groups })).ok_or(NO_DESCRIPTION)
    }

    /// All groups of the store's tables. In-memory groups have no bounds.
    pub(crate) fn groups(&self) -> std::result::Result<Vec<LocalityGroup>, Fault> {
        let mut groups = Vec::new();
        for entry in self.0.prefix([GROUP]) {
            groups.extend(parse(&entry.value()?).ok_or(NO_DESCRIPTION)?);
        }
        Ok(groups)
    }

    /// The id for a new table.
    pub(crate) fn next_id(&self) -> std::result::Result<u32, Fault> {
        let mut next = 0;
        for name in self.table_names()? {
            if let Some((id, _)) = self.table(&name)? {
                next = next.max(id + 1);
            }
        }
        Ok(next)
    }

    pub(crate) fn put_table(&self, puts: &mut Puts, name: &str, id: u32, schema: &TableSchema) {
        let mut value = id.to_be_bytes().to_vec();
        value.extend_from_slice(describe(schema).as_bytes());
        puts.insert(&self.0, key(TABLE, name), value);
        for group in &schema.groups {
            puts.insert(&self.0, key(GROUP, &group.name), describe_group(group));
        }
    }

    /// Removes a table's entry. The descriptions of its groups stay, because other tables may
    /// use them.
    pub(crate) fn remove_table(&self, puts: &mut Puts, name: &str) {
        puts.remove(&self.0, key(TABLE, name));
    }

    /// Whether the group has the same description as in the store's other tables.
    pub(crate) fn check_group(&self, group: &LocalityGroup) -> std::result::Result<bool, Fault> {
        let stored = self.0.get(key(GROUP, &group.name))?;
        Ok(stored.is_none_or(|stored| *stored == *describe_group(group).as_bytes()))
    }
}

/// Parses the output of [`describe`].
fn parse(text: &[u8]) -> Option<Vec<LocalityGroup>> {
    let mut groups: Vec<LocalityGroup> = Vec::new();
    for line in str::from_utf8(text).ok()?.lines() {
        let mut words = line.split(' ');
        match (words.next()?, words.next()?, words.next()) {
            ("family", name, None) => {
                let family = Family::from(name.to_owned());
                groups.last_mut()?.families.push(FamilySchema { family });
            }
            ("group", name, Some(layout)) => {
                let layout = match layout {
                    "versions" => Layout::Versions,
                    "newest-apart" => Layout::NewestFirst,
                    "in-memory-refuse" => {
                        Layout::InMemory(OnFull::Refuse { cells_max: usize::MAX })
                    }
                    "in-memory-spill" => Layout::InMemory(OnFull::Spill { cells_max: usize::MAX }),
                    _ => return None,
                };
                let (name, families) = (name.to_owned(), Vec::new());
                groups.push(LocalityGroup { name, families, layout });
            }
            _ => return None,
        }
    }
    Some(groups)
}

fn key(kind: u8, name: &str) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(name.as_bytes());
    key
}

/// The description of a schema, as it is compared between two openings.
pub(crate) fn describe(schema: &TableSchema) -> String {
    schema.groups.iter().map(describe_group).collect()
}

fn describe_group(group: &LocalityGroup) -> String {
    let layout = match group.layout {
        Layout::Versions => "versions",
        Layout::NewestFirst => "newest-apart",
        Layout::InMemory(OnFull::Refuse { .. }) => "in-memory-refuse",
        Layout::InMemory(OnFull::Spill { .. }) => "in-memory-spill",
    };
    let mut text = format!("group {} {layout}\n", group.name);
    for family in &group.families {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "family {}", family.family);
    }
    text
}

/// The error if a table exists with a schema other than the requested one.
pub(crate) fn other_schema(name: &str) -> Error {
    Error::invalid(format!("table {name} exists with another schema"))
}

/// The error if another table of the store describes this group differently.
pub(crate) fn other_group(name: &str) -> Error {
    Error::invalid(format!("another table describes locality group {name} differently"))
}

/// Returns the error unless the condition holds.
pub(crate) fn ensure(holds: bool, error: impl FnOnce() -> Error) -> Result<()> {
    if holds { Ok(()) } else { Err(error()) }
}

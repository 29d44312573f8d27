//! Opens locality groups: their keyspaces, and the tuning of those.
//!
//! * [`Layout::Versions`]: one keyspace with a key for every version. Large values are in
//!   separate files, so that a compaction does not copy them.
//! * [`Layout::NewestFirst`]: the newest versions of a column are one value under the column's
//!   key (`pack.rs`). Older versions are in a second keyspace, several per entry
//!   (`history.rs`). Reading the newest version is one point lookup, where a seek over all
//!   sorted runs costs several times as much. A write is usually one insert.
//! * [`Layout::InMemory`]: like `Versions`, with a copy of the cells in an ordered map
//!   (`memory.rs`).

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use bigtable::sync::locked;
use bigtable::{Layout, LocalityGroup};
use fjall::{Database, Keyspace};

use crate::layout::pack::Bounds;
use crate::layout::tuning::{tuned, tuned_history};
use crate::options::Options;
use crate::upkeep::churn::Churn;

/// The end of the name of a keyspace of older versions.
const HISTORY: &str = ".history";

/// Whether a keyspace holds the older versions of a group, by its name.
pub(crate) fn is_history(keyspace: &str) -> bool {
    keyspace.ends_with(HISTORY)
}

/// A locality group, shared by all tables of the store that have it.
pub(crate) struct Group {
    /// The schema that the group was opened with.
    pub(crate) schema: LocalityGroup,
    pub(crate) cells: Keyspace,
    /// The keyspace of older versions, in groups with the layout `NewestFirst`.
    pub(crate) history: Option<Keyspace>,
    /// The bounds of a pack, in groups with the layout `NewestFirst`.
    pub(crate) bounds: Bounds,
    /// The position among the in-memory groups.
    pub(crate) memory: Option<usize>,
    /// The numbers of entries that were removed or overwritten since space was last given
    /// back: in the keyspace, and in that of the history.
    pub(crate) removed: [AtomicU64; 2],
    /// Counts the writes to the keyspace's write buffer, in groups whose columns are read as
    /// ranges of keys.
    pub(crate) churn: Option<Mutex<Churn>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Group {
    /// Opens the group's keyspaces, and creates them if necessary.
    pub(crate) fn open(
        db: &Database,
        schema: &LocalityGroup,
        options: &Options,
    ) -> fjall::Result<Self> {
        let name = &schema.name;
        let bounds = Bounds::new(options);
        let cells = db.keyspace(name, || tuned(schema.layout, options))?;
        let history = match schema.layout {
            // No group's name contains a dot, so no other group has this keyspace.
            Layout::NewestFirst => {
                Some(db.keyspace(&format!("{name}{HISTORY}"), || tuned_history(options))?)
            }
            Layout::Versions | Layout::InMemory(_) => None,
        };
        let churn = (schema.layout == Layout::Versions).then(Mutex::default);
        let (schema, removed) = (schema.clone(), Default::default());
        Ok(Group { schema, cells, history, bounds, memory: None, removed, churn })
    }

    /// The count of writes to the write buffer, in groups that have one. Only the holder of
    /// the commit lock uses it.
    pub(crate) fn churn(&self) -> Option<MutexGuard<'_, Churn>> {
        self.churn.as_ref().map(locked)
    }

    /// The group's keyspace, or that of its history.
    pub(crate) fn keyspace(&self, history: bool) -> &Keyspace {
        match &self.history {
            Some(older) if history => older,
            _ => &self.cells,
        }
    }

    /// The group's keyspace, and that of its history.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        std::iter::once(&self.cells).chain(&self.history)
    }
}

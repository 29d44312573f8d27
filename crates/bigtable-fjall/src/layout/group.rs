//! Locality groups: which keyspaces hold their cells, and how those are tuned.
//!
//! * [`Layout::Versions`]: one keyspace, every version under its own key. Large values lie
//!   in files of their own, so that a compaction does not copy them.
//! * [`Layout::NewestFirst`]: the newest versions of a column under the column's key, as one value
//!   (`pack.rs`), and older ones in a second keyspace, several to an entry, too (`history.rs`).
//!   Reading the newest version is one point lookup, where a seek over all sorted runs costs
//!   several times as much; writing one is mostly one insert.
//! * [`Layout::InMemory`]: as `Versions`, and the cells are in an ordered map besides
//!   (`memory.rs`).

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use bigtable::sync::locked;
use bigtable::{Layout, LocalityGroup};
use fjall::config::FilterPolicy;
use fjall::{Database, Keyspace};

use crate::layout::pack::Bounds;
use crate::layout::tuning::tuned;
use crate::options::Options;
use crate::upkeep::churn::Churn;

/// A locality group, shared by all tables of the store that have it.
pub(crate) struct Group {
    /// What it was opened as.
    pub(crate) schema: LocalityGroup,
    pub(crate) cells: Keyspace,
    /// Older versions, in a group that keeps the newest first.
    pub(crate) history: Option<Keyspace>,
    /// How many versions lie in one entry, in a group that keeps the newest first.
    pub(crate) bounds: Bounds,
    /// Position among the in-memory groups.
    pub(crate) memory: Option<usize>,
    /// How many entries were removed or overwritten in the keyspace, and in that of the history,
    /// since their space was last given back.
    pub(crate) removed: [AtomicU64; 2],
    /// What was written to the keyspace's write buffer, in a group whose columns are read as ranges
    /// of keys.
    pub(crate) churn: Option<Mutex<Churn>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Group {
    /// Opens the group's keyspaces, creating them if need be.
    pub(crate) fn open(
        db: &Database,
        schema: &LocalityGroup,
        options: &Options,
    ) -> fjall::Result<Self> {
        let name = &schema.name;
        let bounds = Bounds::new(options);
        let cells = db.keyspace(name, || tuned(schema.layout, options))?;
        let history = match schema.layout {
            // A dot never occurs in a group's name, so this is no other group's keyspace.
            Layout::NewestFirst => {
                // It is never asked for one key.
                let tuned =
                    || tuned(Layout::Versions, options).filter_policy(FilterPolicy::disabled());
                Some(db.keyspace(&format!("{name}.history"), tuned)?)
            }
            Layout::Versions | Layout::InMemory(_) => None,
        };
        let churn = (schema.layout == Layout::Versions).then(Mutex::default);
        let (schema, removed) = (schema.clone(), Default::default());
        Ok(Group { schema, cells, history, bounds, memory: None, removed, churn })
    }

    /// What was written to the write buffer, where that is counted. The holder of the commit lock
    /// alone asks.
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

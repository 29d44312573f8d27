//! Sees each entry of the engine's merges: syncs the written file early (`early_syncs.rs`), and
//! drops superseded versions (`superseded.rs`).

use std::sync::Arc;

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

use crate::layout::group::is_history;
use crate::upkeep::early_syncs::{EarlySync, EarlySyncs};
use crate::upkeep::superseded::{Rules, Superseded, may_go};

/// Bytes of a pointer to a large value, which is in a file of its own.
const POINTER_BYTES: usize = 32;

/// The knowledge that all merges of a store share.
#[derive(Debug, Default)]
pub(crate) struct Merges {
    pub(crate) early_syncs: EarlySyncs,
    pub(crate) superseded: Superseded,
}

/// Follows the merges of one keyspace.
pub(crate) struct Follows {
    pub(crate) all: Arc<Merges>,
    pub(crate) keyspace: String,
}

impl Factory for Follows {
    fn name(&self) -> &'static str {
        "merges"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let rules = is_history(&self.keyspace).then(|| self.all.superseded.rules());
        let early_sync = EarlySync::of(&self.all.early_syncs, &self.keyspace);
        Box::new(Follower { all: self.all.clone(), rules: rules.unwrap_or_default(), early_sync })
    }
}

/// Follows one merge.
struct Follower {
    all: Arc<Merges>,
    /// Empty if the merge drops nothing.
    rules: Arc<Rules>,
    early_sync: EarlySync,
}

impl CompactionFilter for Follower {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        let value = if item.is_indirection() { None } else { Some(item.value()?) };
        let bytes = item.key().len() + value.as_ref().map_or(POINTER_BYTES, |value| value.len());
        if let Some(pack) = value.filter(|_| !self.rules.is_empty())
            // A damaged pack stays, so that a reader reports it.
            && may_go(&self.rules, item.key(), pack).unwrap_or(false)
        {
            return Ok(Verdict::Remove);
        }
        self.early_sync.wrote(&self.all.early_syncs, bytes)?;
        Ok(Verdict::Keep)
    }
}

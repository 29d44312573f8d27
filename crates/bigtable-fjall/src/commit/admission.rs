//! Admits or refuses requests and upkeep. The thread that holds the commit lock checks whether the
//! disk has room, and whether the engine takes writes. For a request, it looks at the disk only if
//! the last look is old or the known room is used up. Upkeep includes small requests that delete.
//! It needs less free space than growth, so it is admitted longer, but not always. `room.rs`
//! computes how much space must stay free.

use bigtable::{Error, Mutation, Result};
use fjall::Keyspace;

use crate::commit::room::{Reserve, Use};
use crate::engine::{Engine, Lead};
use crate::failure::condition::Condition;
use crate::failure::fault;
use crate::layout::table_info::TableInfo;

/// Looks at the disk, unless the last look is recent. The committer calls this once per group.
pub(crate) fn look_at_disk(engine: &Engine, lead: &Lead) {
    if !lead.room.is_recent() {
        look_again(engine, lead);
    }
}

fn look_again(engine: &Engine, lead: &Lead) {
    let sizes = lead.keyspaces().map(|keyspace| keyspace.disk_space());
    let largest = sizes.max().unwrap_or(0);
    let reserve = Reserve::new(&engine.options, engine.db.write_buffer_size(), largest);
    lead.room.learn(engine.disk.free(), reserve);
}

/// Whether the disk has room to write out everything that lies in write buffers.
pub(crate) fn has_room_for_buffers(engine: &Engine) -> bool {
    engine.disk.free() >= Reserve::new(&engine.options, engine.db.write_buffer_size(), 0).upkeep
}

/// Looks whether the disk has room for writes. Does nothing while a commit is running, since
/// that commit looks by itself.
///
/// # Errors
/// The errors of a write.
pub(crate) fn try_growth(engine: &Engine) -> Result<()> {
    engine.check_usable()?;
    let Ok(lead) = engine.lead.try_lock() else { return Ok(()) };
    look_again(engine, &lead);
    admit(engine, &lead, Use::Growth, 0)
}

/// Returns an error while the engine takes no writes.
fn check_engine_writes(engine: &Engine, lead: &Lead) -> Result<()> {
    if let Some(why) = engine.stopped() {
        engine.condition.set(Condition::Failing { why: why.to_owned() });
        return Err(fault::stopped());
    }
    if let Some(left) = lead.room.rest() {
        let error = fault::failing(left);
        engine.condition.set(Condition::Failing { why: error.to_string() });
        return Err(error);
    }
    Ok(())
}

/// Refuses the mutations of one row if the disk has no room for them.
pub(crate) fn admit_row(
    engine: &Engine,
    lead: &Lead,
    table: &TableInfo,
    mutations: &[Mutation],
) -> Result<()> {
    if mutations.is_empty() {
        return Ok(());
    }
    let (what, bytes) = Use::of(table, mutations);
    admit(engine, lead, what, bytes)
}

/// Whether the disk has room to write all of a keyspace again before its old files are
/// removed. Large values count as if a merge copied all of them, which it does not.
pub(crate) fn admits_merge(engine: &Engine, lead: &Lead, keyspace: &Keyspace) -> bool {
    look_again(engine, lead);
    lead.room.free.get() >= lead.room.reserve.get().upkeep.saturating_add(keyspace.disk_space())
}

/// Refuses to write `bytes` bytes if the disk has no room for them.
pub(crate) fn admit(engine: &Engine, lead: &Lead, what: Use, bytes: u64) -> Result<()> {
    check_engine_writes(engine, lead)?;
    let taken = lead.room.take(what, bytes).or_else(|_| {
        // The last look may be a few milliseconds old, and the space may be used up since.
        look_again(engine, lead);
        lead.room.take(what, bytes)
    });
    match taken {
        Ok(()) if what == Use::Growth => engine.condition.is_writable(),
        // No change of the condition: upkeep is admitted even while growth is refused.
        Ok(()) => {}
        Err(wanted) => {
            let free = lead.room.free.get();
            engine.condition.set(Condition::Full { free, wanted });
            return Err(Error::Full { dir: engine.path.clone(), free, wanted });
        }
    }
    Ok(())
}

//! Brings spilled cells of in-memory groups back into memory when there is room again.

use crate::engine::{Engine, Lead};
use crate::layout::memory::spilled;

/// Whether spilled cells should come back into memory.
pub(crate) fn wants_refill(engine: &Engine, lead: &Lead) -> bool {
    let memory = engine.memory();
    let mut positions = lead.groups.iter().filter_map(|group| group.memory);
    positions.any(|position| memory.group(position).refill_from().is_some())
}

/// Brings spilled cells back where there is room again.
pub(crate) fn refill(engine: &Engine, lead: &Lead) {
    for group in &lead.groups {
        let Some(position) = group.memory else { continue };
        let from = engine.memory().group(position).refill_from();
        // Cells that cannot be read now stay spilled, where a reader finds the same error. The
        // lock of the memory is not held while they are read.
        if let Some(from) = from
            && let Ok(cells) = spilled(&group.cells, from)
        {
            engine.memory_mut().take_back(position, cells);
        }
    }
}

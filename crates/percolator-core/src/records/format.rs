//! Stores the version of the data format with the data, and refuses versions that this program
//! cannot read.
//!
//! ```text
//! 1   notify cells lie in the rows they are about
//! 2   notify cells lie in tables of their own
//! ```
//!
//! A new database gets the version that suits its store, and keeps it. Later clients, with
//! other software or over another store, then look for notifications in the right table.

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Syncing, Table, TimeRange, Timestamp,
};

use crate::records::layout::{SYSTEM, SYSTEM_TABLE};
use crate::records::placement::Placement;
use crate::{Error, Result};

const ROW: &str = "format";
const QUALIFIER: &str = "version";

/// The newest version that this crate reads.
const VERSION_MAX: u32 = version(Placement::Apart);

const fn version(placement: Placement) -> u32 {
    match placement {
        Placement::InRow => 1,
        Placement::Apart => 2,
    }
}

/// Marks a new store with the version of `fresh`, and refuses a store that a newer version
/// wrote. Returns where the store's notify cells lie.
pub(crate) async fn check(system: &dyn Table, fresh: Placement) -> Result<Placement> {
    let value = version(fresh).to_be_bytes().to_vec();
    let mark = ConditionalMutation {
        predicate: vec![Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL)],
        otherwise: vec![Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, value)],
        sync: Syncing::Always,
        ..ConditionalMutation::new(ROW)
    };
    system.check_and_mutate_row(mark).await?;
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let row = system.read_row(&RowKey::from(ROW), &select).await?;
    let stored = row.newest(&SYSTEM, QUALIFIER.as_bytes()).map(|cell| cell.value.clone());
    let found = stored.as_deref().and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
    match found {
        Some(1) => Ok(Placement::InRow),
        Some(2) => Ok(Placement::Apart),
        Some(newer) if newer > VERSION_MAX => Err(Error::Store(bigtable::Error::Files {
            path: SYSTEM_TABLE.into(),
            problem: format!(
                "the data is in Percolator's format {newer}, and this program reads formats up to \
                 {VERSION_MAX}"
            ),
            remedy: "open it with the version of percolator that wrote it, or a newer one".into(),
        })),
        _ => Err(Error::Corrupt { record: "format", bytes: stored.unwrap_or_default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::layout::open_system;
    use bigtable::{MemoryStore, RowMutation};
    use futures::executor::block_on;
    use std::sync::Arc;

    async fn system() -> Arc<dyn Table> {
        open_system(&MemoryStore::new(), SYSTEM_TABLE).await.unwrap()
    }

    #[test]
    fn newer_data_is_refused_with_a_remedy() {
        block_on(async {
            let system = system().await;
            check(&*system, Placement::InRow).await.unwrap();
            let newer = (VERSION_MAX + 1).to_be_bytes().to_vec();
            let set = Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, newer);
            system.mutate_row(RowMutation::new(ROW).mutation(set)).await.unwrap();
            let error = check(&*system, Placement::InRow).await.unwrap_err().to_string();
            assert!(error.contains("format 3") && error.contains("help:"), "{error}");
        });
    }

    #[test]
    fn the_placement_of_a_new_database_stays() {
        for first in [Placement::InRow, Placement::Apart] {
            block_on(async {
                let system = system().await;
                for opener in [first, Placement::InRow, Placement::Apart] {
                    assert_eq!(check(&*system, opener).await.unwrap(), first);
                }
            });
        }
    }
}

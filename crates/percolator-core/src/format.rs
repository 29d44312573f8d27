//! The version of the data format, stored with the data.

use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};

use crate::layout::{SYSTEM, SYSTEM_TABLE};
use crate::{Error, Result};

const ROW: &str = "format";
const QUALIFIER: &str = "version";

/// The version this crate writes and the newest it reads.
const VERSION: u32 = 1;

/// Marks a new store with the version, and refuses one that a newer version wrote.
pub(crate) async fn check(system: &dyn Table) -> Result<()> {
    let mark = ConditionalMutation {
        predicate: vec![Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL)],
        otherwise: vec![Mutation::set(
            SYSTEM,
            QUALIFIER,
            Timestamp::ZERO,
            VERSION.to_be_bytes().to_vec(),
        )],
        sync: true,
        ..ConditionalMutation::new(ROW)
    };
    system.check_and_mutate_row(mark).await?;
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let row = system.read_row(&RowKey::from(ROW), &select).await?;
    let stored = row.newest(&SYSTEM, QUALIFIER.as_bytes()).map(|cell| cell.value.clone());
    let found = stored.as_deref().and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
    match found {
        Some(version) if version <= VERSION => Ok(()),
        Some(version) => Err(Error::Store(bigtable::Error::Files {
            path: SYSTEM_TABLE.into(),
            problem: format!(
                "the data has Percolator's format {version}, this program reads up to {VERSION}"
            ),
            remedy: "open it with the version of percolator that wrote it, or a newer one".into(),
        })),
        None => Err(Error::Corrupt { record: "format", bytes: stored.unwrap_or_default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigtable::{MemoryStore, RowMutation, Store};
    use futures::executor::block_on;

    #[test]
    fn newer_data_is_refused_with_a_remedy() {
        block_on(async {
            let store = MemoryStore::new();
            let schema = crate::layout::system_schema();
            let system = store.open_table(SYSTEM_TABLE, &schema).await.unwrap();
            check(&*system).await.unwrap();
            check(&*system).await.unwrap();
            let newer = (VERSION + 1).to_be_bytes().to_vec();
            let set = Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, newer);
            system.mutate_row(RowMutation::new(ROW).mutation(set)).await.unwrap();
            let error = check(&*system).await.unwrap_err().to_string();
            assert!(error.contains("format 2") && error.contains("help:"), "{error}");
        });
    }
}

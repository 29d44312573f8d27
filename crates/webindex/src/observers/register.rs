//! Register: keeps a page's membership in the three index tables (paper section 3.1).

use percolator::{Change, Observer, Result, Transaction, async_trait};

use crate::records::{KeyRow, Keys, decode, encode};
use crate::tables::{
    CANONICAL, ELECT, EXPORT_PAGE, KEYS, KeyKind, RANK, REGISTERED, Tables, member,
};

/// Observes `doc:keys`.
#[derive(Debug)]
pub(super) struct Register {
    tables: Tables,
}

impl Register {
    pub(super) fn new(tables: Tables) -> Self {
        Register { tables }
    }
}

#[async_trait]
impl Observer for Register {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = super::row_url(change)?;
        let Change { table, row, .. } = change;
        let keys: Option<Keys> = decode(tx.get(table, row, &KEYS).await?)?;
        let new = keys.as_ref().map_or_else(Vec::new, |keys| keys.rows(&url));
        let old: Option<Vec<KeyRow>> = decode(tx.get(table, row, &REGISTERED).await?)?;
        let old = old.unwrap_or_default();
        let column = member(&url)?;
        for (kind, key) in old.iter().filter(|key| !new.contains(key)) {
            let index = self.tables.by_key(*kind);
            tx.delete(index, key.clone(), &column)?;
            // Who stays behind may need another canonical.
            tx.notify(index, key.clone(), &ELECT)?;
        }
        for (kind, key) in new.iter().filter(|key| !old.contains(key)) {
            tx.set(self.tables.by_key(*kind), key.clone(), &column, "")?;
        }
        if keys.is_some() {
            tx.set(table, row, &REGISTERED, encode(&new))?;
            // All its keys are one cluster now: an election from any of them reaches the others.
            tx.notify(self.tables.by_key(KeyKind::Redirect), url.as_str(), &ELECT)?;
        } else {
            tx.delete(table, row, &REGISTERED)?;
            tx.delete(table, row, &RANK)?;
        }
        if !old.is_empty() {
            // Written even if it is not there: an election that still counts this page among its old
            // cluster then conflicts, instead of leaving it a canonical that nobody would correct.
            tx.delete(table, row, &CANONICAL)?;
        }
        tx.notify(table, row, &EXPORT_PAGE)
    }
}

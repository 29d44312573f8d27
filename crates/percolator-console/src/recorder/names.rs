//! Counts transactions, or runs of observers, by name.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use crate::recorder::Histogram;

/// The most names with counts of their own; all others share the name [`OTHER`].
const NAMES_MAX: usize = 64;
/// The name of all names beyond [`NAMES_MAX`].
pub(crate) const OTHER: &str = "other";
/// The name of transactions that have none.
pub(crate) const UNNAMED: &str = "unnamed";

/// The counts of one name.
#[derive(Debug)]
pub(crate) struct ByName {
    pub(crate) name: Arc<str>,
    pub(crate) committed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) duration: Histogram,
    pub(crate) delay: Histogram,
    /// How many microseconds the observer has worked.
    pub(crate) busy: AtomicU64,
}

/// The names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    of: RwLock<BTreeMap<Arc<str>, Arc<ByName>>>,
}

impl Names {
    /// Returns the counts of a name, and adds the name if it is new.
    pub(crate) fn of(&self, name: &str) -> Arc<ByName> {
        let found = |names: &BTreeMap<Arc<str>, Arc<ByName>>| {
            let full = names.len() >= NAMES_MAX;
            names.get(name).or_else(|| names.get(OTHER).filter(|_| full)).cloned()
        };
        if let Some(counts) = found(&self.of.read().unwrap_or_else(PoisonError::into_inner)) {
            return counts;
        }
        let mut names = self.of.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = found(&names) {
            return counts;
        }
        // The last place is for [`OTHER`].
        let name: Arc<str> = if names.len() + 1 >= NAMES_MAX { OTHER } else { name }.into();
        let fresh = || {
            Arc::new(ByName {
                name: name.clone(),
                committed: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                conflicts: AtomicU64::new(0),
                duration: Histogram::default(),
                delay: Histogram::default(),
                busy: AtomicU64::new(0),
            })
        };
        names.entry(name.clone()).or_insert_with(fresh).clone()
    }

    /// Returns all names with their counts, in order.
    pub(crate) fn all(&self) -> Vec<Arc<ByName>> {
        self.of.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn names_beyond_the_bound_are_one() {
        let names = Names::default();
        for n in 0..3 * NAMES_MAX {
            names.of(&format!("name{n}")).committed.fetch_add(1, Ordering::Relaxed);
        }
        let all = names.all();
        assert_eq!(all.len(), NAMES_MAX);
        let sum: u64 = all.iter().map(|of| of.committed.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 3 * NAMES_MAX as u64);
        assert_eq!(names.of("name1").name.as_ref(), "name1");
        assert_eq!(names.of("fresh").name.as_ref(), OTHER);
    }
}

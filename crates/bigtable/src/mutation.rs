//! Defines what to write: mutations of one row, and conditions for them.

use std::time::Duration;

use bytes::Bytes;

use crate::{Error, Family, QUALIFIER_BYTES_MAX, Qualifiers, Result, RowKey};
use crate::{TableSchema, TimeRange, Timestamp, VALUE_BYTES_MAX};

/// One change to a row. The mutations of one request apply in order and atomically.
///
/// ```
/// use bigtable::{Family, Mutation, Timestamp};
/// let set = Mutation::set(Family::from_static("data"), "bal", Timestamp::ZERO, "$10");
/// assert!(matches!(set, Mutation::Set { .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mutation {
    /// Writes a cell, replacing the one at the same timestamp if there is one.
    Set {
        /// The column's family.
        family: Family,
        /// The column's qualifier.
        qualifier: Bytes,
        /// The version to write.
        timestamp: Timestamp,
        /// The value.
        value: Bytes,
    },
    /// Deletes the versions of one column in `time`. It is no error if there are none.
    Delete {
        /// The column's family.
        family: Family,
        /// The column's qualifier.
        qualifier: Bytes,
        /// The versions to delete.
        time: TimeRange,
    },
}

impl Mutation {
    /// Short for [`Mutation::Set`].
    pub fn set(
        family: Family,
        qualifier: impl Into<Bytes>,
        timestamp: Timestamp,
        value: impl Into<Bytes>,
    ) -> Self {
        Mutation::Set { family, qualifier: qualifier.into(), timestamp, value: value.into() }
    }

    /// Short for [`Mutation::Delete`].
    pub fn delete(family: Family, qualifier: impl Into<Bytes>, time: TimeRange) -> Self {
        Mutation::Delete { family, qualifier: qualifier.into(), time }
    }

    pub(crate) fn check(&self, schema: &TableSchema) -> Result<()> {
        let (family, qualifier) = match self {
            Mutation::Set { family, qualifier, value, .. } => {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(Error::invalid(format!(
                        "the value has {} bytes, at most {VALUE_BYTES_MAX} fit into a cell",
                        value.len()
                    )));
                }
                (family, qualifier)
            }
            Mutation::Delete { family, qualifier, .. } => (family, qualifier),
        };
        check_column(schema, family, qualifier)
    }
}

/// A condition: "a cell of this column, or of any column of this family, exists in this time
/// range". It may also require a prefix of the cell's value.
///
/// ```
/// use bigtable::{Family, Probe, Qualifiers, TimeRange};
/// let any_lock = Probe::new(Family::from_static("lock"), "bal", TimeRange::ALL);
/// assert!(any_lock.value_prefix.is_none());
/// let of_any_column = Probe::family(Family::from_static("lock"), TimeRange::ALL);
/// assert_eq!(of_any_column.qualifiers, Qualifiers::All);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The family.
    pub family: Family,
    /// The columns to search.
    pub qualifiers: Qualifiers,
    /// The versions to search.
    pub time: TimeRange,
    /// If set, only cells whose value begins with these bytes count.
    pub value_prefix: Option<Bytes>,
}

impl Probe {
    /// A probe of one column, for any value.
    pub fn new(family: Family, qualifier: impl Into<Bytes>, time: TimeRange) -> Self {
        let qualifiers = Qualifiers::Is(qualifier.into());
        Probe { family, qualifiers, time, value_prefix: None }
    }

    /// A probe of all columns of a family, for any value. Its length does not depend on any
    /// name.
    pub fn family(family: Family, time: TimeRange) -> Self {
        Probe { family, qualifiers: Qualifiers::All, time, value_prefix: None }
    }

    /// Restricts the probe to cells whose value begins with `prefix`.
    #[must_use]
    pub fn with_value_prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.value_prefix = Some(prefix.into());
        self
    }

    pub(crate) fn check(&self, schema: &TableSchema) -> Result<()> {
        match &self.qualifiers {
            Qualifiers::All => schema.check_family(&self.family).map(drop),
            Qualifiers::Is(qualifier) => check_column(schema, &self.family, qualifier),
        }
    }
}

/// The time at which a change must be on disk.
///
/// ```
/// use bigtable::{RowMutation, Syncing};
/// let renewal = RowMutation::new("token").sync(Syncing::MayBeLost);
/// assert_ne!(renewal.sync, Syncing::default());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Syncing {
    /// Before the acknowledgement, if the store's durability level requires it.
    #[default]
    AsStore,
    /// Before the acknowledgement, at any durability level of the store. The oracle's window
    /// needs this.
    Always,
    /// Later. A power cut may undo the change after it was acknowledged and read, together
    /// with all later changes of this kind. A later change that is synced also makes this one
    /// durable. The change survives the end of the process. A store may sync it anyway.
    MayBeLost,
}

impl Syncing {
    /// The time for which a store answers nothing after a power cut that left changes under
    /// [`MayBeLost`](Syncing::MayBeLost) unsynced.
    ///
    /// The cut may have undone the renewal of a lease without its holder knowing. So the lease
    /// must expire before anyone can read the older record. A lease is 2 s long, and a clock
    /// may run slow by a fifth.
    pub const SILENCE: Duration = Duration::from_millis(2400);
}

/// An unconditional change to one row.
///
/// ```
/// use bigtable::{Family, Mutation, RowMutation, Timestamp};
/// let request = RowMutation::new("Bob").mutation(Mutation::set(
///     Family::from_static("data"), "bal", Timestamp::ZERO, "$10"));
/// assert_eq!(request.mutations.len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowMutation {
    /// The row.
    pub row: RowKey,
    /// The changes, in order.
    pub mutations: Vec<Mutation>,
    /// The time at which the change must be on disk.
    pub sync: Syncing,
}

impl RowMutation {
    /// A request without mutations.
    pub fn new(row: impl Into<RowKey>) -> Self {
        RowMutation { row: row.into(), mutations: Vec::new(), sync: Syncing::AsStore }
    }

    /// Sets the time at which the change must be on disk.
    #[must_use]
    pub fn sync(mut self, sync: Syncing) -> Self {
        self.sync = sync;
        self
    }

    /// Adds a mutation.
    #[must_use]
    pub fn mutation(mut self, mutation: Mutation) -> Self {
        self.mutations.push(mutation);
        self
    }

    /// Checks the request's limits, and that the table has its families.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the limit or the family.
    pub fn check(&self, schema: &TableSchema) -> Result<()> {
        self.row.check()?;
        self.mutations.iter().try_for_each(|mutation| mutation.check(schema))
    }
}

/// A read-modify-write of one row in one request (paper section 2.5). If *any* probe of the
/// predicate finds a cell, `then` is applied, otherwise `otherwise`. An empty predicate finds
/// nothing.
///
/// ```
/// use bigtable::{ConditionalMutation, Family, Mutation, Probe, TimeRange, Timestamp};
/// let lock = Family::from_static("lock");
/// let at = Timestamp::new(7).unwrap();
/// let request = ConditionalMutation {
///     predicate: vec![Probe::new(lock.clone(), "bal", TimeRange::ALL)],
///     otherwise: vec![Mutation::set(lock, "bal", at, "primary")],
///     ..ConditionalMutation::new("Bob")
/// };
/// assert!(request.then.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalMutation {
    /// The row.
    pub row: RowKey,
    /// The predicate: it holds if any of these probes finds a cell.
    pub predicate: Vec<Probe>,
    /// The changes if the predicate holds.
    pub then: Vec<Mutation>,
    /// The changes if the predicate does not hold.
    pub otherwise: Vec<Mutation>,
    /// If set, the request is refused with [`TooOld`](Error::TooOld) if this timestamp is
    /// below the store's floor. The comparison is part of the same atomic step as the change.
    pub above: Option<Timestamp>,
    /// The time at which the change must be on disk.
    pub sync: Syncing,
}

impl ConditionalMutation {
    /// A request without a condition and without mutations.
    pub fn new(row: impl Into<RowKey>) -> Self {
        ConditionalMutation {
            row: row.into(),
            predicate: Vec::new(),
            then: Vec::new(),
            otherwise: Vec::new(),
            above: None,
            sync: Syncing::AsStore,
        }
    }

    /// Checks the request's limits, and that the table has its families.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the limit or the family.
    pub fn check(&self, schema: &TableSchema) -> Result<()> {
        self.row.check()?;
        self.predicate.iter().try_for_each(|probe| probe.check(schema))?;
        self.then.iter().chain(&self.otherwise).try_for_each(|mutation| mutation.check(schema))
    }
}

fn check_column(schema: &TableSchema, family: &Family, qualifier: &[u8]) -> Result<()> {
    schema.check_family(family)?;
    if qualifier.len() > QUALIFIER_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the qualifier has {} bytes, at most {QUALIFIER_BYTES_MAX} are allowed",
            qualifier.len()
        )));
    }
    Ok(())
}

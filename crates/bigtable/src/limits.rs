//! Defines the largest requests that a store accepts, and computes the size of a request.
//!
//! A protocol of several steps must know before its first step whether the store will accept
//! the later ones. So a store states its limits. The computed size of a request is an upper
//! bound in any encoding, because it adds room to the lengths of names and values. The size leaves
//! out the predicate of a request without mutations in `then`.

use std::fmt::Display;

use crate::{ConditionalMutation, Error, Mutation, Probe, Qualifiers, Result};
use crate::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The most bytes of a mutation besides its names and its value.
const MUTATION_BYTES: usize = 48;
/// The most bytes of a probe besides its names and its value.
const PROBE_BYTES: usize = 128;

/// The largest requests that a store accepts. `None` means that only memory limits the value.
///
/// ```
/// use bigtable::{ConditionalMutation, Family, Limits, Mutation, Timestamp};
/// let limits = Limits { mutations_max: Some(1), ..Limits::default() };
/// let set = Mutation::set(Family::from_static("data"), "bal", Timestamp::ZERO, "$10");
/// let then = vec![set.clone()];
/// let request = ConditionalMutation { then, ..ConditionalMutation::new("Bob") };
/// assert!(limits.check(request.size()).is_ok());
/// let request = ConditionalMutation { otherwise: vec![set], ..request };
/// let error = limits.check(request.size()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid request: 2 mutations in one request, and the store allows at most 1"
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest row key, in bytes.
    pub row_key_bytes_max: usize,
    /// The longest column qualifier, in bytes.
    pub qualifier_bytes_max: usize,
    /// The largest value of one cell, in bytes.
    pub value_bytes_max: usize,
    /// The most mutations in one request.
    pub mutations_max: Option<usize>,
    /// The largest request, in bytes.
    pub request_bytes_max: Option<usize>,
    /// The longest predicate, in bytes, of a request with mutations in `then`. If `then` is
    /// empty, a store may evaluate a longer predicate coarsely: it may hold where it should
    /// not, and the row then stays unchanged.
    pub predicate_bytes_max: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            row_key_bytes_max: ROW_KEY_BYTES_MAX,
            qualifier_bytes_max: QUALIFIER_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            mutations_max: None,
            request_bytes_max: None,
            predicate_bytes_max: None,
        }
    }
}

/// An upper bound of a request's size, in any encoding.
///
/// See [`Limits`] for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// The bytes of the row's key.
    pub row_key_bytes: usize,
    /// The bytes of the longest qualifier.
    pub qualifier_bytes: usize,
    /// The bytes of the largest value.
    pub value_bytes: usize,
    /// The number of mutations, in both branches.
    pub mutations: usize,
    /// The bytes of keys, names, values and their framing. Includes the predicate only if
    /// `predicate_bytes` counts it.
    pub bytes: usize,
    /// The bytes of the predicate, if `then` has mutations. Otherwise zero.
    pub predicate_bytes: usize,
}

impl RequestSize {
    /// The size of a request for a row, without probes and mutations.
    pub fn of_row(row: &[u8]) -> Self {
        RequestSize { row_key_bytes: row.len(), bytes: row.len(), ..RequestSize::default() }
    }

    /// Adds a mutation of a column with these lengths.
    #[must_use]
    pub fn and_mutation(self, family: usize, qualifier: usize, value: usize) -> Self {
        RequestSize {
            qualifier_bytes: self.qualifier_bytes.max(qualifier),
            value_bytes: self.value_bytes.max(value),
            mutations: self.mutations + 1,
            bytes: self.bytes.saturating_add(MUTATION_BYTES + family + qualifier + value),
            ..self
        }
    }

    /// Adds a predicate of `bytes` bytes, in a request with mutations in `then`.
    #[must_use]
    pub fn and_predicate(self, bytes: usize) -> Self {
        RequestSize {
            predicate_bytes: self.predicate_bytes.saturating_add(bytes),
            bytes: self.bytes.saturating_add(bytes),
            ..self
        }
    }

    /// Adds this mutation.
    #[must_use]
    pub fn and(self, mutation: &Mutation) -> Self {
        match mutation {
            Mutation::Set { family, qualifier, value, .. } => {
                self.and_mutation(family.as_str().len(), qualifier.len(), value.len())
            }
            Mutation::Delete { family, qualifier, .. } => {
                self.and_mutation(family.as_str().len(), qualifier.len(), 0)
            }
        }
    }
}

impl Probe {
    /// The most bytes that the probe takes in a predicate.
    pub fn bytes_max(&self) -> usize {
        // Each bound of a range contains the qualifier, and a range has two bounds.
        let qualifier = match &self.qualifiers {
            Qualifiers::All => 0,
            Qualifiers::Is(qualifier) => 2 * qualifier.len(),
        };
        let value = 2 * self.value_prefix.as_ref().map_or(0, bytes::Bytes::len);
        PROBE_BYTES + self.family.as_str().len() + qualifier + value
    }
}

impl ConditionalMutation {
    /// The size of the request.
    pub fn size(&self) -> RequestSize {
        let row = RequestSize::of_row(self.row.as_bytes());
        let size = self.then.iter().chain(&self.otherwise).fold(row, RequestSize::and);
        if self.then.is_empty() {
            size
        } else {
            size.and_predicate(self.predicate.iter().map(Probe::bytes_max).sum())
        }
    }
}

impl Limits {
    /// Checks that the store accepts a request of this size.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the size and the limit.
    pub fn check(&self, size: RequestSize) -> Result<()> {
        let none = usize::MAX;
        within(size.row_key_bytes, self.row_key_bytes_max, "bytes of a row key")?;
        within(size.qualifier_bytes, self.qualifier_bytes_max, "bytes of a qualifier")?;
        within(size.value_bytes, self.value_bytes_max, "bytes of a value")?;
        within(size.mutations, self.mutations_max.unwrap_or(none), "mutations in one request")?;
        within(size.bytes, self.request_bytes_max.unwrap_or(none), "bytes in one request")?;
        let predicate_max = self.predicate_bytes_max.unwrap_or(none);
        within(size.predicate_bytes, predicate_max, "bytes of a predicate")
    }
}

fn within(size: usize, max: usize, of: impl Display) -> Result<()> {
    if size <= max {
        return Ok(());
    }
    Err(Error::invalid(format!("{size} {of}, and the store allows at most {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, TimeRange, Timestamp};

    const DATA: Family = Family::from_static("data");

    #[test]
    fn each_limit_is_checked_by_itself() {
        let size = RequestSize {
            row_key_bytes: 3,
            qualifier_bytes: 3,
            value_bytes: 3,
            mutations: 3,
            bytes: 3,
            predicate_bytes: 3,
        };
        let of = |max: usize| Limits {
            row_key_bytes_max: max,
            qualifier_bytes_max: max,
            value_bytes_max: max,
            mutations_max: Some(max),
            request_bytes_max: Some(max),
            predicate_bytes_max: Some(max),
        };
        assert!(of(3).check(size).is_ok());
        let limits = [
            (Limits { row_key_bytes_max: 2, ..of(3) }, "row key"),
            (Limits { qualifier_bytes_max: 2, ..of(3) }, "qualifier"),
            (Limits { value_bytes_max: 2, ..of(3) }, "value"),
            (Limits { mutations_max: Some(2), ..of(3) }, "mutations"),
            (Limits { request_bytes_max: Some(2), ..of(3) }, "bytes in one request"),
            (Limits { predicate_bytes_max: Some(2), ..of(3) }, "predicate"),
        ];
        for (limits, named) in limits {
            let error = limits.check(size).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("at most 2"), "{error}");
        }
    }

    #[test]
    fn a_predicate_counts_where_its_holding_changes_the_row() {
        let probe = Probe::new(DATA, "name", TimeRange::ALL).with_value_prefix("value");
        let set = Mutation::set(DATA, "name", Timestamp::ZERO, "value");
        let request = ConditionalMutation {
            predicate: vec![probe.clone(), probe],
            then: vec![set.clone()],
            ..ConditionalMutation::new("row")
        };
        let size = request.size();
        assert_eq!(size.predicate_bytes, 2 * (PROBE_BYTES + 4 + 8 + 10));
        assert_eq!(size.bytes, 3 + size.predicate_bytes + MUTATION_BYTES + 13);
        let otherwise = ConditionalMutation { then: vec![], otherwise: vec![set], ..request };
        let bytes = size.bytes - size.predicate_bytes;
        assert_eq!(otherwise.size(), RequestSize { predicate_bytes: 0, bytes, ..size });
    }
}

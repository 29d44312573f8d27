//! The largest requests that a store takes, and how large a request is.
//!
//! A protocol of several steps asks before its first step whether the store will take the later
//! ones. So a store states its limits, and sizes are upper bounds that follow from names and values
//! alone, whatever the encoding in which the request travels.

use std::fmt::Display;

use crate::{ConditionalMutation, Error, Mutation, Probe, Qualifiers, Result};
use crate::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// What a mutation takes beside its names and its value, at most.
const MUTATION_BYTES: usize = 48;
/// What a probe takes beside its names and its value, at most.
const PROBE_BYTES: usize = 128;

/// The largest requests that a store takes. `None`: there is no bound but memory.
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
/// assert_eq!(error.to_string(), "invalid request: 2 mutations in one request, the store takes 1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest row key, in bytes.
    pub row_key_bytes_max: usize,
    /// Longest column qualifier, in bytes.
    pub qualifier_bytes_max: usize,
    /// Largest value of one cell, in bytes.
    pub value_bytes_max: usize,
    /// Most mutations in one request.
    pub mutations_max: Option<usize>,
    /// Largest request, in bytes.
    pub request_bytes_max: Option<usize>,
    /// Longest predicate of a request that changes the row when its predicate holds, in bytes. A
    /// longer one of another request may be evaluated coarsely: it may hold where it should not,
    /// and the row then stays as it is.
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

/// How large a request is at most, in whatever encoding it travels.
///
/// See [`Limits`] for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// Its row's key, in bytes.
    pub row_key_bytes: usize,
    /// Its longest qualifier, in bytes.
    pub qualifier_bytes: usize,
    /// Its largest value, in bytes.
    pub value_bytes: usize,
    /// Its mutations, of both branches.
    pub mutations: usize,
    /// Keys, names, values and what stands around them, in bytes; of the predicate only if
    /// `predicate_bytes` has it.
    pub bytes: usize,
    /// Its predicate, in bytes, if it changes the row when the predicate holds.
    pub predicate_bytes: usize,
}

impl RequestSize {
    /// A request for a row that has neither probes nor mutations yet.
    pub fn of_row(row: &[u8]) -> Self {
        RequestSize { row_key_bytes: row.len(), bytes: row.len(), ..RequestSize::default() }
    }

    /// The same request with a mutation of a column of these lengths besides.
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

    /// The same request with a predicate of so many bytes, whose holding changes the row.
    #[must_use]
    pub fn and_predicate(self, bytes: usize) -> Self {
        RequestSize {
            predicate_bytes: self.predicate_bytes.saturating_add(bytes),
            bytes: self.bytes.saturating_add(bytes),
            ..self
        }
    }

    /// The same request with this mutation besides.
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
    /// How many bytes it takes in a predicate, at most.
    pub fn bytes_max(&self) -> usize {
        // A bound names it once, and a range has two.
        let qualifier = match &self.qualifiers {
            Qualifiers::All => 0,
            Qualifiers::Is(qualifier) => 2 * qualifier.len(),
        };
        let value = 2 * self.value_prefix.as_ref().map_or(0, bytes::Bytes::len);
        PROBE_BYTES + self.family.as_str().len() + qualifier + value
    }
}

impl ConditionalMutation {
    /// How large the request is.
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
    /// Checks that the store takes a request of this size.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] names the size and the limit.
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
    Err(Error::invalid(format!("{size} {of}, the store takes {max}")))
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
            assert!(error.contains(named) && error.contains("takes 2"), "{error}");
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

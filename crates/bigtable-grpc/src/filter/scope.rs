//! Derives the part of a row that a filter can pass, so that the server need not read the rest.
//!
//! Invariant: applied to the cells that its scopes cover, a filter passes exactly the cells
//! that it passes of the whole row. Scopes may cover more cells than the filter passes, never
//! fewer.

use bigtable::{Bytes, TimeRange};

use super::{Filter, Pattern};
use crate::time;

/// Cells of a row that satisfy all of these conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The family; `None` for any.
    pub(crate) family: Option<String>,
    /// The qualifier; `None` for any.
    pub(crate) qualifier: Option<Bytes>,
    /// The range of times.
    pub(crate) time: TimeRange,
    /// The number of newest versions of each column within these times.
    pub(crate) versions_max: u32,
}

impl Scope {
    /// The whole row.
    pub(crate) const fn all() -> Self {
        Scope { family: None, qualifier: None, time: TimeRange::ALL, versions_max: u32::MAX }
    }

    fn narrow_family(&mut self, family: &str) -> bool {
        match &self.family {
            Some(known) => known == family,
            None => {
                self.family = Some(family.to_owned());
                true
            }
        }
    }

    fn narrow_qualifier(&mut self, qualifier: &Bytes) -> bool {
        match &self.qualifier {
            Some(known) => known == qualifier,
            None => {
                self.qualifier = Some(qualifier.clone());
                true
            }
        }
    }

    fn narrow_time(&mut self, time: TimeRange) -> bool {
        self.time.from = self.time.from.max(time.from);
        self.time.to = self.time.to.min(time.to);
        self.time.from <= self.time.to
    }

    /// Narrows this scope to what `inner` also covers. `countable` says that only columns and
    /// times have been chosen so far, so that the newest versions are still the newest.
    fn narrow(&self, inner: &Scope, countable: bool) -> Option<Scope> {
        let mut scope = self.clone();
        let sound = inner.family.as_ref().is_none_or(|family| scope.narrow_family(family))
            && inner.qualifier.as_ref().is_none_or(|q| scope.narrow_qualifier(q))
            && scope.narrow_time(inner.time);
        if countable {
            scope.versions_max = inner.versions_max;
        }
        sound.then_some(scope)
    }
}

/// The scopes that cover every cell the filter can pass; none if it passes nothing.
pub(crate) fn scopes(filter: &Filter) -> Vec<Scope> {
    match filter {
        Filter::Chain(filters) => chain(filters),
        filter => chain(std::slice::from_ref(filter)),
    }
}

fn chain(filters: &[Filter]) -> Vec<Scope> {
    let mut scope = Scope::all();
    let mut countable = true;
    for filter in filters {
        let any = match filter {
            Filter::Family(Pattern::Exact(family)) => {
                str::from_utf8(family).is_ok_and(|family| scope.narrow_family(family))
            }
            Filter::Qualifier(Pattern::Exact(exact)) => {
                scope.narrow_qualifier(&Bytes::copy_from_slice(exact))
            }
            Filter::Columns { family, qualifiers } => {
                scope.narrow_family(family)
                    && qualifiers.only().is_none_or(|only| scope.narrow_qualifier(only))
            }
            Filter::Times(start, end) => scope.narrow_time(time::range(*start, *end)),
            Filter::Block => false,
            // These pass or drop whole rows or columns, or change cells without dropping any.
            Filter::Pass
            | Filter::RowKey(_)
            | Filter::Sample(_)
            | Filter::Family(_)
            | Filter::Qualifier(_)
            | Filter::Strip
            | Filter::Label(_) => true,
            Filter::Value(_) | Filter::Values(_) => {
                countable = false;
                true
            }
            Filter::ColumnLimit(versions) => {
                if countable {
                    scope.versions_max = *versions;
                }
                return vec![scope];
            }
            // The effect of these and of later filters depends on all cells, so nothing narrows
            // from here.
            Filter::RowOffset(_) | Filter::RowLimit(_) | Filter::Sink => return vec![scope],
            Filter::Chain(inner) => return narrowed(&scope, countable, chain(inner)),
            Filter::Interleave(branches) => {
                let inner = branches.iter().flat_map(scopes).collect();
                return narrowed(&scope, countable, inner);
            }
            Filter::Condition { predicate, then, other } => {
                let branches = then.iter().chain(other).flat_map(|branch| scopes(branch));
                let inner = scopes(predicate).into_iter().chain(branches).collect();
                return narrowed(&scope, countable, inner);
            }
        };
        if !any {
            return Vec::new();
        }
    }
    vec![scope]
}

fn narrowed(scope: &Scope, countable: bool, inner: Vec<Scope>) -> Vec<Scope> {
    inner.iter().filter_map(|inner| scope.narrow(inner, countable)).collect()
}

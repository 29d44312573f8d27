//! Checks and compiles row filters of the API, and applies them to rows.
//!
//! ```text
//!   RowFilter --compile--> Filter --apply--> the cells of one row that are left    (apply.rs)
//!                             '----scope---> columns that any of them can come from (scope.rs)
//! ```
//!
//! A filter comes from a client, so its size and depth are checked before it is evaluated.

mod apply;
mod pattern;
mod scope;
#[cfg(test)]
mod tests;

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bigtable::Bytes;
use prost::Message;

pub(crate) use apply::{Cell, apply};
pub(crate) use pattern::Pattern;
pub(crate) use scope::{Scope, scopes};

use crate::proto::data::row_filter::Filter as Wire;
use crate::proto::data::{ColumnRange, RowFilter, ValueRange, column_range, value_range};

/// Longest filter, in encoded bytes.
pub(crate) const FILTER_BYTES_MAX: usize = 20_480;
/// Greatest depth of nested chains, interleaves and conditions.
const DEPTH_MAX: usize = 20;
/// Longest label, in bytes.
const LABEL_BYTES_MAX: usize = 15;

/// A checked filter.
#[derive(Debug, Clone)]
pub(crate) enum Filter {
    Chain(Vec<Filter>),
    Interleave(Vec<Filter>),
    Condition {
        predicate: Box<Filter>,
        then: Option<Box<Filter>>,
        other: Option<Box<Filter>>,
    },
    Sink,
    Pass,
    Block,
    RowKey(Pattern),
    /// Passes a row with this probability.
    Sample(f64),
    Family(Pattern),
    Qualifier(Pattern),
    Columns {
        family: String,
        qualifiers: Interval,
    },
    /// Passes times from the first, included, to the second, excluded, in microseconds; 0 is no
    /// end.
    Times(i64, i64),
    Value(Pattern),
    Values(Interval),
    RowOffset(usize),
    RowLimit(usize),
    ColumnLimit(u32),
    Strip,
    Label(Arc<str>),
}

/// An interval of byte strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: Bound<Bytes>,
    pub(crate) end: Bound<Bytes>,
}

impl Interval {
    pub(crate) fn contains(&self, text: &Bytes) -> bool {
        let bounds: (Bound<&Bytes>, Bound<&Bytes>) = (self.start.as_ref(), self.end.as_ref());
        RangeBounds::<Bytes>::contains(&bounds, text)
    }

    /// The only string in the interval, if both bounds are that string.
    pub(crate) fn only(&self) -> Option<&Bytes> {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) if start == end => Some(start),
            _ => None,
        }
    }
}

/// Checks and compiles a filter. The error says what is wrong with it. `None` passes
/// everything.
pub(crate) fn compile(filter: Option<&RowFilter>) -> Result<Filter, String> {
    let Some(filter) = filter else { return Ok(Filter::Pass) };
    let bytes = filter.encoded_len();
    if bytes > FILTER_BYTES_MAX {
        return Err(format!("the filter has {bytes} bytes, at most {FILTER_BYTES_MAX}"));
    }
    compile_at(filter, 1, false)
}

fn compile_at(filter: &RowFilter, depth: usize, in_condition: bool) -> Result<Filter, String> {
    if depth > DEPTH_MAX {
        return Err(format!("the filter nests deeper than {DEPTH_MAX}"));
    }
    let Some(filter) = &filter.filter else { return Ok(Filter::Pass) };
    let inner = |filter: &RowFilter| compile_at(filter, depth + 1, in_condition);
    let pattern = |what: &str, pattern: &[u8]| {
        Pattern::new(pattern)
            .map_err(|error| format!("{what} is not a regular expression: {error}"))
    };
    Ok(match filter {
        Wire::Chain(chain) => {
            let filters = several("chain", &chain.filters, inner)?;
            if filters.iter().filter(|filter| filter.has_label()).count() > 1 {
                return Err("a chain may apply one label only".to_owned());
            }
            Filter::Chain(filters)
        }
        Wire::Interleave(interleave) => {
            Filter::Interleave(several("interleave", &interleave.filters, inner)?)
        }
        Wire::Condition(condition) => {
            let branch = |filter: &Option<Box<RowFilter>>| -> Result<_, String> {
                let filter = filter.as_deref().map(|f| compile_at(f, depth + 1, true));
                Ok(filter.transpose()?.map(Box::new))
            };
            let predicate = branch(&condition.predicate_filter)?;
            Filter::Condition {
                predicate: predicate.ok_or("the condition has no predicate")?,
                then: branch(&condition.true_filter)?,
                other: branch(&condition.false_filter)?,
            }
        }
        Wire::Sink(true) if in_condition => {
            return Err("a condition must not contain a sink".to_owned());
        }
        Wire::Sink(true) => Filter::Sink,
        Wire::PassAllFilter(true) => Filter::Pass,
        Wire::BlockAllFilter(true) => Filter::Block,
        Wire::StripValueTransformer(true) => Filter::Strip,
        Wire::Sink(false)
        | Wire::PassAllFilter(false)
        | Wire::BlockAllFilter(false)
        | Wire::StripValueTransformer(false) => {
            return Err("sink, pass_all, block_all and strip_value must be true".to_owned());
        }
        Wire::RowKeyRegexFilter(text) => Filter::RowKey(pattern("row_key_regex", text)?),
        Wire::RowSampleFilter(part) if *part > 0.0 && *part < 1.0 => Filter::Sample(*part),
        Wire::RowSampleFilter(part) => {
            return Err(format!("row_sample must lie between 0 and 1, both excluded: {part}"));
        }
        Wire::FamilyNameRegexFilter(text) if text.contains(':') => {
            return Err("family_name_regex must not contain a colon".to_owned());
        }
        Wire::FamilyNameRegexFilter(text) => {
            Filter::Family(pattern("family_name_regex", text.as_bytes())?)
        }
        Wire::ColumnQualifierRegexFilter(text) => {
            Filter::Qualifier(pattern("column_qualifier_regex", text)?)
        }
        Wire::ColumnRangeFilter(range) => columns(range)?,
        Wire::TimestampRangeFilter(range) => {
            times(range.start_timestamp_micros, range.end_timestamp_micros)?
        }
        Wire::ValueRegexFilter(text) => Filter::Value(pattern("value_regex", text)?),
        Wire::ValueRangeFilter(range) => Filter::Values(values(range)?),
        Wire::CellsPerRowOffsetFilter(cells) => {
            Filter::RowOffset(cells_of("cells_per_row_offset", *cells, 0)? as usize)
        }
        Wire::CellsPerRowLimitFilter(cells) => {
            Filter::RowLimit(cells_of("cells_per_row_limit", *cells, 1)? as usize)
        }
        Wire::CellsPerColumnLimitFilter(cells) => {
            Filter::ColumnLimit(cells_of("cells_per_column_limit", *cells, 1)?)
        }
        Wire::ApplyLabelTransformer(text) => label(text)?,
    })
}

impl Filter {
    fn has_label(&self) -> bool {
        match self {
            Filter::Label(_) => true,
            Filter::Chain(filters) | Filter::Interleave(filters) => {
                filters.iter().any(Filter::has_label)
            }
            Filter::Condition { then, other, .. } => {
                then.iter().chain(other).any(|filter| filter.has_label())
            }
            _ => false,
        }
    }
}

fn several(
    what: &str,
    filters: &[RowFilter],
    inner: impl Fn(&RowFilter) -> Result<Filter, String>,
) -> Result<Vec<Filter>, String> {
    if filters.len() < 2 {
        return Err(format!("{what} must contain at least two filters"));
    }
    filters.iter().map(inner).collect()
}

fn columns(range: &ColumnRange) -> Result<Filter, String> {
    use column_range::{EndQualifier, StartQualifier};
    if range.family_name.is_empty() {
        return Err("the column range has no family".to_owned());
    }
    let start = match &range.start_qualifier {
        None => Bound::Unbounded,
        Some(StartQualifier::StartQualifierClosed(start)) => Bound::Included(start.clone()),
        Some(StartQualifier::StartQualifierOpen(start)) => Bound::Excluded(start.clone()),
    };
    let end = match &range.end_qualifier {
        None => Bound::Unbounded,
        Some(EndQualifier::EndQualifierClosed(end)) => Bound::Included(end.clone()),
        Some(EndQualifier::EndQualifierOpen(end)) => Bound::Excluded(end.clone()),
    };
    let qualifiers = interval("column range", start, end)?;
    Ok(Filter::Columns { family: range.family_name.clone(), qualifiers })
}

fn values(range: &ValueRange) -> Result<Interval, String> {
    use value_range::{EndValue, StartValue};
    let start = match &range.start_value {
        None => Bound::Unbounded,
        Some(StartValue::StartValueClosed(start)) => Bound::Included(start.clone()),
        Some(StartValue::StartValueOpen(start)) => Bound::Excluded(start.clone()),
    };
    let end = match &range.end_value {
        None => Bound::Unbounded,
        Some(EndValue::EndValueClosed(end)) => Bound::Included(end.clone()),
        Some(EndValue::EndValueOpen(end)) => Bound::Excluded(end.clone()),
    };
    interval("value range", start, end)
}

fn interval(what: &str, start: Bound<Bytes>, end: Bound<Bytes>) -> Result<Interval, String> {
    if let (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) =
        (&start, &end)
        && s > e
    {
        return Err(format!("the {what} ends before it starts"));
    }
    Ok(Interval { start, end })
}

fn times(start: i64, end: i64) -> Result<Filter, String> {
    if start < 0 || end < 0 {
        return Err("the timestamp range begins before 1970".to_owned());
    }
    if end != 0 && start > end {
        return Err("the timestamp range ends before it starts".to_owned());
    }
    Ok(Filter::Times(start, end))
}

fn cells_of(what: &str, cells: i32, least: u32) -> Result<u32, String> {
    u32::try_from(cells)
        .ok()
        .filter(|cells| *cells >= least)
        .ok_or_else(|| format!("{what} must be at least {least}, and is {cells}"))
}

fn label(text: &str) -> Result<Filter, String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=LABEL_BYTES_MAX).contains(&text.len()) || !text.bytes().all(allowed) {
        return Err(format!("label {text:?} is not of the form [a-z0-9-]{{1,{LABEL_BYTES_MAX}}}"));
    }
    Ok(Filter::Label(text.into()))
}

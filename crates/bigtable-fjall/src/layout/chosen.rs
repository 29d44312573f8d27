//! Represents the columns of a selection, with the numbers that families have in keys.

use bigtable::{Bytes, ColumnSelect, Qualifiers};

use crate::layout::key::Shape;

/// The selected columns of a family, and the family's number.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    pub(crate) family: u8,
    pub(crate) select: &'a ColumnSelect,
}

impl Chosen<'_> {
    /// Whether this selection includes the key's column.
    pub(crate) fn names(&self, key: &[u8], shape: Shape) -> bool {
        self.family == shape.family
            && match &self.select.qualifiers {
                Qualifiers::All => true,
                Qualifiers::Is(qualifier) => *shape.qualifier(key) == **qualifier,
            }
    }

    /// The qualifier of a column that this selection includes.
    pub(crate) fn qualifier(&self, key: &[u8], shape: Shape) -> Bytes {
        match &self.select.qualifiers {
            Qualifiers::All => Bytes::copy_from_slice(&shape.qualifier(key)),
            Qualifiers::Is(qualifier) => qualifier.clone(),
        }
    }
}

//! Defines the records in the store: columns, locks and write records, and their encodings
//! (paper section 2.2, Figure 4).
//!
//! ```text
//! branch   the branch of a conditional mutation that was applied
//! column   a user's column of a cell, and the name of a table
//! layout   families, system tables, locality groups
//! lock     the value of a lock: kind, primary, owner, lifetime
//! write    the value of a write record, with a short value inside
//! schema   which observers a database has, and the version of that list
//! format   the format of a database, checked when a client begins
//! placement   where notifications lie: in the row, or in a table of their own
//! codec    numbers and lists in bytes
//! ```

pub(crate) mod branch;
pub(crate) mod codec;
pub(crate) mod column;
pub(crate) mod format;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod placement;
pub(crate) mod schema;
pub(crate) mod value;
pub(crate) mod write;

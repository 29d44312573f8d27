//! Maps tables to the engine's keyspaces, and to memory.
//!
//! ```text
//! catalog  tables and groups by name        group   the keyspaces of a locality group
//! key      cells as keys                    pack    several versions of a column in one value
//! tuning   filters, blocks, files, merges   table_info  an open table
//! memory   the cells of in-memory groups    tally   how many of them each column has
//! chosen   the columns of a selection
//! ```

pub(crate) mod catalog;
pub(crate) mod chosen;
pub(crate) mod group;
pub(crate) mod key;
pub(crate) mod memory;
pub(crate) mod pack;
pub(crate) mod table_info;
pub(crate) mod tally;
pub(crate) mod tuning;

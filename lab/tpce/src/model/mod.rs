//! The data model: one Percolator table for all 33 tables and their indices.
//!
//! ```text
//! key.rs      prefixes and the encoding of keys
//! record.rs   the records, each with its key
//! stored.rs   which cells a record has, index rows included
//! row.rs      any of the records: what the generator makes and the loaders take
//! ```
//!
//! What a transaction changes often has a cell of its own (an account's balance, a security's price
//! and volume, a trade's state, a quantity held), so that writers do not conflict over what they do
//! not change; all else of a record is packed into the cell `d`.

pub(crate) mod key;
pub(crate) mod record;
mod row;
mod stored;

pub(crate) use key::{Key, Parts, TABLE, index};
pub(crate) use record::*;
pub(crate) use row::Definition;
pub(crate) use row::Row;
pub(crate) use stored::{
    BAL, D, NAME, PRICE, Price, QTY, STATE, Stored, TIER, VOL, decode, encode, keys,
};

//! Defines the data model: one Percolator table for all 33 tables and their indices.
//!
//! ```text
//! key.rs      prefixes and the encoding of keys
//! record.rs   the records of all tables, and a row of any of them
//! stored.rs   the cells of each record, index rows included
//! ```
//!
//! A field that transactions change often has a cell of its own. These are an account's balance,
//! a security's price and volume, a trade's state, and a quantity held. So writers do not
//! conflict over fields that they do not change. The other fields of a record are packed into the
//! cell `d`.

pub(crate) mod key;
pub(crate) mod record;
mod stored;

pub(crate) use key::{Key, Parts, TABLE, index};
pub(crate) use record::*;
pub(crate) use stored::{
    BAL, D, NAME, PRICE, Price, QTY, STATE, Stored, TIER, VOL, decode, encode, keys,
};

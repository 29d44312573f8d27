//! Generates all rows before the run from a seed.
//!
//! ```text
//! stream.rs      numbers
//! dimensions.rs  tables of fixed size: zip codes, taxes, types, exchanges, industries, charges
//! market.rs      companies, their securities, prices and news
//! customers.rs   customers, permissions, watch lists, brokers
//! history.rs     the trades so far, and their results: positions, lots, balances
//! ```
//!
//! The generator is our own, by the rules of TPC-E's public specification. It copies nothing
//! from TPC-E's generator.

pub(crate) mod customers;
mod dimensions;
pub(crate) mod history;
mod market;
pub(crate) mod stream;

use crate::Scale;
use crate::model::Row;

/// All rows, in any order.
pub(crate) fn rows(scale: Scale) -> impl Iterator<Item = Row> {
    dimensions::rows(scale)
        .chain(market::rows(scale))
        .chain(customers::rows(scale))
        .chain(history::History::new(scale).flatten())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_rows_and_no_key_comes_twice() {
        let scale = Scale { trades_per_customer: 12, ..Scale::new(30, 7) };
        let all: Vec<Row> = rows(scale).collect();
        assert_eq!(all, rows(scale).collect::<Vec<_>>());
        let other = Scale { seed: 8, ..scale };
        assert_ne!(all, rows(other).collect::<Vec<_>>());
        let mut cells = BTreeSet::new();
        for row in &all {
            for (key, column, _) in row.cells() {
                assert!(cells.insert((key.clone(), column.clone())), "{key} {column}: {row:?}");
            }
        }
    }
}

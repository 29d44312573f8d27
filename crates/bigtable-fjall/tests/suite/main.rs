//! Tests of the store on disk, as one binary.

mod conformance;

use bigtable_fjall::{Durability, Options};

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options
}

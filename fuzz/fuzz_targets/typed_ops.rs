//! Fuzzes sequences of transactions, compared with a map of versions.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    percolator_sim::typed_ops::check(bytes).expect("no operation of a sequence fails");
});

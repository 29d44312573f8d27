//! Fuzzes the pack, which holds several versions of a column in one value of the disk store.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bigtable_fjall::check_pack(bytes));

//! Versions of a column in one value.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bigtable_fjall::check_pack(bytes));

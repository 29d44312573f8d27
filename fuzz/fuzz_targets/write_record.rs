//! The write record.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| percolator_core::testing::check_write_record(bytes));

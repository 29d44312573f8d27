//! The lock record.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| percolator_core::testing::check_lock_record(bytes));

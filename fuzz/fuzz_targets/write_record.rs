//! Fuzzes the codec of the write record: any bytes parse or are refused, and a record has one
//! encoding.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| percolator_core::testing::check_write_record(bytes));

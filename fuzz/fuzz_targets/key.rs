//! Fuzzes the key codec of the disk store: any bytes parse to a key that encodes back to them,
//! or are refused (H65).

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bigtable_fjall::check_key(bytes));

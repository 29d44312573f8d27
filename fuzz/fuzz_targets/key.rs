//! The key codec of the disk store (H65).

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bigtable_fjall::check_key(bytes));

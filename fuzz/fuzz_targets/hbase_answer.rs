//! Fuzzes the answers of HBase's servers, which arrive as frames of protobufs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bigtable_hbase::check_answer(bytes));

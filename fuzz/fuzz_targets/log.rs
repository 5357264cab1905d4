//! See `trine_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz::run("log", bytes));

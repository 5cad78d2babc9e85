//! libFuzzer's way to the target `time`.
#![no_main]
#![expect(unsafe_code, reason = "libFuzzer calls a function with an unmangled name")]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transponder_fuzz::time(input));

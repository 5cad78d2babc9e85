//! libFuzzer's way to the target `door`.
#![no_main]
#![expect(unsafe_code, reason = "libFuzzer calls a function with an unmangled name")]

use std::sync::LazyLock;

use transponder_fuzz::Door;

/// Lives as long as the process; its folder is below `TMPDIR`, which `cargo xtask fuzz` clears.
static DOOR: LazyLock<Door> = LazyLock::new(Door::open);

libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&DOOR); }, |input: &[u8]| { DOOR.knock(input); });

//! The program as it is shipped: linked statically, small, and at home in a root that holds nothing else.
#![expect(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use support::{Act, Hook, Server, TOKEN};

const MAX_BYTES: u64 = 4_000_000;
const HOST: &str = "relay.test";

#[test]
fn the_static_binary_is_small_and_reports_over_tls_by_name_from_an_empty_root() {
    let binary = build();
    let size = fs::metadata(&binary).unwrap().len();
    println!("hook_bytes: {size}");
    assert!(size <= MAX_BYTES, "{size} bytes");
    let elf = Elf(fs::read(&binary).unwrap());
    assert_eq!(elf.segments(PT_INTERP).count(), 0, "it names an interpreter");
    assert_eq!(elf.needed_libraries(), 0, "it needs dynamic libraries");

    let Some(chroot) = chroot() else {
        // In CI, which runs as root, this would be a pass that showed nothing.
        assert!(std::env::var_os("CI").is_none(), "changing the root is not permitted here");
        println!("skipped: changing the root is not permitted here");
        return;
    };
    let server = Server::named(HOST, [Act::status(202)]);
    let mut hook = Hook::to(&server.url("/outcome/kind-prod"));
    let root = hook.path("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/hosts"), format!("127.0.0.1 {HOST}\n")).unwrap();
    fs::copy(&binary, root.join("hook")).unwrap();
    fs::write(root.join("token"), TOKEN).unwrap();
    fs::write(root.join("ca.pem"), server.ca().unwrap()).unwrap();
    hook.set("RELAY_TOKEN_FILE", "/token");
    hook.set("RELAY_CA_FILE", "/ca.pem");
    let run = |hook: &Hook| {
        let mut command = Command::new(chroot[0]);
        command.args(&chroot[1..]).arg(&root).arg("/hook").env_clear().envs(hook.vars());
        // For finding chroot itself.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), said)
    };
    let (code, said) = run(&hook);
    assert_eq!((code, server.requests().len()), (Some(0), 1), "{said}");

    // Without a CA the built-in ones are used: nobody is trusted blindly where the system has none.
    hook.unset("RELAY_CA_FILE");
    hook.set("HOOK_DEADLINE", "1s");
    let (code, said) = run(&hook);
    assert_eq!((code, server.requests().len()), (Some(1), 1), "{said}");
    assert!(said.contains("UnknownIssuer"), "{said}");
}

/// Builds as the image does, into a directory of its own: the flags differ from those of all other builds.
fn build() -> PathBuf {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-hook");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "hook", "--package", "transponder-hook"])
        .args(["--bin", "transponder-hook", "--target", &triple, "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success());
    target.join(triple).join("hook/transponder-hook")
}

/// How to change the root here: as root, or as root of a user namespace of one's own.
fn chroot() -> Option<Vec<&'static str>> {
    [vec!["chroot"], vec!["unshare", "--map-root-user", "chroot"]].into_iter().find(|command| {
        let probe = Command::new(command[0]).args(&command[1..]).args(["/", "true"]).output();
        probe.is_ok_and(|output| output.status.success())
    })
}

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;

/// A 64-bit little-endian ELF file, as far as the dynamic linker looks.
struct Elf(Vec<u8>);

impl Elf {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        self.0[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    fn at(&self, at: usize, bytes: usize) -> usize {
        usize::try_from(self.number(at, bytes)).unwrap()
    }

    /// Offset and length of the segments of one type.
    fn segments(&self, kind: u32) -> impl Iterator<Item = (usize, usize)> {
        assert_eq!(&self.0[..6], b"\x7fELF\x02\x01");
        let (start, size, count) = (self.at(32, 8), self.at(54, 2), self.at(56, 2));
        (0..count)
            .map(move |index| start + index * size)
            .filter(move |&header| self.number(header, 4) == u64::from(kind))
            .map(|header| (self.at(header + 8, 8), self.at(header + 32, 8)))
    }

    fn needed_libraries(&self) -> usize {
        self.segments(PT_DYNAMIC)
            .flat_map(|(start, length)| (start..start + length).step_by(16))
            .filter(|&entry| self.number(entry, 8) == DT_NEEDED)
            .count()
    }
}

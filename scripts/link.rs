//! Options of the linker for the two programs, as the build script of their packages.
//!
//! Identical functions are merged where the linker can: generic code is compiled many times. Drivers
//! and workers are linked at a fixed address, so that they start sooner (decision 073).

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The target whose toolchain links with the `lld` that comes with it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The package whose program is started for each task.
const FIXED: &str = "snowmelt-query";

fn main() {
    println!("cargo::rerun-if-changed=../../scripts/link.rs");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    // A linker that the user chose may not know the option.
    let chosen = ["linker", "link-arg"];
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let untouched = !chosen.iter().any(|word| flags.contains(word));
    let linker = variable("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER");
    if variable("TARGET") == TARGET && untouched && linker.is_empty() && has_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    if variable("CARGO_PKG_NAME") == FIXED && variable("CARGO_CFG_TARGET_OS") == "linux" {
        // Of this option and `-pie`, which the compiler gives, the last one counts.
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// Toolchains of distributions come without it and link with the system's own linker.
fn has_lld() -> bool {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(printed) = Command::new(compiler).args(["--print", "sysroot"]).output() else {
        return false;
    };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim());
    sysroot.join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").is_file()
}

//! Compiles the native part of zygotes, which every root has as `/run/snowmelt/zygote.so`, with the
//! compiler that also links Rust programs.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// No libc, so that one file works in a root of any distribution; an unresolved symbol is an error.
/// The compiler must not insert calls of `memcpy` and similar functions.
const FLAGS: [&str; 13] = [
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-tree-loop-distribute-patterns",
    "-Wl,-z,defs,--build-id=none",
    "-s",
];

fn main() -> ExitCode {
    let folder = "../../runtimes/native";
    println!("cargo::rerun-if-changed={folder}");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("zygote.so");
    // The sources may need the headers that the tests are about to write (`c_header`).
    println!("cargo::rerun-if-env-changed=UPDATE_NATIVE");
    if env::var_os("UPDATE_NATIVE").is_some() {
        return match std::fs::write(output, []) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    // The native loop whose steps the escape tests leave out one by one; only those enable it.
    let weaken = env::var_os("CARGO_FEATURE_WEAKEN").map(|_| "-DSNOWMELT_WEAKEN");
    let sources = ["snowmelt_zygote.c", "python_arenas.c"].map(|name| format!("{folder}/{name}"));
    let done = Command::new(&compiler)
        .args(FLAGS)
        .args(weaken)
        .arg("-o")
        .arg(output)
        .args(sources)
        .status();
    match done {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        outcome => {
            eprintln!("cannot compile {folder} with `{compiler}` ({outcome:?})");
            ExitCode::FAILURE
        }
    }
}

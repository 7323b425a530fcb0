//! The spawner on a simulated Linux 5.10, for the tests: without mount_setattr(2), without the flag
//! of close_range(2) that closes on exec, and without file systems of a named pid namespace.

use std::io;
use std::process::ExitCode;

use seccompiler::{TargetArch, apply_filter, compile_from_json};
use snowmelt_kernel::mount;

/// ENOSYS for the first call, and EINVAL for the second with `CLOSE_RANGE_CLOEXEC`, and for a
/// descriptor as parameter of a file system.
const FILTERS: [&str; 3] = [
    r#"{ "calls": { "mismatch_action": "allow", "match_action": { "errno": 38 },
        "filter": [{ "syscall": "mount_setattr" }] } }"#,
    r#"{ "calls": { "mismatch_action": "allow", "match_action": { "errno": 22 },
        "filter": [{ "syscall": "close_range", "args": [
            { "index": 2, "type": "dword", "op": "eq", "val": 4 }] }] } }"#,
    r#"{ "calls": { "mismatch_action": "allow", "match_action": { "errno": 22 },
        "filter": [{ "syscall": "fsconfig", "args": [
            { "index": 1, "type": "dword", "op": "eq", "val": 5 }] }] } }"#,
];

fn main() -> ExitCode {
    match simulate_old_kernel() {
        Ok(()) => snowmelt_sandbox::spawner_main(None),
        Err(error) => {
            eprintln!("cannot make this kernel look old: {error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate_old_kernel() -> Result<(), Box<dyn std::error::Error>> {
    for filter in FILTERS {
        let target = TargetArch::try_from(std::env::consts::ARCH)?;
        for program in compile_from_json(filter.as_bytes(), target)?.values() {
            apply_filter(program)?;
        }
    }
    if mount::sets_attributes_of_detached()? {
        return Err(io::Error::other("mount_setattr still works").into());
    }
    Ok(())
}

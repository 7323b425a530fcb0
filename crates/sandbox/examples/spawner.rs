//! Only the spawner, for the tests and measurements of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    snowmelt_sandbox::spawner_main(None)
}

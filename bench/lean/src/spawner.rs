//! A spawner for the drivers, in a run directory of their own.

use std::ffi::OsString;

use anyhow::Result;
use snowmelt_sandbox::{Options, Spawner, SpawnerProcess};

/// Starts this binary again as a spawner. To be called before the runtime, as the product does.
pub fn launch() -> Result<SpawnerProcess> {
    let name = format!("snowmelt-bench-{}", std::process::id());
    Ok(Spawner::launch(Options {
        run_dir: std::path::Path::new("/run").join(&name),
        spawner_command: vec![OsString::from("/proc/self/exe"), OsString::from("spawner")],
        parent_cgroup: format!("snowmelt/{name}"),
        total: Default::default(),
        server_user: None,
    })?)
}

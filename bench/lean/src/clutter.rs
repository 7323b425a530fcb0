//! A host with many mounts and network namespaces, for as long as a command runs.
//!
//! The mounts are in a mount namespace of its own, which the command shares and believes to be the
//! host's: so nothing is left behind however the bench ends.

use std::fs::{File, create_dir};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, join, unshare};

#[derive(Args)]
pub struct Options {
    /// File systems mounted beside the host's own.
    #[arg(long, default_value_t = 1000)]
    mounts: usize,
    /// Live network namespaces.
    #[arg(long, default_value_t = 1000)]
    networks: usize,
    /// What to run.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command and gives its exit code.
pub fn run(options: &Options) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("sm-clutter-").tempdir()?;
    unshare(flags::MOUNT)?;
    mount::make_private()?;
    mounts(folder.path(), options.mounts).context("cannot make the mounts")?;
    let networks = networks(options.networks).context("cannot make the network namespaces")?;
    let (program, arguments) = options.command.split_first().context("a command has a program")?;
    let status = Command::new(program).args(arguments).status()?;
    drop(networks);
    mount::detach(folder.path())?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// One file system over the folder, and in it the others, side by side.
fn mounts(folder: &Path, count: usize) -> io::Result<()> {
    let holder = mount::fresh("tmpfs", &[], Attributes::empty())?;
    mount::attach_at(holder, rustix::fs::CWD, folder)?;
    for number in 0..count {
        let place = folder.join(number.to_string());
        create_dir(&place)?;
        let one = mount::fresh("tmpfs", &[("size", "64k")], Attributes::empty())?;
        mount::attach_at(one, rustix::fs::CWD, &place)?;
    }
    Ok(())
}

/// Each lives as long as its descriptor.
fn networks(count: usize) -> io::Result<Vec<OwnedFd>> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let current = || File::open("/proc/self/ns/net").map(OwnedFd::from);
    let ours = current()?;
    let made: io::Result<Vec<_>> =
        (0..count).map(|_| unshare(flags::NETWORK).and_then(|()| current())).collect();
    join(&ours, flags::NETWORK)?;
    made
}

//! The spawner: single-threaded processes, called lanes, that make sandboxes on request.
//!
//! The server executes the spawner with its control socket as standard input. The process makes a
//! pid namespace and in it the first lane; further lanes are copies of a lane, made on request.
//! When its socket ends, or on a shutdown request, a lane kills its sandboxes, removes its control
//! groups and exits; the last one removes the run directory.
//!
//! | part | file |
//! |---|---|
//! | the first process of the pid namespace, and the user ids of sandboxes | `init`, `ids` |
//! | the control socket to the server | `control` |
//! | the set-up of a process, up to the exec of its program | `child` |
//! | the state of a zygote, and the packets to it and its children | `zygote` |
//! | the event loop of a lane, and what it does on each event | `service` |
//! | the headers of the C code of zygotes | `c_header` |

#[cfg(test)]
mod c_header;
mod child;
mod control;
mod ids;
mod init;
mod service;
mod zygote;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open, setrlimit};
use snowmelt_kernel::{fds, keyring, process, rootless};

use crate::cgroup;
use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::StepFault;
use crate::message::Setup;
use crate::namespaces::Namespaces;
use crate::policy::Programs;
use crate::root::Roots;
use crate::run_dir;
use ids::IdSlots;
use init::Init;
use service::{Service, Tools};

/// Runs the spawner until its server ends or sends a shutdown request. Must be called before the
/// process has a second thread and before it opens any file: every descriptor above standard error
/// is closed. `trusted` is the set-up message of a broker ([`crate::SpawnerProcess::setup`]), which
/// counts in place of the server's.
pub fn spawner_main(trusted: Option<&str>) -> ExitCode {
    match run(trusted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt spawner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(trusted: Option<&str>) -> io::Result<()> {
    let trusted: Option<Setup> = trusted.map(serde_json::from_str).transpose()?;
    // Descriptors that the server's parent left open must not reach any sandbox.
    if !is_disabled(Defence::Descriptors) {
        fds::close_from(3)?;
    }
    let control = control::take_standard_input()?;
    let (setup, lock) = control::receive_setup(&control, trusted)?;
    setup.ids.into_iter().for_each(rootless::inherit);
    let process = std::process::id();
    // The lane reports the missing root rights.
    if is_disabled(Defence::Init) || !rustix::process::geteuid().is_root() {
        return first_lane(control, setup, process, None);
    }
    init::make(control, |control, init| {
        let result = first_lane(control, setup, process, Some(init));
        drop(lock);
        i32::from(result.inspect_err(|error| eprintln!("snowmelt spawner: {error}")).is_err())
    })
}

/// Becomes the first lane. `process` is the id of the process that the server executed.
fn first_lane(control: OwnedFd, setup: Setup, process: u32, init: Option<Init>) -> io::Result<()> {
    if init.is_some() {
        control::announce(&control, pidfd_open(getpid(), PidfdFlags::empty())?.as_fd())?;
    }
    match set_up(&setup, process) {
        Ok(tools) => Service::new(control, setup, tools, init)?.run(),
        // The run directory stays while the server lives: it is the server's, and has other
        // contents if this spawner replaces one that died.
        Err(reason) => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            let fds = [own.as_fd()].into_iter().chain(init.iter().map(AsFd::as_fd));
            match control::send_setup_done(&control, Err(reason), &fds.collect::<Vec<_>>()) {
                Err(error) if control::is_server_gone(&error) => {
                    run_dir::remove_if_last(&setup.run_dir, &setup.parent_cgroup)
                        .map_err(io::Error::other)
                }
                sent => sent,
            }
        }
    }
}

fn set_up(setup: &Setup, process: u32) -> Result<Tools, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can make sandboxes".to_owned());
    }
    let failed = |fault: StepFault| format!("cannot {}: {}", fault.step, fault.source);
    detach_from_terminal().map_err(|error| error.to_string())?;
    deny_cores().map_err(|error| error.to_string())?;
    limit_pending_signals().map_err(|error| error.to_string())?;
    // The keys of the user who runs the server must not reach the sandboxes.
    if !is_disabled(Defence::Keyring) {
        keyring::leave_session().map_err(|error| format!("cannot leave the keyring: {error}"))?;
    }
    let programs = Programs::compile().map_err(|error| error.to_string())?;
    let backend = cgroup::detect().map_err(|error| error.to_string())?;
    let groups = cgroup::GroupPool::new(backend, setup.parent_cgroup.clone(), &setup.total);
    let groups = groups.map_err(|error| error.to_string())?.paused_by(setup.server_user);
    let folder = setup.run_dir.join("roots");
    recreate_folder(&folder).map_err(|error| error.to_string())?;
    let namespaces = Namespaces::enter(&folder).map_err(failed)?;
    // Here, because it applies to every lane.
    if !is_disabled(Defence::Seccomp) {
        programs.confine_spawner().map_err(|error| error.to_string())?;
    }
    let roots = Roots::new(folder);
    let slots = IdSlots::of_process(process, setup.ids);
    Ok(Tools { namespaces, roots, programs, groups, slots })
}

/// Makes an empty folder. An existing folder belongs to a spawner that died; its mounts went with
/// its mount namespace.
fn recreate_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir(folder),
    }
}

/// Disables core dumps for all processes made here. With the limit 1 the kernel writes no core and,
/// unlike with 0, does not start the host's core handler.
fn deny_cores() -> io::Result<()> {
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    if is_disabled(Defence::CoreLimit) { Ok(()) } else { Ok(setrlimit(Resource::Core, limit)?) }
}

/// Limits pending signals and timers, which take memory that no control group counts. The limit
/// applies to a program, and to a zygote with all its children.
fn limit_pending_signals() -> io::Result<()> {
    const MOST: Option<u64> = Some(4096);
    // An ordinary user cannot raise a limit that is lower.
    let own = getrlimit(Resource::Sigpending).maximum.filter(|_| rootless::entered().is_some());
    let most = own.map_or(MOST, |own| MOST.map(|most| most.min(own)));
    let limit = Rlimit { current: most, maximum: most };
    if is_disabled(Defence::PendingSignals) {
        Ok(())
    } else {
        Ok(setrlimit(Resource::Sigpending, limit)?)
    }
}

/// Leaves the session of the terminal, and ignores the terminal's signals: Ctrl-C goes to the
/// server, which then sends a shutdown request.
fn detach_from_terminal() -> io::Result<()> {
    // Fails only for a process group leader, which is not in the terminal's foreground group.
    let _ = rustix::process::setsid();
    process::ignore_signals(&process::INTERRUPTS)
}

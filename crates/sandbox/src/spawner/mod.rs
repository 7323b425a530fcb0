//! The spawner: single-threaded processes, its lanes, that make sandboxes on request.
//!
//! What the server executes, with its control socket as standard input, makes a pid namespace for
//! all that follows, and in it the first lane; the others are copies of a lane, made on request.
//! When its socket ends, or it is told to, a lane kills its sandboxes, removes its control groups
//! and exits; the last one removes the run directory.

mod cell;
mod child;
mod end;
mod fork;
mod guard;
mod identity;
mod ids;
mod init;
mod landing;
mod lane;
mod networks;
mod oom;
mod program;
mod reports;
mod scratch;
mod service;
mod spare;
mod stage;
mod start;
mod sync;
mod zygote;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, pidfd_open, setrlimit};
use snowmelt_kernel::{fds, keyring, packet, process};

use crate::cgroup;
use crate::message::{LONGEST_PACKET, MADE, Setup, SetupDone};
use crate::policy::Programs;
use crate::root::{Fault, Roots};
use crate::weaken::{Defence, lacks};
use ids::Slots;
use init::Init;
use service::Service;
pub(crate) use stage::Stage;

pub use start::NAMESPACES;

/// Runs the spawner until its server is gone or tells it to end. Must be called before the
/// process has a second thread, and before it has opened anything: every descriptor above
/// standard error is closed.
pub fn spawner_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt spawner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    // What the server's own parent left open is no business of ours, nor of any sandbox.
    if !lacks(Defence::Descriptors) {
        fds::close_from(3)?;
    }
    let control = take_standard_input()?;
    let (setup, lock) = receive_setup(&control)?;
    let process = std::process::id();
    // Who is not root is told so by the lane.
    if lacks(Defence::Init) || !rustix::process::geteuid().is_root() {
        return first_lane(control, setup, process, None);
    }
    init::make(control, |control, init| {
        let lived = first_lane(control, setup, process, Some(init));
        drop(lock);
        i32::from(lived.inspect_err(|error| eprintln!("snowmelt spawner: {error}")).is_err())
    })
}

/// `process` is the one that the server executed.
fn first_lane(control: OwnedFd, setup: Setup, process: u32, init: Option<Init>) -> io::Result<()> {
    if init.is_some() {
        packet::send(&control, MADE, &[pidfd_open(getpid(), PidfdFlags::empty())?.as_fd()])?;
    }
    match set_up(&setup, process) {
        Ok(tools) => Service::new(control, setup, tools, init)?.live(),
        // The run directory is the server's, which has other things in it where we are to take
        // the place of a spawner that died.
        Err(reason) => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            let told = [own.as_fd()].into_iter().chain(init.iter().map(AsFd::as_fd));
            tell_setup(&control, Err(reason), &told.collect::<Vec<_>>())
        }
    }
}

/// The control socket, which is then at no other number: a lane that is copied from this process
/// must be able to let go of it.
fn take_standard_input() -> io::Result<OwnedFd> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let null: OwnedFd = std::fs::File::open("/dev/null")?.into();
    fds::place(null.as_fd(), 0)?;
    Ok(control)
}

/// Where to work, and the lock of that folder, which we hold as long as we live.
fn receive_setup(control: &OwnedFd) -> io::Result<(Setup, OwnedFd)> {
    let mut buffer = vec![0; LONGEST_PACKET];
    let mut packet = packet::receive(control, &mut buffer)?;
    let lock = packet.fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    Ok((serde_json::from_slice(&buffer[..packet.length])?, lock))
}

/// Says that this lane is ready, or why it cannot be.
fn tell_setup(
    control: &OwnedFd,
    outcome: Result<(), String>,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    packet::send(control, &serde_json::to_vec(&SetupDone(outcome))?, fds)
}

/// What a spawner works with, whichever lane.
struct Tools {
    stage: Stage,
    roots: Roots,
    programs: Programs,
    groups: cgroup::Pool,
    slots: Slots,
}

fn set_up(setup: &Setup, process: u32) -> Result<Tools, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can make sandboxes with limits of their own for now".to_owned());
    }
    let failed = |fault: Fault| format!("cannot {}: {}", fault.step, fault.source);
    leave_the_terminal().map_err(|error| error.to_string())?;
    deny_cores().map_err(|error| error.to_string())?;
    bound_signals().map_err(|error| error.to_string())?;
    // The keys of the user who runs the server are not for what we start.
    if !lacks(Defence::Keyring) {
        keyring::leave_session().map_err(|error| format!("cannot leave the keyring: {error}"))?;
    }
    let programs = Programs::compile().map_err(|error| error.to_string())?;
    let backend = cgroup::detect().map_err(|error| error.to_string())?;
    let groups = cgroup::Pool::new(backend, setup.parent_cgroup.clone(), &setup.total);
    let groups = groups.map_err(|error| error.to_string())?;
    let folder = setup.run_dir.join("roots");
    make_afresh(&folder).map_err(|error| error.to_string())?;
    let stage = Stage::enter(&folder).map_err(failed)?;
    // Now, because it holds for every lane.
    if !lacks(Defence::Seccomp) {
        programs.confine_spawner().map_err(|error| error.to_string())?;
    }
    let (roots, slots) = (Roots::new(folder), Slots::of_process(process));
    Ok(Tools { stage, roots, programs, groups, slots })
}

/// Makes a folder. One that is there is of a spawner that died; what it had mounted there went with
/// its mount namespace.
fn make_afresh(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir(folder),
    }
}

/// For all that is made here. At 1 the kernel writes no core and, unlike at 0, hands none to the
/// host's handler.
fn deny_cores() -> io::Result<()> {
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    if lacks(Defence::CoreLimit) { Ok(()) } else { Ok(setrlimit(Resource::Core, limit)?) }
}

/// Signals and timers that wait take memory that no control group counts; this is for a program, and
/// for a zygote with all its children.
fn bound_signals() -> io::Result<()> {
    const MOST: Option<u64> = Some(4096);
    let limit = Rlimit { current: MOST, maximum: MOST };
    if lacks(Defence::PendingSignals) {
        Ok(())
    } else {
        Ok(setrlimit(Resource::Sigpending, limit)?)
    }
}

/// Ctrl-C is for the server, which then tells us what to do.
fn leave_the_terminal() -> io::Result<()> {
    // Fails only for the leader of a group, which is not in the terminal's foreground group.
    let _ = rustix::process::setsid();
    process::ignore_signals(&process::INTERRUPTS)
}

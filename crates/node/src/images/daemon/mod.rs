//! The daemon: a process that mounts images and serves their blocks until its node has ended.
//!
//! | part | file |
//! |---|---|
//! | requests of the node | here |
//! | the mounts and the sources of their blocks | `mounts`, `sources` |
//! | from where it reads each image, and what it serves to other hosts | `sharing` |
//! | complete images as files that need no daemon | `raw` |
//! | the rights of a daemon whose server is not root | `rights` |
//!
//! Invariant: the daemon works in its own mount namespace, which a successor joins; so a mount is
//! made once for each image and node, and no mount is visible on the host.

mod mounts;
mod raw;
mod rights;
pub(super) mod sharing;
mod sources;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::CWD;
use serde::Serialize;
use snowmelt_image::source::trust_authorities;
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::process::DaemonUser;
use snowmelt_kernel::{mount, packet};
use snowmelt_types::Report;

use super::message::{DaemonControl, DaemonRequest, LONGEST, Notice, READY};
use super::peers::PeerDialer;
use super::stores::Stores;
use mounts::Mounts;

/// Runs the daemon until its node has ended. Must be called before the process has a second thread.
pub fn image_daemon_main(user: Option<DaemonUser>) -> ExitCode {
    let rights = user.map_or(Ok(()), rights::take_rights);
    match rights.and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt image daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let begun = receive(&control)?;
    let Some((DaemonControl::Begin { state, folder, settings, mounts: adopted, member }, mut fds)) =
        begun
    else {
        return Ok(());
    };
    let namespace = if fds.len() > 1 { fds.pop() } else { None };
    let listener = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    if let Err(error) = enter(namespace, &folder) {
        return packet::send(&control, format!("cannot make mounts: {error}").as_bytes(), &[]);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    if let Some(file) = &settings.ca_file
        && let Err(error) = trust_authorities(file)
    {
        return packet::send(&control, error.to_string().as_bytes(), &[]);
    }
    let stores = Stores::new(&state, settings);
    let dialer = Arc::new(PeerDialer::new(member, control.try_clone()?));
    let connect = Arc::clone(&dialer) as _;
    let mounts = Arc::new(Mounts::new(stores, folder, runtime.handle().clone(), connect));
    // The namespace is ready to be held by the node.
    let namespace = File::open("/proc/self/ns/mnt")?;
    packet::send(&control, READY, &[namespace.as_fd()])?;
    // Existing mounts first: a request for a mounted image must not get another mount of it, which
    // no successor would know.
    for _ in 0..adopted {
        let Some((said, fds)) = receive(&control)? else { return Ok(()) };
        heed(&mounts, &said, fds);
    }
    let accepting = Arc::clone(&mounts);
    thread::Builder::new().name("image-asks".to_owned()).spawn(move || {
        while let Ok(client) = packet::accept(&listener) {
            let mounts = Arc::clone(&accepting);
            let dialer = Arc::clone(&dialer);
            let named = thread::Builder::new().name("image-ask".to_owned());
            // Without a thread the client sees the end of its connection.
            drop(named.spawn(move || answer(&mounts, &dialer, &client)));
        }
    })?;
    if mounts.keeps_raw {
        let making = Arc::clone(&mounts);
        let telling = control.try_clone()?;
        thread::Builder::new().name("image-raw".to_owned()).spawn(move || {
            raw::make(&making, |digest| {
                // A node that has ended needs no message.
                let _ = serde_json::to_vec(&Notice::IsRaw(digest.clone()))
                    .map(|said| packet::send(&telling, &said, &[]));
            });
        })?;
    }
    while let Some((said, fds)) = receive(&control)? {
        heed(&mounts, &said, fds);
    }
    // The node has ended, and with it all readers: the kernel cleans up, and a read in progress
    // must not delay the exit.
    std::process::exit(0)
}

fn heed(mounts: &Mounts, said: &DaemonControl, mut fds: Vec<OwnedFd>) {
    match said {
        DaemonControl::Begin { .. } => {}
        DaemonControl::Adopt(spec, form) => mounts.adopt(spec, *form, fds.pop()),
        DaemonControl::Ready(digest) => mounts.record(digest),
    }
}

fn receive(control: &OwnedFd) -> io::Result<Option<(DaemonControl, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LONGEST];
    match packet::receive(control, &mut buffer) {
        Ok(packet) if packet.length == 0 => Ok(None),
        Ok(packet) => Ok(Some((serde_json::from_slice(&buffer[..packet.length])?, packet.fds))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

/// Enters the namespace of the previous daemon, or a new one with a file system for mount points.
fn enter(namespace: Option<OwnedFd>, folder: &Path) -> io::Result<()> {
    if let Some(namespace) = namespace {
        return join(&namespace, flags::MOUNT);
    }
    unshare(flags::MOUNT)?;
    mount::make_private()?;
    let attributes = mount::Attributes::MOUNT_ATTR_NOSUID | mount::Attributes::MOUNT_ATTR_NODEV;
    let points = mount::fresh("tmpfs", &[("size", "1m"), ("mode", "700")], attributes)?;
    mount::attach_at(&points, CWD, folder)
}

fn answer(mounts: &Mounts, dialer: &PeerDialer, client: &OwnedFd) {
    let mut buffer = vec![0; LONGEST];
    let Ok(mut packet) = packet::receive(client, &mut buffer) else { return };
    let asked = &buffer[..packet.length];
    let answered = match serde_json::from_slice::<DaemonRequest>(asked) {
        Ok(DaemonRequest::Mount(spec)) => {
            mounts.mount(&spec).map_err(|error| json(&error.report()))
        }
        Ok(DaemonRequest::Move(place)) => {
            mounts.sharing.move_to(&place);
            Ok((json(&()), Vec::new()))
        }
        Ok(DaemonRequest::Certificate(text)) => {
            dialer.renew(text);
            Ok((json(&()), Vec::new()))
        }
        Ok(DaemonRequest::Bytes) => Ok((json(&mounts.sharing.reported()), Vec::new())),
        Ok(DaemonRequest::Serve) => {
            if let Some(connection) = packet.fds.pop() {
                mounts.sharing.serve(connection, &mounts.runtime);
            }
            Ok((json(&()), Vec::new()))
        }
        Ok(DaemonRequest::Why(digest, ms)) => {
            let why = mounts.why(&digest, Duration::from_millis(ms));
            Ok((json(&why.map(|error| error.report())), Vec::new()))
        }
        Err(_) => {
            let copy = mounts.copy(&String::from_utf8_lossy(asked));
            let copy = copy.map(|copy| (b"here".to_vec(), vec![copy]));
            copy.map_err(|error| error.to_string().into_bytes())
        }
    };
    // A caller that does not wait needs no answer.
    let _ = match answered {
        Ok((said, fds)) => {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            packet::send(client, &said, &fds)
        }
        Err(said) => packet::send(client, &said, &[]),
    };
}

fn json(said: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(said).unwrap_or_default()
}

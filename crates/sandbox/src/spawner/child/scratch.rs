//! The scratch of a sandbox: a bounded tmpfs with the listening socket that is its only channel.
//!
//! Invariant: the socket listens before the sandbox starts, and the server connects by its inode,
//! so the sandbox cannot redirect the server by changing the name.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_types::ByteSize;

use crate::disabled_defences::{Defence, is_disabled};

/// The name of the socket in the scratch.
const SOCKET: &str = "channel.sock";

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A scratch that no process sees yet.
pub(in crate::spawner) struct Scratch {
    /// The file system, mounted nowhere.
    pub mount: OwnedFd,
    /// The listening socket, for the sandbox.
    pub listener: OwnedFd,
    /// The socket's inode, for the server.
    pub channel: OwnedFd,
    /// The write end of the log, for the sandbox.
    pub log_in: OwnedFd,
    /// The read end of the log, for the server.
    pub log_out: OwnedFd,
}

impl Scratch {
    /// Makes a scratch that belongs to `owner`, an id of the host. `server` is the user who connects
    /// to the socket; `None` is root.
    pub fn make(size: ByteSize, owner: u32, server: Option<u32>) -> io::Result<Self> {
        let mount = file_system(size, owner)?;
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The file system is attached nowhere, and only its descriptor leads into it.
        let path = format!("/proc/self/fd/{}/{SOCKET}", mount.as_raw_fd());
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        // Before any process has the socket: the server may connect as soon as the start is
        // answered.
        listen(&listener, BACKLOG)?;
        // A reference to the inode that bind has just made, before anybody else can put a link
        // there.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let channel = openat(&mount, Path::new(SOCKET), flags, Mode::empty())?;
        if let Some(server) = server {
            // By inode, before the sandbox runs. Connecting takes the right to write, which a socket
            // gives to its owner.
            let inode = format!("/proc/self/fd/{}", channel.as_raw_fd());
            std::os::unix::fs::chown(inode, Some(server), None)?;
        }
        let (log_out, log_in) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { mount, listener, channel, log_in, log_out })
    }
}

fn file_system(size: ByteSize, owner: u32) -> io::Result<OwnedFd> {
    // One inode for each 4 KiB page, so that empty files are bounded too.
    let inodes = (size.bytes() / 4096).clamp(64, 1 << 20).to_string();
    let size = size.bytes().max(64 << 10).to_string();
    let owner = owner.to_string();
    let inodes = if is_disabled(Defence::ScratchSize) { "0".to_owned() } else { inodes };
    let size = if is_disabled(Defence::ScratchSize) { "0".to_owned() } else { size };
    // The default mode is 1777.
    let options = [("size", &*size), ("nr_inodes", &*inodes), ("uid", &*owner), ("gid", &*owner)];
    let inert = Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NODEV;
    let attributes = if is_disabled(Defence::Inert) { Attributes::empty() } else { inert };
    mount::fresh("tmpfs", &options, attributes)
}

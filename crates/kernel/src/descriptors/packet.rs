//! Packets with descriptors over a `SOCK_SEQPACKET` pair.
//!
//! Invariant: a packet is complete or an error; a truncated packet is never returned.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, recvmsg, sendmsg, socket_with, socketpair, sockopt,
};

/// The maximum number of descriptors in one packet.
pub const MAX_FDS: usize = 16;
/// The backlog of connections to accept.
const MAX_WAITING: i32 = 64;

/// The process that sent a packet, as the kernel saw it in the receiver's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSender {
    /// Process id.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
}

/// A received packet, without its bytes.
#[derive(Debug)]
pub struct Packet {
    /// The number of bytes written to the buffer; 0 is the end of the stream.
    pub length: usize,
    /// The received descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// The sender of the packet, set only after [`identify_senders`].
    pub sender: Option<PacketSender>,
}

/// Makes two connected sockets, close-on-exec, blocking.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Makes a listening socket at `path` for packet connections, close-on-exec, blocking; only its
/// owner may connect. Replaces an existing file.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let socket = unconnected()?;
    // The path gets the mode of the descriptor: at no moment others may connect.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    bind(&socket, &address)?;
    // A umask may have removed the owner's own rights.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, MAX_WAITING)?;
    Ok(socket)
}

/// Accepts the next connection to a listening socket.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC)?)
}

/// Connects to a listening socket.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn unconnected() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Waits until a packet can be received, or the other end is closed. Returns false on timeout.
pub fn wait(socket: impl AsFd, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// Makes the kernel attach the sender to each packet that this end receives from now on.
pub fn identify_senders(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_passcred(socket, true)?)
}

/// Sends one complete packet.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent != bytes.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the packet was cut"));
    }
    Ok(())
}

/// Receives one complete packet.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Packet> {
    const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1));
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    let mut sender = None;
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(received) => fds.extend(received),
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                sender = Some(PacketSender {
                    pid: credentials.pid.as_raw_nonzero().get(),
                    uid: credentials.uid.as_raw(),
                });
            }
            _ => {}
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the packet was too long"));
    }
    Ok(Packet { length: received.bytes, fds, sender })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn carries_bytes_and_descriptors_and_names_the_sender() {
        let (left, right) = pair().unwrap();
        identify_senders(&right).unwrap();
        let null = File::open("/dev/null").unwrap();
        send(&left, b"hello", &[null.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let packet = receive(&right, &mut buffer).unwrap();
        assert_eq!((&buffer[..packet.length], packet.fds.len()), (&b"hello"[..], 1));
        assert_eq!(packet.sender.unwrap().pid, std::process::id() as i32);
    }

    #[test]
    fn refuses_a_packet_longer_than_the_buffer() {
        let (left, right) = pair().unwrap();
        send(&left, &[7; 100], &[]).unwrap();
        assert!(receive(&right, &mut [0; 10]).is_err());
    }

    #[test]
    fn connections_by_a_path_carry_packets() {
        let folder = std::env::temp_dir().join(format!("packets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let listener = listen(&path).unwrap();
        let client = connect(&path).unwrap();
        let server = accept(&listener).unwrap();
        assert!(!wait(&server, Duration::ZERO).unwrap());
        send(&client, b"here", &[]).unwrap();
        assert!(wait(&server, Duration::from_secs(60)).unwrap());
        assert_eq!(receive(&server, &mut [0; 10]).unwrap().length, 4);
        drop(listen(&path).unwrap());
        assert!(connect(&path).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_end_of_the_stream_is_an_empty_packet() {
        let (left, right) = pair().unwrap();
        drop(left);
        assert_eq!(receive(&right, &mut [0; 10]).unwrap().length, 0);
    }
}

//! Packets with descriptors over a `SOCK_SEQPACKET` pair.
//!
//! Invariant: a packet is whole or an error; a truncated one is never handed on.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair, sockopt,
};

/// The most descriptors in one packet.
pub const MOST_FDS: usize = 16;

/// The process that sent a packet, as the kernel saw it in the receiver's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Process id.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
}

/// What came with the bytes of a packet.
#[derive(Debug)]
pub struct Packet {
    /// Bytes put into the buffer; 0 is the end of the stream.
    pub length: usize,
    /// Descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Only after [`identify_senders`].
    pub sender: Option<Sender>,
}

/// Two connected ends, close-on-exec, blocking.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Has the kernel name the sender of each packet that this end receives from now on.
pub fn identify_senders(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_passcred(socket, true)?)
}

/// Sends one packet whole.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
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

/// Receives one packet whole.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Packet> {
    const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_FDS), ScmCredentials(1));
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    let (mut fds, mut sender) = (Vec::new(), None);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(received) => fds.extend(received),
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                sender = Some(Sender {
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
    fn the_end_of_the_stream_is_a_packet_of_no_bytes() {
        let (left, right) = pair().unwrap();
        drop(left);
        assert_eq!(receive(&right, &mut [0; 10]).unwrap().length, 0);
    }
}

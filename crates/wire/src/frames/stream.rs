//! Frames with descriptors over a blocking unix stream.
//!
//! Invariant: descriptors are sent with the first byte of the header of their frame, so a frame is
//! never received without them.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::frame::{decode_header, encode_header};
use crate::{Error, Frame, HEADER_BYTES, Kind, Result};

/// The maximum number of descriptors in a frame; the kernel's limit is 253.
pub const MAX_DESCRIPTORS: usize = 64;

/// A blocking connection for frames and descriptors.
#[derive(Debug)]
pub struct FrameStream {
    socket: UnixStream,
}

impl FrameStream {
    /// Wraps a connected socket, in blocking mode.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// A second handle to the same connection, to read and write in different threads.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    /// Returns the socket.
    pub fn into_inner(self) -> UnixStream {
        self.socket
    }

    /// The socket, to set its timeouts.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends a frame.
    pub fn send(&mut self, frame: &Frame) -> Result<()> {
        self.send_with(frame.kind, &frame.payload, &[])
    }

    /// Sends a frame with at most [`MAX_DESCRIPTORS`] descriptors.
    pub fn send_with(
        &mut self,
        kind: Kind,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let header = encode_header(kind, payload.len())?;
        let sent = send_start(&self.socket, &header, payload, descriptors)?;
        if sent < HEADER_BYTES {
            self.socket.write_all(&header[sent..])?;
        }
        let payload_sent = sent.saturating_sub(HEADER_BYTES);
        self.socket.write_all(&payload[payload_sent..])?;
        Ok(())
    }

    /// Receives a frame; the end of the connection is [`Error::Closed`].
    pub fn receive(&mut self) -> Result<Frame> {
        self.receive_with().map(|(frame, _)| frame)
    }

    /// Receives a frame and its descriptors, which are close-on-exec.
    pub fn receive_with(&mut self) -> Result<(Frame, Vec<OwnedFd>)> {
        let mut header = [0; HEADER_BYTES];
        let (read, descriptors) = receive_start(&self.socket, &mut header)?;
        if read == 0 {
            return Err(Error::Closed);
        }
        self.socket.read_exact(&mut header[read..])?;
        let (kind, length) = decode_header(header)?;
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload)?;
        Ok((Frame::new(kind, payload), descriptors))
    }
}

/// Writes a frame with at most [`MAX_DESCRIPTORS`] descriptors, without blocking the thread.
pub async fn write_frame_with(
    to: &mut (impl AsRef<tokio::net::UnixStream> + AsyncWrite + Unpin),
    frame: &Frame,
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    let header = frame.header()?;
    let started = loop {
        let socket: &tokio::net::UnixStream = (*to).as_ref();
        socket.writable().await?;
        let start = || {
            let sent = send_start(socket, &header, &frame.payload, descriptors);
            sent.map_err(|error| match error {
                Error::Io(error) => error,
                other => std::io::Error::other(other.to_string()),
            })
        };
        match socket.try_io(tokio::io::Interest::WRITABLE, start) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            other => break other?,
        }
    };
    if started < HEADER_BYTES {
        to.write_all(&header[started..]).await?;
    }
    to.write_all(&frame.payload[started.saturating_sub(HEADER_BYTES)..]).await?;
    Ok(())
}

fn send_start(
    socket: impl AsFd,
    header: &[u8],
    payload: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let found = descriptors.len();
        return Err(Error::Descriptors { found, expected: MAX_DESCRIPTORS });
    }
    let parts = [IoSlice::new(header), IoSlice::new(payload)];
    loop {
        match sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => continue,
            other => return Ok(other.map_err(std::io::Error::from)?),
        }
    }
}

fn receive_start(
    socket: &UnixStream,
    header: &mut [u8; HEADER_BYTES],
) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(header)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            other => break other.map_err(std::io::Error::from)?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_arrive_with_their_frame() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut near = FrameStream::new(near);
        let mut far = FrameStream::new(far);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"granted").unwrap();
        let sender = std::thread::spawn(move || {
            near.send(&Frame::new(Kind::End, vec![])).unwrap();
            near.send_with(Kind::Files, &vec![7; 300_000], &[file.as_fd()]).unwrap();
        });
        let (first, none) = far.receive_with().unwrap();
        assert_eq!((first.kind, none.len()), (Kind::End, 0));
        let (second, granted) = far.receive_with().unwrap();
        assert_eq!((second.payload.len(), granted.len()), (300_000, 1));
        let mut text = String::new();
        let mut file = std::fs::File::from(granted.into_iter().next().unwrap());
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "granted");
        sender.join().unwrap();
    }

    #[tokio::test]
    async fn descriptors_are_sent_without_blocking() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = tokio::net::UnixStream::from_std(near).unwrap();
        let receiver = std::thread::spawn(move || {
            let mut far = FrameStream::new(far);
            let first = far.receive_with().unwrap();
            (first, far.receive_with().unwrap())
        });
        let file = tempfile::tempfile().unwrap();
        let (_, mut near) = near.into_split();
        let long = Frame::new(Kind::Reply, vec![7; 3_000_000]);
        write_frame_with(&mut near, &long, &[file.as_fd(), file.as_fd()]).await.unwrap();
        write_frame_with(&mut near, &Frame::new(Kind::End, vec![]), &[]).await.unwrap();
        let (first, second) = receiver.join().unwrap();
        assert_eq!((first.0, first.1.len()), (long, 2));
        assert_eq!((second.0.kind, second.1.len()), (Kind::End, 0));
    }

    #[test]
    fn a_connection_closed_between_frames_is_the_error_closed() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(near);
        assert!(matches!(FrameStream::new(far).receive(), Err(Error::Closed)));
    }
}

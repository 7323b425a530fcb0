//! Images mounted by another process, which sends a copy of the mount to clients of its socket that
//! name the image.
//!
//! Invariant: the wait for an answer is limited, whatever happens to that process.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use snowmelt_kernel::packet;

use crate::spec::MountedImage;

/// The limit on the wait for an answer, long enough for a killed process to be replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit on the length of an answer in bytes. An answer is empty or an error text.
const LONGEST_ANSWER: usize = 4096;

/// Requests the root of the image's mount, detached. Blocks.
pub fn root_of_image(image: &MountedImage) -> io::Result<OwnedFd> {
    let socket = packet::connect(&image.socket)?;
    packet::send(&socket, image.digest.as_bytes(), &[])?;
    if !packet::wait(&socket, ANSWER_TIMEOUT)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answer = vec![0; LONGEST_ANSWER];
    let mut packet = packet::receive(&socket, &mut answer)?;
    let refused = || match packet.length {
        0 => io::Error::from(io::ErrorKind::UnexpectedEof),
        length => io::Error::other(String::from_utf8_lossy(&answer[..length]).into_owned()),
    };
    packet.fds.pop().ok_or_else(refused)
}

//! Images that another process mounted: it gives a copy of the mount to whoever connects to its
//! socket and names the image.
//!
//! Invariant: nobody waits longer for it than the limit, whatever becomes of that process.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use snowmelt_kernel::packet;

use crate::spec::MountedImage;

/// A process that was killed has a successor long before.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// Of an answer, which is empty or says why there is none.
const LONGEST_ANSWER: usize = 4096;

/// The root of the image's mount, attached nowhere. Blocks.
pub fn root_of_image(image: &MountedImage) -> io::Result<OwnedFd> {
    let socket = packet::connect(&image.socket)?;
    packet::send(&socket, image.digest.as_bytes(), &[])?;
    if !packet::wait(&socket, ANSWERED_WITHIN)? {
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

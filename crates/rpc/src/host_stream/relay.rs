//! Connections that another process serves: its half of a pair of sockets, between which and the other
//! host this process decrypts and encrypts.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::UnixStream;

use super::HostStream;

/// The most bytes of a direction that are on their way here.
const PIECE: usize = 128 << 10;

impl HostStream {
    /// Returns a descriptor by which another process speaks to the other host, in a protocol that
    /// verifies its data itself. Call it in a runtime, which carries the bytes of an encrypted
    /// connection.
    ///
    /// # Errors
    /// Fails if the other host has sent bytes before its turn, and if there is no descriptor left.
    pub fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        if !self.is_encrypted() {
            return Ok(self.into_unverified()?.into_std()?.into());
        }
        let (mut near, theirs) = UnixStream::pair()?;
        tokio::spawn(async move {
            let carried =
                tokio::io::copy_bidirectional_with_sizes(&mut self, &mut near, PIECE, PIECE);
            if let Err(error) = carried.await {
                tracing::debug!(%error, "a connection between hosts ended");
            }
        });
        Ok(theirs.into_std()?.into())
    }
}

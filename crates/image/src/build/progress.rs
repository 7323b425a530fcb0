//! Progress of a build, reported to a callback that can cancel it.

use std::io::{self, Read};

/// Receives the name of the part that is being read and the bytes read so far. An error cancels the
/// build, which leaves nothing incomplete behind.
pub type BuildProgress<'a> = &'a (dyn Fn(&str, u64) -> io::Result<()> + Sync);

/// Ignores progress.
pub(super) fn ignore(_: &str, _: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn reported<'a>(
    inner: impl Read + 'a,
    name: &'a str,
    progress: BuildProgress<'a>,
) -> impl Read + 'a {
    Reported { inner, name, progress, bytes: 0 }
}

struct Reported<'a, R> {
    inner: R,
    name: &'a str,
    progress: BuildProgress<'a>,
    bytes: u64,
}

impl<R: Read> Read for Reported<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.progress)(self.name, self.bytes)?;
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

//! How far a builder is, told to somebody who can end it.

use std::io::{self, Read};

/// Is told what is read now and how many bytes of it were; an error of it ends the work, which
/// leaves nothing half-made behind.
pub type Watch<'a> = &'a (dyn Fn(&str, u64) -> io::Result<()> + Sync);

/// Where nobody watches.
pub(super) fn nobody(_: &str, _: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn watched<'a>(
    inner: impl Read + 'a,
    name: &'a str,
    watch: Watch<'a>,
) -> impl Read + 'a {
    Watched { inner, name, watch, bytes: 0 }
}

struct Watched<'a, R> {
    inner: R,
    name: &'a str,
    watch: Watch<'a>,
    bytes: u64,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.watch)(self.name, self.bytes)?;
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

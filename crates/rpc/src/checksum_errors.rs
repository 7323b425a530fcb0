//! Data between hosts that arrived with a wrong checksum: the error, and counts by the address that
//! it came from.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The greatest number of addresses that are counted. A connection is checked before its token is,
/// so anything may be one.
const MAX_ADDRESSES: usize = 1024;

/// Connections that this process gave up for damaged data, by the address of their other end.
static SEEN: Mutex<BTreeMap<IpAddr, u64>> = Mutex::new(BTreeMap::new());

/// The error of data of another host that does not fit its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The address of the other host; `None` if its connection has no address any more.
    pub from: Option<IpAddr>,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("data ")?;
        if let Some(from) = self.from {
            write!(f, "from {from} ")?;
        }
        f.write_str("was damaged on its way: its checksum is wrong")
    }
}

impl Error for Damaged {}

impl Damaged {
    /// Counts a connection with damaged data. Returns the error with which the connection ends.
    pub(crate) fn seen(from: Option<IpAddr>) -> io::Error {
        let damaged = Self { from };
        tracing::warn!(%damaged, "a connection between hosts is given up");
        if let Some(from) = from {
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.len() < MAX_ADDRESSES || seen.contains_key(&from) {
                *seen.entry(from).or_default() += 1;
            }
        }
        io::Error::new(io::ErrorKind::InvalidData, damaged)
    }
}

/// Whether a connection ended with this error because of damaged data.
pub fn is_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<Damaged>)
}

/// Connections that this process gave up for damaged data, by the address of their other end.
pub fn connections() -> Vec<(IpAddr, u64)> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().map(|(from, count)| (*from, *count)).collect()
}

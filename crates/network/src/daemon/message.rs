//! The packets between a node and its network daemon, as JSON. An answer is a `Result`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_kernel::packet;

use crate::{AddressEnforcement, Counters, Error, JobSpec, NamespaceContents, Options, Result};

/// The most bytes of a packet: a specification with about a thousand hosts.
const MAX_BYTES: usize = 128 << 10;

/// How long the daemon may take for a request beyond the limit that the request itself has. Opening
/// networks loads programs into the kernel.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The first packets of a node, on the control connection: until networks are open, each asks for
/// them. Later packets have no content, and two descriptors: a namespace, and the socket for requests
/// about it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenRequest(pub Options);

/// A request about one namespace, on its own connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum NetworkRequest {
    /// Configures the namespace, which must be fresh. The first request.
    Configure,
    /// Asks whether the configured namespace is unused so far. Answered with a `bool`.
    IsUnused,
    /// Makes the network of a job in the namespace. Answered with [`MadeNetwork`].
    Create(Box<JobSpec>),
    /// Holds a control group to the addresses of a slot.
    Attach { group: PathBuf, slot: u32 },
    /// Holds the process of a seccomp listener, which is the descriptor, to the addresses of a slot.
    AttachNotifier { slot: u32 },
    /// Waits until the other hosts answer.
    Ready { within: Duration },
    /// Answered with [`crate::Unsent`].
    Unsent,
    /// Answered with [`NetworkReport`].
    Report,
    /// Answered with [`crate::TracedRoute`].
    Trace { to: IpAddr, within: Duration },
    /// Answered with a list of [`crate::Listener`].
    Listeners { at: IpAddr, port: u16 },
}

impl NetworkRequest {
    /// The time within which an answer arrives from a daemon that works.
    fn answer_within(&self) -> Duration {
        match self {
            Self::Ready { within } | Self::Trace { within, .. } => ANSWER_TIMEOUT + *within,
            _ => ANSWER_TIMEOUT,
        }
    }
}

/// The fixed facts of a network that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MadeNetwork {
    /// The cookie of the namespace, which the entries of functions have.
    pub namespace: u64,
    /// The method of enforcement.
    pub enforcement: AddressEnforcement,
    /// The requests to the kernel so far.
    pub counters: Counters,
}

/// The state of a network now, as the kernel reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkReport {
    /// The device in the host's namespace that exists as long as any part of the network does.
    pub device: String,
    /// The MTU between functions on two hosts, in bytes.
    pub mtu: u32,
    /// The method by which functions are restricted to their addresses.
    pub enforcement: AddressEnforcement,
    /// The requests to the kernel so far.
    pub counters: Counters,
    /// The sockets, routes and neighbours in the namespace.
    pub contents: NamespaceContents,
}

/// A received packet: its content, and its descriptors. `None` at the end of the connection.
pub(super) fn receive<T: DeserializeOwned>(
    socket: &OwnedFd,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    buffer.resize(MAX_BYTES, 0);
    let packet = packet::receive(socket, buffer)?;
    if packet.length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&buffer[..packet.length])?, packet.fds)))
}

/// Sends an answer; one that is too long becomes an error.
pub(super) fn answer<T: Serialize>(
    socket: &OwnedFd,
    answer: &Result<T>,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(answer)?;
    if bytes.len() > MAX_BYTES {
        let error = Error::step("-", "answer", io::Error::other("the answer is too long"));
        bytes = serde_json::to_vec(&Err::<(), _>(error))?;
    }
    packet::send(socket, &bytes, fds)
}

/// Sends a request about a namespace and waits for its answer.
pub(super) fn ask<T: DeserializeOwned>(
    socket: &OwnedFd,
    request: &NetworkRequest,
    fds: &[BorrowedFd<'_>],
) -> Result<T> {
    let answered = say(socket, request, fds, request.answer_within());
    answered.map_err(|error| Error::step("-", "ask the network daemon", error))?.0
}

/// Asks for networks with these options. Returns the table of functions, if there is one.
pub(super) fn ask_to_open(control: &OwnedFd, request: &OpenRequest) -> Result<Option<OwnedFd>> {
    let answered = say::<(), _>(control, request, &[], ANSWER_TIMEOUT);
    let (opened, mut fds) =
        answered.map_err(|error| Error::step("-", "ask the network daemon", error))?;
    opened.map(|()| fds.pop())
}

fn say<T: DeserializeOwned, R: Serialize>(
    socket: &OwnedFd,
    request: &R,
    fds: &[BorrowedFd<'_>],
    within: Duration,
) -> io::Result<(Result<T>, Vec<OwnedFd>)> {
    let bytes = serde_json::to_vec(request)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::other("the network has too many hosts"));
    }
    packet::send(socket, &bytes, fds)?;
    if !packet::wait(socket, within)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    receive(socket, &mut Vec::new())?
        .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_kind_and_number_between_processes() {
        let refused = Error::step("j", "make it", io::Error::from_raw_os_error(1));
        let missing = vec!["10.0.0.2".parse().unwrap()];
        let late =
            Error::Unreachable { job: "j".into(), within: Duration::from_millis(5), missing };
        for error in [refused, late, Error::step("j", "do it", io::Error::other("text"))] {
            let text = error.to_string();
            let json = serde_json::to_vec(&Err::<(), _>(error)).unwrap();
            let back: Result<()> = serde_json::from_slice(&json).unwrap();
            let back = back.unwrap_err();
            assert_eq!(back.to_string(), text);
            if let Error::Step { step, source, .. } = back {
                assert_eq!(source.raw_os_error().is_some(), step == "make it");
            }
        }
    }

    #[test]
    fn requests_that_are_too_long_are_not_sent() {
        let (ours, _theirs) = packet::pair().unwrap();
        let group = PathBuf::from("x".repeat(MAX_BYTES));
        let request = NetworkRequest::Attach { group, slot: 0 };
        let refused = ask::<()>(&ours, &request, &[]).unwrap_err().to_string();
        assert!(refused.contains("too many hosts"), "{refused}");
    }
}

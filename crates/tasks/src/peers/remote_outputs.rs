//! Opens outputs on other hosts, which [`crate::remote::reading`] serves there.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use snowmelt_rpc::HostStream;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{Frame, Kind, read_frame_within, write_frame};
use tokio::net::UnixStream;

use super::messages::{OutputsOpened, ReadOutputs};
use super::relay::relay;

/// How long the other host may take to open outputs: it only looks them up.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of the first message.
pub(crate) const MAX_NAMES: u32 = 1 << 20;

/// The reason why outputs cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The host does not have these outputs, named by their indices in the request.
    Missing(Vec<usize>),
    /// The host cannot be reached, or broke the protocol.
    Unreachable(ErrorReport),
}

/// Opens outputs on another host over a fresh connection, and returns a socket over which a worker
/// can read them. The socket is a local one: with the connection itself, a worker could connect to
/// anything else that this host reaches.
pub(crate) async fn open(
    mut stream: HostStream,
    asked: &ReadOutputs,
) -> Result<OwnedFd, ReadError> {
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opened(&mut stream, asked)).await;
    opened.map_err(|late| unreachable(&late))??;
    let (near, granted) = local_pair().map_err(|error| unreachable(&error))?;
    // Ends with either end.
    tokio::spawn(relay(stream, near));
    Ok(granted)
}

/// Opens outputs on another host. Returns their sizes in bytes.
pub(super) async fn opened(
    stream: &mut HostStream,
    asked: &ReadOutputs,
) -> Result<Vec<u64>, ReadError> {
    let opened = async {
        write_frame(stream, &Frame::json(Kind::Request, asked)?).await?;
        let frame = read_frame_within(stream, MAX_NAMES).await?;
        frame.ok_or(snowmelt_wire::Error::Closed)?.expect(Kind::Reply, "Reply")?.parse()
    };
    let opened: snowmelt_wire::Result<OutputsOpened> = opened.await;
    let OutputsOpened { missing, sizes } = opened.map_err(|error| unreachable(&error))?;
    if missing.is_empty() {
        return Ok(sizes);
    }
    let place = |attempt| asked.attempts.iter().position(|other| other == attempt);
    Err(ReadError::Missing(missing.iter().filter_map(place).collect()))
}

fn local_pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (near, granted) = StdStream::pair()?;
    near.set_nonblocking(true)?;
    Ok((UnixStream::from_std(near)?, granted.into()))
}

fn unreachable(error: &dyn std::error::Error) -> ReadError {
    let message = format!("an output on another host cannot be read: {error}");
    ReadError::Unreachable(ErrorReport::new(Code::OUTPUT_LOST, message))
}

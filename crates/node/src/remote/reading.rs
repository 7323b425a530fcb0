//! Serves ranges of outputs to a task on another host, and opens such connections for tasks here.
//!
//! [`snowmelt_wire::HostOutputs`] has the protocol. Invariant: the reader is the worker itself,
//! which has read untrusted bytes: it can read the outputs that its host named when it opened the
//! connection, and nothing else, however it uses the connection.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{Frame, Kind, READ_BYTES, ReadRange, read_frame_within, write_frame};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpStream, UnixStream};

use super::messages::{OutputsOpened, ReadOutputs};
use super::outputs::OutputStore;
use super::relay::{relay, wait_for_readers};

/// How long the other host may take to open outputs: it only looks them up.
const OPENED_WITHIN: Duration = Duration::from_secs(5);

/// The longest first message.
const MOST_NAMES: u32 = 1 << 20;

/// Bytes that are sent in one call: a file may have to be read from its disk meanwhile.
const STEP: usize = 256 << 10;

/// Why outputs cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Their host does not have these, by the places in the request.
    Missing(Vec<usize>),
    /// Their host cannot be reached, or broke the protocol.
    Unreachable(ErrorReport),
}

/// Opens outputs on another host over a fresh connection, and gives a socket over which a worker can
/// read them. That socket is a local one: with the connection itself, a worker could connect to
/// anything else that this host reaches.
pub(crate) async fn open(mut stream: TcpStream, asked: &ReadOutputs) -> Result<OwnedFd, ReadError> {
    let opened = async {
        write_frame(&mut stream, &Frame::json(Kind::Request, asked)?).await?;
        let frame = read_frame_within(&mut stream, MOST_NAMES).await?;
        frame.ok_or(snowmelt_wire::Error::Closed)?.expect(Kind::Reply, "Reply")?.parse()
    };
    let opened = tokio::time::timeout(OPENED_WITHIN, opened).await;
    let OutputsOpened { missing } = opened
        .map_err(|late| unreachable(&late))?
        .map_err(|error: snowmelt_wire::Error| unreachable(&error))?;
    if !missing.is_empty() {
        let place = |attempt| asked.attempts.iter().position(|other| other == attempt);
        return Err(ReadError::Missing(missing.iter().filter_map(place).collect()));
    }
    let (near, granted) = local_pair().map_err(|error| unreachable(&error))?;
    // Ends with either end.
    tokio::spawn(relay(stream, near));
    Ok(granted)
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

/// Serves a connection until it ends, breaks the protocol, or the query ends here.
pub(crate) async fn serve(mut stream: TcpStream, store: &OutputStore) {
    wait_for_readers(&stream);
    let served = async {
        let Some(frame) = read_frame_within(&mut stream, MOST_NAMES).await? else { return Ok(()) };
        let ReadOutputs { query, attempts } = frame.expect(Kind::Request, "Request")?.parse()?;
        let outputs = store.of(&query);
        let found = |attempt: &u64| outputs.as_ref().and_then(|all| all.get(*attempt));
        let files: Vec<Option<Arc<File>>> = attempts.iter().map(found).collect();
        let missing = attempts.iter().zip(&files).filter(|(_, file)| file.is_none());
        let missing: Vec<u64> = missing.map(|(attempt, _)| *attempt).collect();
        let is_complete = missing.is_empty();
        write_frame(&mut stream, &Frame::json(Kind::Reply, &OutputsOpened { missing })?).await?;
        let Some(outputs) = outputs.filter(|_| is_complete) else { return Ok(()) };
        tokio::select! {
            served = ranges(&mut stream, &files) => Ok(served?),
            () = outputs.ended.cancelled() => Ok(()),
        }
    };
    if let Err(error) = served.await {
        let error: snowmelt_wire::Error = error;
        tracing::debug!(%error, "a reader of outputs broke off");
    }
}

/// Answers requests in their order until the reader closes the connection.
async fn ranges(stream: &mut TcpStream, files: &[Option<Arc<File>>]) -> std::io::Result<()> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut request = [0; READ_BYTES];
    loop {
        match stream.read_exact(&mut request).await {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        let range = ReadRange::decode(&request).ok_or_else(|| invalid("a range is too long"))?;
        let file = files.get(range.output as usize).and_then(Option::as_ref);
        let file = file.ok_or_else(|| invalid("an output was not granted"))?;
        let end = range.offset.checked_add(range.length);
        if end.is_none_or(|end| end > file.metadata().map_or(0, |it| it.len())) {
            return Err(invalid("a range is not in its output"));
        }
        send_range(stream, file, range).await?;
    }
}

/// Sends the length, and the bytes from the page cache without copying them here.
async fn send_range(stream: &TcpStream, file: &File, range: ReadRange) -> std::io::Result<()> {
    let length = range.length.to_le_bytes();
    let mut sent = 0;
    while sent < length.len() {
        // More follows: both go into one packet.
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        let some = || Ok(send(stream, &length[sent..], flags)?);
        sent += stream.async_io(Interest::WRITABLE, some).await?;
    }
    let (mut offset, end) = (range.offset, range.offset + range.length);
    while offset < end {
        let step = STEP.min(usize::try_from(end - offset).unwrap_or(STEP));
        let mut from = offset;
        let some = || Ok(sendfile(stream, file, Some(&mut from), step)?);
        let sent = stream.async_io(Interest::WRITABLE, some).await?;
        if sent == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        offset += sent as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use snowmelt_wire::MAX_READ_BYTES;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// A connection whose other end is served from a store with one output.
    async fn served(asked: &ReadOutputs) -> Result<UnixStream, ReadError> {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.write_all(b"the end").unwrap();
        kept.add(5, file);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        tokio::spawn(async move {
            serve(far, &store).await;
            drop(kept);
        });
        let opened = open(near, asked).await?;
        // Not a socket of the network: a worker could connect it to something else.
        let domain = rustix::net::sockopt::socket_domain(&opened).unwrap();
        assert_eq!(domain, rustix::net::AddressFamily::UNIX);
        let stream = StdStream::from(opened);
        stream.set_nonblocking(true).unwrap();
        Ok(UnixStream::from_std(stream).unwrap())
    }

    fn asked(query: &str, attempts: &[u64]) -> ReadOutputs {
        ReadOutputs { query: query.to_owned(), attempts: attempts.to_vec() }
    }

    #[tokio::test]
    async fn ranges_come_in_the_order_of_their_requests() {
        let mut stream = served(&asked("q", &[5])).await.unwrap();
        let requests = [(1 << 20, 7), (0, 1 << 20), (1 << 20, 3), (9, 0)];
        for (offset, length) in requests {
            let range = ReadRange { output: 0, offset, length };
            stream.write_all(&range.encode()).await.unwrap();
        }
        let mut answers = Vec::new();
        for (_, length) in requests {
            let mut said = [0; 8];
            stream.read_exact(&mut said).await.unwrap();
            assert_eq!(u64::from_le_bytes(said), length);
            let mut bytes = vec![0; length as usize];
            stream.read_exact(&mut bytes).await.unwrap();
            answers.push(bytes);
        }
        assert_eq!((&answers[0][..], &answers[2][..]), (&b"the end"[..], &b"the"[..]));
        assert!(answers[1].iter().all(|byte| *byte == 7));
    }

    #[tokio::test]
    async fn only_granted_outputs_and_only_what_is_in_them_can_be_read() {
        let range = |output, offset, length| ReadRange { output, offset, length }.encode();
        let long = range(0, 0, MAX_READ_BYTES + 1);
        for request in [range(1, 0, 1), range(0, 1 << 20, 8), range(0, u64::MAX, 2), long] {
            let mut stream = served(&asked("q", &[5])).await.unwrap();
            stream.write_all(&request).await.unwrap();
            let mut rest = Vec::new();
            // A reset is an end as well.
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        }
    }

    #[tokio::test]
    async fn outputs_that_are_gone_are_named() {
        let missing = |refused| match refused {
            Err(ReadError::Missing(places)) => places,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(served(&asked("q", &[5, 6])).await), [1]);
        assert_eq!(missing(served(&asked("another", &[5])).await), [0]);
    }
}

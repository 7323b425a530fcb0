//! Serves ranges of outputs to a task on another host, which [`crate::peers::remote_outputs`] has
//! opened there.
//!
//! [`snowmelt_wire::HostOutputs`] has the protocol. Invariant: the reader is the worker itself,
//! which has read untrusted bytes: it can read the outputs that its host named when it opened the
//! connection, and nothing else, however it uses the connection.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use snowmelt_rpc::HostStream;
use snowmelt_wire::{Frame, Kind, READ_BYTES, ReadRange, read_frame_within, write_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::peers::messages::{OutputsOpened, ReadOutputs};
use crate::peers::outputs::{LocalOutput, OutputStore, Outputs};
use crate::peers::relay::wait_for_readers;
use crate::peers::remote_outputs::MAX_NAMES;

/// The bytes that are read at a time.
const STEP: usize = 256 << 10;

/// Serves a connection until it ends, breaks the protocol, or the query ends here.
pub(crate) async fn serve(mut stream: HostStream, store: &OutputStore) {
    wait_for_readers(&stream);
    let served = async {
        let Some(frame) = read_frame_within(&mut stream, MAX_NAMES).await? else { return Ok(()) };
        let asked: ReadOutputs = frame.expect(Kind::Request, "Request")?.parse()?;
        let Some(outputs) = store.of(&asked.query) else {
            let opened = OutputsOpened { missing: asked.attempts, sizes: Vec::new() };
            return write_frame(&mut stream, &Frame::json(Kind::Reply, &opened)?).await;
        };
        tokio::select! {
            served = answer(&mut stream, &outputs, asked) => served,
            () = outputs.ended.cancelled() => Ok(()),
        }
    };
    if let Err(error) = served.await {
        let error: snowmelt_wire::Error = error;
        tracing::debug!(%error, "a reader of outputs broke off");
    }
}

/// Says which outputs are here, and answers requests if all of them are here.
async fn answer(
    stream: &mut HostStream,
    outputs: &Outputs,
    asked: ReadOutputs,
) -> snowmelt_wire::Result<()> {
    let mut found = Vec::new();
    let mut sizes = Vec::new();
    let mut missing = Vec::new();
    for attempt in asked.attempts {
        let output = match asked.copy {
            Some(number) => outputs.begun(attempt, number).await,
            None => outputs.get(attempt).map(LocalOutput::Made),
        };
        let size = match &output {
            Some(output) => output.size().await,
            None => None,
        };
        match output.zip(size) {
            Some((output, size)) => {
                found.push((output, size));
                sizes.push(size);
            }
            None => missing.push(attempt),
        }
    }
    let is_complete = missing.is_empty();
    write_frame(stream, &Frame::json(Kind::Reply, &OutputsOpened { missing, sizes })?).await?;
    match is_complete {
        true => Ok(ranges(stream, &found).await?),
        false => Ok(()),
    }
}

/// Answers requests in their order until the reader closes the connection.
async fn ranges(stream: &mut HostStream, outputs: &[(LocalOutput, u64)]) -> std::io::Result<()> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut request = [0; READ_BYTES];
    loop {
        match stream.read_exact(&mut request).await {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        let range = ReadRange::decode(&request).ok_or_else(|| invalid("a range is too long"))?;
        let output = outputs.get(range.output as usize);
        let (output, size) = output.ok_or_else(|| invalid("an output was not granted"))?;
        let end = range.offset.checked_add(range.length).filter(|end| end <= size);
        let end = end.ok_or_else(|| invalid("a range is not in its output"))?;
        if !output.reaches(end).await {
            return Err(std::io::Error::other("a copy of an output cannot be made"));
        }
        send_range(stream, output.file(), range).await?;
    }
}

/// Sends the length of a range, and its bytes, which may have to be read from a disk.
async fn send_range(
    stream: &mut HostStream,
    file: &Arc<File>,
    range: ReadRange,
) -> std::io::Result<()> {
    let mut offset = range.offset;
    let end = range.offset + range.length;
    // The length goes with the first bytes.
    let mut piece = range.length.to_le_bytes().to_vec();
    loop {
        let step = STEP.min(usize::try_from(end - offset).unwrap_or(STEP));
        let file = Arc::clone(file);
        let reading = tokio::task::spawn_blocking(move || {
            let before = piece.len();
            piece.resize(before + step, 0);
            file.read_exact_at(&mut piece[before..], offset).map(|()| piece)
        });
        piece = reading.await.map_err(std::io::Error::other)??;
        stream.write_all(&piece).await?;
        offset += step as u64;
        if offset >= end {
            return Ok(());
        }
        piece.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream as StdStream;

    use snowmelt_wire::MAX_READ_BYTES;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::*;
    use crate::peers::remote_outputs::{ReadError, open};

    /// Returns a connection whose other end is served from a store with one output.
    async fn served(asked: &ReadOutputs) -> Result<UnixStream, ReadError> {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.write_all(b"the end").unwrap();
        kept.add(5, file);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near = HostStream::opened(near);
        let far = HostStream::accepted(listener.accept().await.unwrap().0);
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
        ReadOutputs { query: query.to_owned(), attempts: attempts.to_vec(), copy: None }
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

//! Outputs of tasks on another host, read over a granted connection.
//!
//! [`snowmelt_wire::HostOutputs`] has the protocol. Each reader has some requests under way,
//! bounded in bytes, and sends the first ones before its rows are asked for. One task of the worker
//! sends the requests of all readers and receives the answers. So a reader that is not asked for
//! rows does not keep others from getting their answers: it holds at most the answers that it has
//! under way.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use snowmelt_wire::{Frame, HEADER_BYTES, HostOutputs, Kind, ReadRange};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::source::{Frames, OutputSource, batch_bytes};
use crate::Error;

/// Bytes of the longest request. Answers of shorter requests come sooner, and longer requests are
/// fewer.
const REQUEST_BYTES: u64 = 1 << 20;

/// Bytes that a reader has under way at most; the first request may be longer.
const WINDOW_BYTES: u64 = 2 << 20;

type FramesReceiver = oneshot::Receiver<Bytes>;
type RangeRequest = (ReadRange, oneshot::Sender<Bytes>);

/// A connection to the outputs on one host.
#[derive(Debug)]
struct OutputConnection {
    name: String,
    // Becomes a task of the runtime with the first request.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Idle(Option<StdStream>),
    Running(mpsc::UnboundedSender<RangeRequest>),
}

/// The output of one task on another host.
#[derive(Debug)]
struct HostSource {
    host: Arc<OutputConnection>,
    // Its place among the outputs of the connection.
    output: u32,
}

/// The outputs that can be read over a granted connection, by task.
pub(crate) fn host_sources(
    (outputs, socket): (HostOutputs, StdStream),
) -> impl Iterator<Item = (u32, Arc<dyn OutputSource>)> {
    let HostOutputs { host: name, tasks } = outputs;
    let host = Arc::new(OutputConnection { name, state: Mutex::new(State::Idle(Some(socket))) });
    tasks.into_iter().zip(0_u32..).map(move |(task, output)| {
        let host = Arc::clone(&host);
        (task, Arc::new(HostSource { host, output }) as Arc<dyn OutputSource>)
    })
}

impl OutputSource for HostSource {
    fn frames(&self, ranges: Vec<(u64, u64)>) -> Frames {
        let host = Arc::clone(&self.host);
        let output = self.output;
        let pieces = pieces(&ranges).map(|(offset, length)| ReadRange { output, offset, length });
        let mut reader = OutputReader {
            host,
            pieces: pieces.collect(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            received: Received::default(),
        };
        // Before the first row is asked for: the answers are on their way while the plan is set up.
        reader.ask();
        let frames = stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.frame().await?.map(|frame| (frame, reader)))
        });
        frames.boxed()
    }
}

/// Divides ranges into requests, in order. Neighbours become one.
fn pieces(ranges: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (offset, length) in ranges.iter().copied().filter(|(_, length)| *length > 0) {
        match joined.last_mut() {
            Some((before, bytes)) if *before + *bytes == offset => *bytes += length,
            _ => joined.push((offset, length)),
        }
    }
    joined.into_iter().flat_map(|(offset, length)| {
        let starts = (0..length).step_by(REQUEST_BYTES as usize);
        starts.map(move |start| (offset + start, REQUEST_BYTES.min(length - start)))
    })
}

/// Reads the frames of some ranges of one output.
struct OutputReader {
    host: Arc<OutputConnection>,
    // Not asked for yet.
    pieces: VecDeque<ReadRange>,
    under_way: VecDeque<(u64, FramesReceiver)>,
    bytes_under_way: u64,
    received: Received,
}

impl OutputReader {
    /// The next frame; `None` after the last one.
    async fn frame(&mut self) -> Result<Option<Frame>, Error> {
        let Some(header) = self.take(HEADER_BYTES).await? else { return Ok(None) };
        let mut first = [0; HEADER_BYTES];
        first.copy_from_slice(&header);
        // The bytes that are left of its range are not known here; too few are found below.
        let length = batch_bytes(first, u64::MAX)?;
        let payload = self.take(length).await?.ok_or_else(|| self.host.lost("a frame is cut"))?;
        Ok(Some(Frame::new(Kind::Batch, payload)))
    }

    /// Returns the next bytes; `None` if there are none.
    async fn take(&mut self, length: usize) -> Result<Option<Vec<u8>>, Error> {
        while self.received.bytes < length {
            let Some((bytes, answer)) = self.under_way.pop_front() else {
                return match self.received.bytes {
                    0 if length > 0 => Ok(None),
                    _ => Err(self.host.lost("an output is cut")),
                };
            };
            let answer = answer.await.map_err(|_| self.host.lost("the connection ended"))?;
            self.bytes_under_way -= bytes;
            self.received.push(answer);
            // As soon as an answer has been taken, so that the window is full while its rows are
            // decoded.
            self.ask();
        }
        Ok(Some(self.received.take(length)))
    }

    /// Sends requests as far as the window allows.
    fn ask(&mut self) {
        while let Some(next) = self.pieces.front() {
            let after = self.bytes_under_way + next.length;
            // One request at least, or a range that is longer than the window would never be read.
            if after > WINDOW_BYTES && !self.under_way.is_empty() {
                return;
            }
            let (sender, answer) = oneshot::channel();
            // In the order in which they are sent, which is that of the answers.
            self.under_way.push_back((next.length, answer));
            self.bytes_under_way = after;
            // A connection that has ended drops the sender, which the answer tells.
            self.host.send((*next, sender));
            self.pieces.pop_front();
        }
    }
}

/// Bytes that have arrived and were not taken yet.
#[derive(Debug, Default)]
struct Received {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Received {
    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// Takes bytes that have arrived, as a copy, so that columns are aligned as they were written.
    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(length);
        while taken.len() < length {
            let Some(first) = self.pieces.front_mut() else { break };
            let some = first.split_to(first.len().min(length - taken.len()));
            taken.extend_from_slice(&some);
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.bytes -= taken.len();
        taken
    }
}

impl OutputConnection {
    fn send(&self, asked: RangeRequest) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Idle(socket) = &mut *state {
            let (sender, requests) = mpsc::unbounded_channel();
            let opened = socket.take().and_then(|socket| {
                socket.set_nonblocking(true).ok()?;
                UnixStream::from_std(socket).ok()
            });
            if let Some(stream) = opened {
                tokio::spawn(run(stream, requests));
            }
            *state = State::Running(sender);
        }
        if let State::Running(sender) = &*state {
            // The connection may have ended.
            let _ = sender.send(asked);
        }
    }

    fn lost(&self, why: &str) -> Error {
        Error::OutputLost { host: self.name.clone(), why: why.to_owned() }
    }
}

/// Sends requests and receives their answers until either side ends the connection.
async fn run(stream: UnixStream, requests: mpsc::UnboundedReceiver<RangeRequest>) {
    let (reading, writing) = stream.into_split();
    let (sender, waiting) = mpsc::unbounded_channel();
    let ended = tokio::select! {
        ended = send(writing, requests, sender) => ended,
        ended = receive(reading, waiting) => ended,
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "the connection to outputs on another host broke");
    }
}

async fn send(
    mut writing: OwnedWriteHalf,
    mut requests: mpsc::UnboundedReceiver<RangeRequest>,
    waiting: mpsc::UnboundedSender<(u64, oneshot::Sender<Bytes>)>,
) -> std::io::Result<()> {
    while let Some((range, sender)) = requests.recv().await {
        // Before the request is written: the answer must not come before somebody waits for it.
        if waiting.send((range.length, sender)).is_err() {
            return Ok(());
        }
        writing.write_all(&range.encode()).await?;
    }
    // All sources are gone, so nobody waits for an answer.
    Ok(())
}

async fn receive(
    mut reading: OwnedReadHalf,
    mut waiting: mpsc::UnboundedReceiver<(u64, oneshot::Sender<Bytes>)>,
) -> std::io::Result<()> {
    while let Some((length, sender)) = waiting.recv().await {
        let said = reading.read_u64_le().await?;
        // The connection cannot be used after this: where the next answer begins is not known.
        if said != length {
            let why = format!("{said} bytes came where {length} were asked for");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        let mut limited = (&mut reading).take(length);
        while limited.read_buf(&mut bytes).await? > 0 {}
        if bytes.len() as u64 != length {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // The reader may have been dropped: a LIMIT was reached.
        let _ = sender.send(bytes.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use futures::TryStreamExt;
    use snowmelt_wire::READ_BYTES;

    use super::*;

    fn frame(byte: u8, length: usize) -> Vec<u8> {
        let frame = Frame::new(Kind::Batch, vec![byte; length]);
        [&frame.header().unwrap()[..], &frame.payload].concat()
    }

    /// The outputs of the tasks 3 and 4 on another host, which serves so many requests.
    fn outputs(content: [Vec<u8>; 2], serves: usize) -> Vec<(u32, Arc<dyn OutputSource>)> {
        let (near, mut far) = StdStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut request = [0; READ_BYTES];
            for _ in 0..serves {
                if far.read_exact(&mut request).is_err() {
                    return;
                }
                let range = ReadRange::decode(&request).unwrap();
                far.write_all(&range.length.to_le_bytes()).unwrap();
                let from = range.offset as usize;
                let to = (range.offset + range.length) as usize;
                far.write_all(&content[range.output as usize][from..to]).unwrap();
            }
        });
        let granted = HostOutputs { host: "host-2".to_owned(), tasks: vec![3, 4] };
        host_sources((granted, near)).collect()
    }

    async fn read(
        source: &Arc<dyn OutputSource>,
        ranges: Vec<(u64, u64)>,
    ) -> Result<Vec<Frame>, Error> {
        source.frames(ranges).try_collect().await
    }

    #[tokio::test]
    async fn frames_come_in_the_order_of_their_ranges_across_requests() {
        let long = frame(1, 5 << 20);
        let whole = [long.clone(), frame(2, 10), frame(3, 0)].concat();
        let first = long.len() as u64;
        let length = whole.len() as u64;
        let sources = outputs([whole, frame(4, 1)], usize::MAX);
        let ranges = vec![(first, length - first), (0, first), (7, 0)];
        let frames = read(&sources[0].1, ranges).await.unwrap();
        let found: Vec<_> =
            frames.iter().map(|frame| (frame.payload.first(), frame.payload.len())).collect();
        assert_eq!(found, [(Some(&2), 10), (None, 0), (Some(&1), 5 << 20)]);
        assert_eq!(sources[1].0, 4);
        assert_eq!(read(&sources[1].1, vec![(0, 9)]).await.unwrap().len(), 1);
        assert!(read(&sources[1].1, Vec::new()).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_reader_that_is_not_asked_holds_up_no_other() {
        let content = [frame(1, 20 << 20), frame(2, 20 << 20)];
        let length = content[0].len() as u64;
        let sources = outputs(content, usize::MAX);
        let mut idle = sources[0].1.frames(vec![(0, length)]);
        assert_eq!(read(&sources[1].1, vec![(0, length)]).await.unwrap().len(), 1);
        assert_eq!(idle.try_next().await.unwrap().unwrap().payload.len(), 20 << 20);
    }

    #[tokio::test]
    async fn a_connection_that_ends_is_an_output_that_is_lost() {
        let content = [frame(1, 3 << 20), Vec::new()];
        let length = content[0].len() as u64;
        for serves in [0, 1] {
            let sources = outputs(content.clone(), serves);
            let error = read(&sources[0].1, vec![(0, length)]).await.unwrap_err();
            assert!(error.to_string().contains("host-2"), "{error}");
        }
    }

    #[test]
    fn neighbours_become_one_request_and_long_ranges_several() {
        let found = |ranges: &[(u64, u64)]| pieces(ranges).collect::<Vec<_>>();
        assert_eq!(found(&[(0, 5), (5, 3), (10, 1), (20, 0)]), [(0, 8), (10, 1)]);
        let mib = REQUEST_BYTES;
        assert_eq!(found(&[(7, 2 * mib + 1)]), [(7, mib), (7 + mib, mib), (7 + 2 * mib, 1)]);
    }
}

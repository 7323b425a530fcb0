//! A lease over one connection, for clients that no descriptor can reach: what the client and its
//! instance send each other is in frames (`Relayed`) between those of the lease.
//!
//! Invariants: of each direction at most one buffer is in memory, whatever a side sends or does not
//! read: who does not read makes the other one wait. The instance gets only what is in such frames,
//! and the frames of the server are whole, also where its instance ends in the middle of an answer.
//! The end of the connection is the end of the instance.

use std::pin::pin;
use std::time::Duration;

use snowmelt_node::InstanceLease;
use snowmelt_types::{Code, ErrorReport, Report, Tenant};
use snowmelt_wire::{Error, Frame, Kind, read_header, write_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use super::client::{Client, Keep, Out, broken, keep_output};
use crate::identity::Identity;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// How long a client may take to send its request, with its code, over a slow line.
const ASKS_WITHIN: Duration = Duration::from_secs(60);

/// How long it may take until the end of an instance is known whose connection has ended.
const END_IS_KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// How long a client may take to read why its instance has ended. Until then what it sends is read:
/// the kernel would take back an answer on a connection that is closed with unread bytes.
const READS_WITHIN: Duration = Duration::from_secs(5);

/// A connection that left HTTP, and the identity of the request that it began with.
pub(super) struct Relayed<S> {
    pub stream: S,
    pub identity: Identity,
}

/// What a client says at last.
#[derive(Debug)]
enum Said {
    /// It returns the instance.
    Returned,
    /// Its connection has ended.
    Gone,
    /// What the protocol does not allow.
    Wrong(Error),
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Client for Relayed<S> {
    type Stream = S;

    fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    fn asks_within(&self) -> Duration {
        ASKS_WITHIN
    }

    fn identity(&self, named: Option<Tenant>) -> Result<Identity, ErrorReport> {
        self.identity.check(named.as_ref())?;
        Ok(self.identity.clone())
    }

    async fn follow(&mut self, out: Out, keep: Keep<'_>) -> Result<(), ErrorReport> {
        let Out { name, lease, connection, leased } = out;
        connection.set_nonblocking(true).map_err(broken)?;
        let instance = UnixStream::from_std(connection).map_err(broken)?;
        let (mut from_instance, mut to_instance) = instance.into_split();
        let (mut from_client, mut to_client) = tokio::io::split(&mut self.stream);
        let reply = Frame::json(Kind::Reply, &leased).map_err(|error| error.report())?;
        let told = async {
            if send(&mut to_client, &reply).await.is_ok()
                && answer(&mut from_instance, &mut to_client).await.is_ok()
            {
                let why = why_ended(&lease, &name, keep).await;
                tell(&mut to_client, Frame::json(Kind::Failure, &why)).await;
            }
        };
        let said = {
            let mut said = pin!(forward(&mut from_client, &mut to_instance));
            tokio::select! {
                said = &mut said => Some(said),
                () = told => {
                    let _ = tokio::time::timeout(READS_WITHIN, said).await;
                    None
                }
            }
        };
        drop((from_instance, to_instance));
        keep(&lease.take_log().text);
        match said {
            Some(Said::Returned) => {
                lease.give_back();
                // A client that does not wait for it needs it not.
                tell(&mut to_client, Ok(Frame::new(Kind::End, Vec::new()))).await;
                Ok(())
            }
            Some(Said::Wrong(error)) => Err(error.report()),
            Some(Said::Gone) | None => Ok(()),
        }
    }
}

/// Why the connection of an instance has ended; keeps what it wrote.
async fn why_ended(lease: &InstanceLease, name: &str, keep: Keep<'_>) -> ErrorReport {
    match lease.ended(name, END_IS_KNOWN_WITHIN).await {
        Some(ended) => {
            keep_output(&ended, keep);
            ended.report()
        }
        None => {
            let message = format!("the instance of `{name}` closed its connection");
            ErrorReport::new(Code::PROTOCOL, message)
        }
    }
}

/// Sends the last frame, to a client that may be gone.
async fn tell(to: &mut (impl AsyncWrite + Unpin), frame: Result<Frame, Error>) {
    if let Ok(frame) = frame {
        let _ = send(to, &frame).await;
    }
    let _ = to.shutdown().await;
}

/// Passes on what the client sends for its instance, until it says something else. What comes after
/// the end of the instance is read and dropped.
async fn forward(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> Said {
    let mut buffer = vec![0; BUFFER];
    let mut has_ended = false;
    loop {
        let mut left = match read_header(from).await {
            Ok(Some((Kind::Relayed, length))) => length,
            Ok(Some((Kind::End, 0))) => return Said::Returned,
            Ok(Some((found, _))) => {
                return Said::Wrong(Error::Unexpected { found, expected: "bytes or the end" });
            }
            Ok(None) | Err(Error::Io(_)) => return Said::Gone,
            Err(error) => return Said::Wrong(error),
        };
        while left > 0 {
            let most = left.min(BUFFER);
            let count = match from.read(&mut buffer[..most]).await {
                Ok(0) | Err(_) => return Said::Gone,
                Ok(count) => count,
            };
            has_ended = has_ended || to.write_all(&buffer[..count]).await.is_err();
            left -= count;
        }
    }
}

/// Passes on what the instance sends, until its connection ends.
///
/// # Errors
/// The connection of the client has ended.
async fn answer(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return Ok(());
        }
        send(to, &Frame::new(Kind::Relayed, buffer[..count].to_vec())).await?;
    }
}

async fn send(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> Result<(), Error> {
    write_frame(to, frame).await?;
    // TLS keeps what was not sent at once.
    Ok(to.flush().await?)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn relayed(bytes: &[u8]) -> Vec<u8> {
        let frame = Frame::new(Kind::Relayed, bytes.to_vec());
        [&frame.header().unwrap()[..], &frame.payload].concat()
    }

    async fn forwarded(sent: &[u8]) -> (Said, Vec<u8>) {
        let (mut to, mut instance) = duplex(1 << 20);
        let said = forward(&mut &*sent, &mut to).await;
        drop(to);
        let mut got = Vec::new();
        instance.read_to_end(&mut got).await.unwrap();
        (said, got)
    }

    #[tokio::test]
    async fn an_instance_gets_what_is_in_frames_for_it() {
        let large = vec![7; 3 * BUFFER + 1];
        let end = Frame::new(Kind::End, Vec::new()).header().unwrap();
        let sent = [&relayed(b"he")[..], &relayed(b""), &relayed(b"llo"), &relayed(&large), &end];
        let (said, got) = forwarded(&sent.concat()).await;
        assert!(matches!(said, Said::Returned), "{said:?}");
        assert_eq!(got, [b"hello", &large[..]].concat());
    }

    #[tokio::test]
    async fn other_frames_and_broken_ones_end_the_lease() {
        let batch = Frame::new(Kind::Batch, "x").header().unwrap();
        let long_end = Frame::new(Kind::End, "x").header().unwrap();
        for wrong in [&batch[..], &long_end, &[0, 0, 0, 0, 99, 0, 0, 0], &[255; 8]] {
            let (said, got) = forwarded(&[&relayed(b"first"), wrong].concat()).await;
            assert!(matches!(said, Said::Wrong(_)), "{said:?}");
            assert_eq!(got, b"first");
        }
        let whole = relayed(b"first");
        for cut in [0, 3, 8, 10] {
            let (said, got) = forwarded(&whole[..cut]).await;
            assert!(matches!(said, Said::Gone), "{cut}: {said:?}");
            assert_eq!(got, b"first"[..cut.saturating_sub(8)]);
        }
    }

    #[tokio::test]
    async fn what_comes_after_the_end_of_an_instance_is_read() {
        let (mut to, instance) = duplex(1);
        drop(instance);
        let sent = [relayed(&vec![1; 2 * BUFFER]), relayed(b"more")].concat();
        assert!(matches!(forward(&mut &*sent, &mut to).await, Said::Gone));
    }

    /// A client that does not read makes the instance wait: no more than the buffers are in memory.
    #[tokio::test]
    async fn an_instance_waits_for_its_client() {
        let (mut instance, mut from) = duplex(64);
        let (mut to, mut client) = duplex(64);
        let answering = tokio::spawn(async move { answer(&mut from, &mut to).await });
        let sending = tokio::spawn(async move {
            let sent = instance.write_all(&vec![5; 4 * BUFFER]).await;
            drop(instance);
            sent
        });
        tokio::task::yield_now().await;
        assert!(!sending.is_finished());
        let mut got = Vec::new();
        while let Some((kind, length)) = read_header(&mut client).await.unwrap() {
            assert_eq!(kind, Kind::Relayed);
            let mut bytes = vec![0; length];
            client.read_exact(&mut bytes).await.unwrap();
            got.extend(bytes);
        }
        assert_eq!(got, vec![5; 4 * BUFFER]);
        sending.await.unwrap().unwrap();
        answering.await.unwrap().unwrap();
    }
}

//! The connection of an instance, carried in frames (`Relayed`) of another connection: that of a
//! client to which no descriptor can be sent, or that between control and the host of the instance.
//!
//! Invariants: of each direction at most one buffer is in memory, whatever a side sends or does not
//! read: a side that does not read makes the other one wait. The instance gets only the bytes in
//! such frames, and frames are sent as a whole, also where an instance ends in the middle of an
//! answer.

use std::os::unix::net::UnixStream as BlockingStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snowmelt_wire::{Error, Frame, Kind, Result, read_header, write_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// How long a client may take to read why its instance has ended. Until then the bytes that it
/// sends are read: the kernel would drop the answer if the connection were closed with unread
/// bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The last word of a client about an instance.
#[derive(Debug)]
pub enum Said {
    /// The client returns the instance.
    Returned,
    /// The connection of the client has ended.
    Gone,
    /// The client sent what the protocol does not allow.
    Wrong(Error),
}

/// Relays between a client and its instance, from the first frame for the client until the client
/// says its last word. Returns `None` if the connection of the instance has ended before. Then the
/// client was sent `last`, and nothing comes after it.
///
/// # Errors
/// The connection of the instance cannot be used.
pub async fn relay(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    instance: BlockingStream,
    first: &Frame,
    last: impl Future<Output = Result<Frame>>,
) -> std::io::Result<Option<Said>> {
    instance.set_nonblocking(true)?;
    let (mut from_instance, mut to_instance) = UnixStream::from_std(instance)?.into_split();
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let has_said = AtomicBool::new(false);
    let is_last = AtomicBool::new(false);
    let (end, over) = oneshot::channel::<()>();
    let over = async { drop(over.await) };
    let told = async {
        if send(&mut to_client, first).await.is_ok()
            && answer(&mut from_instance, &mut to_client, over).await.is_ok()
            && !has_said.load(Ordering::Relaxed)
        {
            is_last.store(true, Ordering::Relaxed);
            tell(&mut to_client, last.await).await;
        }
    };
    let mut told = pin!(told);
    let mut said = pin!(last_word(&mut from_client, &mut to_instance));
    let said = tokio::select! {
        said = &mut said => {
            has_said.store(true, Ordering::Relaxed);
            let _ = end.send(());
            // The next frame is one of its own: the frame that has begun is sent as a whole.
            let _ = tokio::time::timeout(READ_TIMEOUT, &mut told).await;
            (!is_last.load(Ordering::Relaxed)).then_some(said)
        }
        () = &mut told => {
            let _ = tokio::time::timeout(READ_TIMEOUT, said).await;
            None
        }
    };
    Ok(said)
}

/// Sends the last frame, to a client that may be gone.
pub async fn tell(to: &mut (impl AsyncWrite + Unpin), frame: Result<Frame>) {
    if let Ok(frame) = frame {
        let _ = send(to, &frame).await;
    }
    let _ = to.shutdown().await;
}

/// Passes on the bytes that a client sends for its instance, until the client says something else.
async fn last_word(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Said {
    match forward(from, to).await {
        Ok(Some((Kind::End, 0))) => Said::Returned,
        Ok(Some((found, _))) => {
            Said::Wrong(Error::Unexpected { found, expected: "bytes or the end" })
        }
        Ok(None) | Err(Error::Io(_)) => Said::Gone,
        Err(error) => Said::Wrong(error),
    }
}

/// Passes on the bytes in frames. Stops at a frame of another kind, whose header is read and
/// returned, or at the end of the connection, with `None`. Bytes that come after the receiver has
/// ended are read and dropped.
///
/// # Errors
/// The connection breaks, or what comes is no frame.
pub(crate) async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<(Kind, usize)>> {
    let mut buffer = vec![0; BUFFER];
    let mut has_ended = false;
    loop {
        let mut left = match read_header(from).await? {
            Some((Kind::Relayed, length)) => length,
            other => return Ok(other),
        };
        while left > 0 {
            let most = left.min(BUFFER);
            let count = from.read(&mut buffer[..most]).await?;
            if count == 0 {
                return Ok(None);
            }
            has_ended = has_ended || to.write_all(&buffer[..count]).await.is_err();
            left -= count;
        }
    }
}

/// Passes on in frames the bytes that come, until they end or `over` is done. A frame that has
/// begun is sent whole.
///
/// # Errors
/// The connection that carries the frames has ended.
pub(crate) async fn answer(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    over: impl Future<Output = ()>,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut over = pin!(over);
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count.unwrap_or(0),
            () = &mut over => return Ok(()),
        };
        if count == 0 {
            return Ok(());
        }
        send(to, &Frame::new(Kind::Relayed, buffer[..count].to_vec())).await?;
    }
}

/// Sends a frame at once.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> Result<()> {
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
        let said = last_word(&mut &*sent, &mut to).await;
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
        assert!(matches!(last_word(&mut &*sent, &mut to).await, Said::Gone));
    }

    /// Checks that a client that does not read makes the instance wait: no more than the buffers
    /// are in memory.
    #[tokio::test]
    async fn an_instance_waits_for_its_client() {
        let (mut instance, mut from) = duplex(64);
        let (mut to, mut client) = duplex(64);
        let answering =
            tokio::spawn(async move { answer(&mut from, &mut to, std::future::pending()).await });
        let sending = tokio::spawn(async move {
            let sent = instance.write_all(&vec![5; 4 * BUFFER]).await;
            drop(instance);
            sent
        });
        tokio::task::yield_now().await;
        assert!(!sending.is_finished());
        assert_eq!(received(&mut client).await, vec![5; 4 * BUFFER]);
        sending.await.unwrap().unwrap();
        answering.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_frame_that_has_begun_is_sent_although_it_is_over() {
        let (mut instance, mut from) = duplex(1 << 20);
        let (mut to, mut client) = duplex(64);
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let over_now = async { drop(is_over.await) };
        instance.write_all(&vec![5; 1000]).await.unwrap();
        let answering = tokio::spawn(async move {
            let answered = answer(&mut from, &mut to, over_now).await;
            drop(to);
            answered
        });
        let mut header = [0; 8];
        client.read_exact(&mut header).await.unwrap();
        drop(over);
        tokio::task::yield_now().await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, vec![5; 1000]);
        answering.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_says_its_last_word_gets_the_rest_of_the_frame_that_has_begun() {
        let (instance, mut other) = BlockingStream::pair().unwrap();
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            // Until nobody reads it any more.
            while other.write_all(&[5; 1000]).is_ok() {}
        });
        let (mut stream, mut client) = duplex(64);
        let first = Frame::new(Kind::Reply, "{}");
        let relaying = tokio::spawn(async move {
            let said = relay(&mut stream, instance, &first, std::future::pending()).await;
            tell(&mut stream, Ok(Frame::new(Kind::End, Vec::new()))).await;
            said
        });
        let (kind, length) = read_header(&mut client).await.unwrap().unwrap();
        assert_eq!((kind, length), (Kind::Reply, 2));
        client.read_exact(&mut [0; 2]).await.unwrap();
        // In the middle of a frame.
        let (kind, length) = read_header(&mut client).await.unwrap().unwrap();
        assert_eq!(kind, Kind::Relayed);
        send(&mut client, &Frame::new(Kind::End, Vec::new())).await.unwrap();
        client.read_exact(&mut vec![0; length]).await.unwrap();
        loop {
            match read_header(&mut client).await.unwrap().unwrap() {
                (Kind::Relayed, length) => {
                    let mut bytes = vec![0; length];
                    client.read_exact(&mut bytes).await.unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 5));
                }
                (Kind::End, 0) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(relaying.await.unwrap().unwrap(), Some(Said::Returned)));
        sending.join().unwrap();
    }

    /// Returns the bytes in all frames.
    async fn received(client: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
        let mut got = Vec::new();
        while let Some((kind, length)) = read_header(client).await.unwrap() {
            assert_eq!(kind, Kind::Relayed);
            let mut bytes = vec![0; length];
            client.read_exact(&mut bytes).await.unwrap();
            got.extend(bytes);
        }
        got
    }
}

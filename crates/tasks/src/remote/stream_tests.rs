//! Tests of streams over real connections between the parts of a gang on two hosts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::peers::messages::ReceiversAt;
use crate::peers::stream_ends::KeptEnds;
use crate::remote::pass_on::buffer_bytes;

const GANG: u64 = 3;

/// Starts a host that serves streams.
async fn host() -> (KeptEnds, SocketAddr) {
    let store = Arc::new(StreamStore::default());
    let kept = store.keep("q");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let store = Arc::clone(&store);
            let stream = HostStream::accepted(stream);
            tokio::spawn(async move { serve(stream, &store).await });
        }
    });
    (kept, address)
}

fn at(address: SocketAddr) -> RelativeHost {
    RelativeHost::Host { name: "far".to_owned().try_into().unwrap(), address }
}

fn links(senders: &[u32], receivers: Vec<(RelativeHost, Vec<u32>)>) -> GangLinks {
    let receivers = receivers.into_iter().map(|(at, tasks)| ReceiversAt { at, tasks }).collect();
    let senders = senders.to_vec();
    GangLinks { gang: GANG, senders, receivers, buffer_bytes: buffer_bytes(1) }
}

async fn connected(ends: &StreamEnds, links: &GangLinks) -> Result<(), NotConnected> {
    let dial = |at: RelativeHost| {
        async move {
            let RelativeHost::Host { address, .. } = at else { panic!("{at:?} is dialled") };
            let refused = |error: std::io::Error| failed(&error);
            TcpStream::connect(address).await.map(HostStream::opened).map_err(refused)
        }
        .boxed()
    };
    connect(ends, "q", links, &dial).await
}

/// Takes the ends of a task, each with the task at its other end.
fn taken(ends: &StreamEnds, task: u32) -> Vec<(u32, UnixStream)> {
    let open = |(other, end)| {
        let stream = StdStream::from(end);
        stream.set_nonblocking(true).unwrap();
        (other, UnixStream::from_std(stream).unwrap())
    };
    let mut streams: Vec<_> = ends.take(GANG, task).into_iter().map(open).collect();
    streams.sort_by_key(|(other, _)| *other);
    streams
}

/// Returns the two ends of a stream from one host to another, and the guards that keep them.
async fn stream() -> (UnixStream, UnixStream, [KeptEnds; 2]) {
    let ((near, _), (far, address)) = (host().await, host().await);
    near.all().begin(GANG, [0]);
    far.all().begin(GANG, [1]);
    connected(near.all(), &links(&[0], vec![(at(address), vec![1])])).await.unwrap();
    let [(1, sends)] = <[_; 1]>::try_from(taken(near.all(), 0)).unwrap() else { panic!() };
    let [(0, receives)] = <[_; 1]>::try_from(taken(far.all(), 1)).unwrap() else { panic!() };
    (sends, receives, [near, far])
}

#[tokio::test]
async fn each_sender_is_connected_with_each_receiver_on_both_hosts() {
    let ((near, own), (far, address)) = (host().await, host().await);
    near.all().begin(GANG, [0, 2]);
    far.all().begin(GANG, [1, 3]);
    let from_near = links(&[0], vec![(RelativeHost::Here, vec![2]), (at(address), vec![3])]);
    let from_far = links(&[1], vec![(at(own), vec![2]), (RelativeHost::Here, vec![3])]);
    connected(near.all(), &from_near).await.unwrap();
    connected(far.all(), &from_far).await.unwrap();
    for (ends, sender) in [(near.all(), 0), (far.all(), 1)] {
        let streams = taken(ends, sender);
        assert_eq!(streams.iter().map(|(task, _)| *task).collect::<Vec<_>>(), [2, 3]);
        for (receiver, mut socket) in streams {
            socket.write_all(&[sender as u8, receiver as u8]).await.unwrap();
        }
    }
    for (ends, receiver) in [(near.all(), 2), (far.all(), 3)] {
        let streams = taken(ends, receiver);
        assert_eq!(streams.iter().map(|(task, _)| *task).collect::<Vec<_>>(), [0, 1]);
        for (sender, mut socket) in streams {
            let domain = rustix::net::sockopt::socket_domain(&socket).unwrap();
            // With a socket of the network, a worker could connect to something else.
            assert_eq!(domain, rustix::net::AddressFamily::UNIX);
            let mut found = Vec::new();
            socket.read_to_end(&mut found).await.unwrap();
            assert_eq!(found, [sender as u8, receiver as u8]);
        }
    }
}

#[tokio::test]
async fn a_sender_waits_for_a_receiver_that_does_not_read() {
    const ALL: usize = 32 << 20;
    // Of the sockets at both ends and of the connection between the hosts, and the kernel's own.
    const MOST: usize = 4 << 20;
    let (mut sends, mut receives, _kept) = stream().await;
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        while counted.load(Ordering::SeqCst) < ALL {
            sends.write_all(&[7; 64 << 10]).await.unwrap();
            counted.fetch_add(64 << 10, Ordering::SeqCst);
        }
    });
    // Until it waits.
    let mut before = usize::MAX;
    while written.load(Ordering::SeqCst) != before {
        before = written.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(before <= MOST, "{before} bytes are on their way");
    let mut read = 0;
    let mut piece = vec![0; 256 << 10];
    loop {
        let bytes = receives.read(&mut piece).await.unwrap();
        if bytes == 0 {
            break;
        }
        assert!(piece[..bytes].iter().all(|byte| *byte == 7));
        read += bytes;
        assert!(written.load(Ordering::SeqCst) <= read + MOST);
    }
    writing.await.unwrap();
    assert_eq!(read, ALL);
}

#[tokio::test]
async fn a_receiver_that_needs_no_more_rows_ends_the_sender() {
    let (mut sends, mut receives, _kept) = stream().await;
    sends.write_all(b"some").await.unwrap();
    receives.read_exact(&mut [0; 4]).await.unwrap();
    drop(receives);
    let error = loop {
        if let Err(error) = sends.write_all(&[0; 4096]).await {
            break error;
        }
    };
    let broken = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
    assert!(broken.contains(&error.kind()), "{error}");
    // One that sends nothing meanwhile.
    let (mut sends, receives, _kept) = stream().await;
    drop(receives);
    assert_eq!(sends.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_gang_that_is_over_ends_its_streams_on_either_host() {
    for ended in [0, 1] {
        let (mut sends, mut receives, kept) = stream().await;
        kept[ended].all().end(GANG);
        assert_eq!(receives.read(&mut [0]).await.unwrap(), 0);
        // Nobody has written to it.
        assert_eq!(sends.read(&mut [0]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_stream_that_no_task_waits_for_is_refused() {
    let ((near, _), (far, address)) = (host().await, host().await);
    near.all().begin(GANG, [0]);
    let asked = links(&[0], vec![(at(address), vec![1])]);
    let refused = connected(near.all(), &asked).await.unwrap_err();
    assert!(!refused.is_unreachable, "{refused:?}");
    far.all().begin(GANG, [1]);
    connected(near.all(), &asked).await.unwrap();
    // A second time, and on a host that is not there.
    assert!(connected(near.all(), &asked).await.is_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = at(listener.local_addr().unwrap());
    drop(listener);
    let refused = connected(near.all(), &links(&[0], vec![(nowhere, vec![1])])).await.unwrap_err();
    assert!(refused.is_unreachable);
    assert_eq!(refused.host.unwrap().as_str(), "far");
}

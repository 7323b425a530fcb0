//! Tests of connections between two hosts, and of their bytes on the wire.

use std::future::Future;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::checksum_errors;
use crate::checksum_errors::Damaged;

/// The two ends of a TCP connection, the first of which has opened it.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (opened, listener.accept().await.unwrap().0)
}

async fn streams() -> (HostStream, HostStream) {
    let (opened, accepted) = pair().await;
    (HostStream::opened(opened), HostStream::accepted(accepted))
}

/// Returns all bytes that a side sends, as they are on the wire.
async fn sent<F: Future<Output = ()>>(says: impl FnOnce(HostStream) -> F) -> Vec<u8> {
    let (opened, mut raw) = pair().await;
    let mut bytes = Vec::new();
    tokio::join!(says(HostStream::opened(opened)), async {
        raw.read_to_end(&mut bytes).await.unwrap();
    });
    bytes
}

/// Returns the bytes that a host takes of these before its connection ends.
async fn taken(wire: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let (mut raw, accepted) = pair().await;
    let mut stream = HostStream::accepted(accepted);
    let mut got = Vec::new();
    let (end, ()) = tokio::join!(stream.read_to_end(&mut got), async {
        raw.write_all(wire).await.unwrap();
        drop(raw);
    });
    (got, end)
}

fn rows(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

#[tokio::test]
async fn both_sides_get_what_the_other_one_sends() {
    let (mut near, mut far) = streams().await;
    let sizes = [1, 11, 4096, record::MAX_RECORD - 1, record::MAX_RECORD, 1 << 20];
    let serving = async {
        for size in sizes {
            let mut got = vec![0; size];
            far.read_exact(&mut got).await.unwrap();
            assert!(got == rows(size));
            far.write_all(&got).await.unwrap();
        }
        far.shutdown().await.unwrap();
    };
    let asking = async {
        let (mut from, mut to) = near.split();
        for size in sizes {
            let rows = rows(size);
            let mut got = vec![0; size];
            // A large one is answered while it is being sent.
            let (sent, read) = tokio::join!(to.write_all(&rows), from.read_exact(&mut got));
            sent.and(read.map(drop)).unwrap();
            assert!(got == rows);
        }
        let mut rest = Vec::new();
        assert_eq!(from.read_to_end(&mut rest).await.unwrap(), 0);
    };
    tokio::join!(serving, asking);
}

#[tokio::test]
async fn pieces_become_one_record() {
    let bytes = sent(async |mut stream| {
        let pieces = [IoSlice::new(b"he"), IoSlice::new(b""), IoSlice::new(b"llo")];
        assert_eq!(stream.write_vectored(&pieces).await.unwrap(), 5);
    })
    .await;
    let [preface, header] = [record::PREFACE.len(), record::HEADER];
    assert_eq!(bytes.len(), preface + header + 5);
    assert_eq!(&bytes[preface + header..], b"hello");
    assert_eq!(taken(&bytes).await.0, b"hello");
}

/// Changes bytes like a faulty network card: somewhere in a record, or in its header.
#[tokio::test]
async fn nothing_of_a_damaged_record_is_given() {
    let first = rows(5000);
    let bytes = sent(async |mut stream| {
        stream.write_all(&first).await.unwrap();
        stream.write_all(b"second").await.unwrap();
    })
    .await;
    let before = checksum_errors::connections();
    let second = bytes.len() - record::HEADER - 6;
    for at in [second, second + 4, second + 8, second + record::HEADER, bytes.len() - 1] {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        let (got, end) = taken(&wrong).await;
        assert!(got == first, "{at}");
        let error = end.unwrap_err();
        let damaged = error.get_ref().unwrap().downcast_ref::<Damaged>().unwrap();
        assert_eq!(damaged.from, Some(Ipv4Addr::LOCALHOST.into()));
        assert!(error.to_string().contains("data from 127.0.0.1 was damaged"), "{error}");
    }
    // Other tests of this process count too.
    assert!(
        checksum_errors::connections()[0].1 >= before.first().map_or(0, |(_, count)| *count) + 5
    );
}

#[tokio::test]
async fn a_connection_that_ends_within_a_record_is_broken() {
    let bytes = sent(async |mut stream| stream.write_all(b"hello").await.unwrap()).await;
    for cut in 1..bytes.len() {
        let (got, end) = taken(&bytes[..cut]).await;
        let is_between = cut == record::PREFACE.len();
        assert!(got.is_empty() && end.is_ok() == is_between, "{cut}");
    }
}

#[tokio::test]
async fn what_speaks_without_records_is_answered_without_them() {
    let (mut raw, accepted) = pair().await;
    let mut stream = HostStream::accepted(accepted);
    raw.write_all(b"GET /").await.unwrap();
    stream.spoken_to().await.unwrap();
    let mut said = [0; 5];
    stream.read_exact(&mut said).await.unwrap();
    stream.write_all(b"HTTP/").await.unwrap();
    drop(stream);
    let mut answer = String::new();
    raw.read_to_string(&mut answer).await.unwrap();
    assert_eq!((&said, &*answer), (b"GET /", "HTTP/"));
}

#[tokio::test]
async fn a_host_does_not_take_an_answer_without_records() {
    let (opened, mut raw) = pair().await;
    let mut stream = HostStream::opened(opened);
    raw.write_all(b"HTTP/1.1 400 Bad Request").await.unwrap();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.get_ref().unwrap().downcast_ref::<Damaged>().is_none());
}

#[tokio::test]
async fn a_record_is_sent_while_the_other_side_reads_it_slowly() {
    let (mut near, mut far) = streams().await;
    let rows = rows(8 << 20);
    let mut got = Vec::new();
    let reading = async {
        let mut piece = vec![0; 777];
        loop {
            match far.read(&mut piece).await.unwrap() {
                0 => break,
                count => got.extend_from_slice(&piece[..count]),
            }
        }
    };
    let sending = async {
        near.write_all(&rows).await.unwrap();
        near.shutdown().await.unwrap();
    };
    tokio::join!(reading, sending);
    assert!(got == rows);
}

#[tokio::test]
async fn a_write_that_is_given_up_in_the_middle_is_not_passed_off_as_another() {
    let (mut near, mut far) = streams().await;
    let rows = rows(record::MAX_RECORD);
    // Until the sockets are full.
    let mut whole = 0;
    while let Some(sent) = futures::FutureExt::now_or_never(near.write_all(&rows)) {
        sent.unwrap();
        whole += rows.len();
    }
    let other = vec![1; record::MAX_RECORD];
    let mut got = Vec::new();
    let (sent, read) = tokio::join!(
        async {
            // It goes on with the record that has begun, or says that it cannot.
            let sent = near.write_all(&other).await;
            drop(near);
            sent
        },
        far.read_to_end(&mut got)
    );
    assert!(sent.is_err() || read.is_err() || got.len() == whole + other.len());
    assert!(got[..whole].chunks(rows.len()).all(|record| record == rows));
    assert!(got.len() == whole || got[whole..] == other, "a mix of both was taken");
}

#[tokio::test]
async fn the_connection_beneath_begins_where_records_end() {
    let (mut near, mut far) = streams().await;
    near.write_all(b"upgrade").await.unwrap();
    let mut said = [0; 7];
    far.read_exact(&mut said).await.unwrap();
    far.write_all(b"yes").await.unwrap();
    let mut answer = [0; 3];
    near.read_exact(&mut answer).await.unwrap();
    let mut near = near.into_unverified().unwrap();
    let mut far = far.into_unverified().unwrap();
    near.write_all(b"plain").await.unwrap();
    drop(near);
    let mut got = String::new();
    far.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "plain");
}

//! Tests of connections with TLS between two hosts.

use std::net::Ipv4Addr;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;
use crate::membership::authority::Authority;
use crate::membership::{Anonymous, CertificateText};

struct Hosts {
    near: Credential,
    far: Credential,
    text: CertificateText,
    meant: Meant,
}

fn hosts() -> Hosts {
    let authority = Authority::make().unwrap().0;
    let text = |name: &str| {
        authority.for_control(&name.parse().unwrap(), 1, Duration::from_secs(3600)).unwrap()
    };
    let of = |text| Credential::certified(text, Anonymous::Refused).unwrap();
    let meant = Meant::Host("far".parse().unwrap());
    Hosts { near: of(text("near")), far: of(text("far")), text: text("near"), meant }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (opened, listener.accept().await.unwrap().0)
}

/// Returns the ends of a connection.
async fn streams() -> (HostStream, HostStream) {
    let hosts = hosts();
    let (opened, accepted) = pair().await;
    let mut far = HostStream::received(accepted, &hosts.far, &PeerSlot::default()).unwrap();
    let near = async {
        let mut near = HostStream::connected(opened, &hosts.meant, &hosts.near).await.unwrap();
        near.write_all(b"x").await.unwrap();
        near
    };
    let (near, said) = tokio::join!(near, far.read_u8());
    assert_eq!(said.unwrap(), b'x');
    (near, far)
}

fn rows(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

/// Sends all bytes in writes of several pieces, short and long ones.
async fn send(to: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) {
    let mut lengths = [1, 700, 40_000, 0, 16 << 10, 5, 200_000].iter().cycle();
    while !bytes.is_empty() {
        let mut rest = bytes;
        let pieces = lengths.by_ref().take(4).map(|length| {
            let piece;
            (piece, rest) = rest.split_at((*length).min(rest.len()));
            IoSlice::new(piece)
        });
        let pieces: Vec<_> = pieces.collect();
        let sent = to.write_vectored(&pieces).await.unwrap();
        assert!(sent > 0 || pieces.iter().all(|piece| piece.is_empty()));
        bytes = &bytes[sent..];
    }
    to.shutdown().await.unwrap();
}

/// Reads all bytes, at most so many at once.
async fn receive(from: &mut (impl AsyncRead + Unpin), at_once: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = vec![0; at_once];
    loop {
        match from.read(&mut piece).await.unwrap() {
            0 => return got,
            count => got.extend_from_slice(&piece[..count]),
        }
    }
}

#[tokio::test]
async fn both_directions_run_at_once_in_pieces_of_any_size() {
    let rows = rows((3 << 20) + 1);
    for at_once in [777, 16 << 10, 1 << 20] {
        let (mut near, mut far) = streams().await;
        let (mut from_far, mut to_far) = near.split();
        let (mut from_near, mut to_near) = far.split();
        let ((), at_near, (), at_far) = tokio::join!(
            send(&mut to_far, &rows),
            receive(&mut from_far, at_once),
            send(&mut to_near, &rows),
            receive(&mut from_near, at_once),
        );
        assert!(at_near == rows && at_far == rows, "{at_once}");
    }
}

#[tokio::test]
async fn an_end_that_was_not_announced_is_an_error() {
    for is_announced in [true, false] {
        let (mut near, mut far) = streams().await;
        near.write_all(b"rows").await.unwrap();
        match is_announced {
            true => drop(near),
            false => shutdown(&near, Shutdown::Both).unwrap(),
        }
        let mut got = Vec::new();
        let end = far.read_to_end(&mut got).await;
        assert_eq!((&*got, end.is_ok()), (&b"rows"[..], is_announced));
        // It is the same end for who asks again.
        assert_eq!(far.read_u8().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn nothing_is_written_after_the_end() {
    let (mut near, mut far) = streams().await;
    near.shutdown().await.unwrap();
    assert_eq!(near.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    // The other direction is open.
    far.write_all(b"rows").await.unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    far.shutdown().await.unwrap();
    let mut got = String::new();
    near.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "rows");
}

/// TLS of the library itself, with its own buffers, is at the other end.
#[tokio::test]
async fn keys_are_replaced_while_bytes_run_in_both_directions() {
    let Hosts { far, text, meant, .. } = hosts();
    let mut roots = RootCertStore::empty();
    let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
    roots.add(certificate(&text.authority)).unwrap();
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate(&text.certificate)],
                PrivateKeyDer::from_pem_slice(text.key.as_bytes()).unwrap(),
            )
            .unwrap();
    let (opened, accepted) = pair().await;
    let peer = PeerSlot::default();
    let mut far = HostStream::received(accepted, &far, &peer).unwrap();
    let rows = rows(300_000);
    let asking = async {
        let connector = TlsConnector::from(Arc::new(config));
        let mut near = connector.connect(meant.certified().unwrap(), opened).await.unwrap();
        for _ in 0..4 {
            near.write_all(&rows).await.unwrap();
            near.get_mut().1.refresh_traffic_keys().unwrap();
            let mut got = vec![0; rows.len()];
            near.read_exact(&mut got).await.unwrap();
            assert!(got == rows);
        }
        near.shutdown().await.unwrap();
    };
    let echoing = async {
        let mut got = vec![0; rows.len()];
        for _ in 0..4 {
            far.read_exact(&mut got).await.unwrap();
            far.write_all(&got).await.unwrap();
        }
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
    };
    tokio::join!(asking, echoing);
    assert_eq!(peer.certificate().unwrap().name.to_string(), "near");
}

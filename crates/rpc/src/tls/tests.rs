//! Tests of the listener with TLS, by clients of their own.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client};

use super::*;
use crate::server::{Bounds, Ending, TENANTS, serve};
use crate::upgrade::Incoming;
use crate::{Credential, Problem, Token, admit};

const HTTP: &[u8] = b"http/1.1";
const TOKEN: &str = "0123456789abcdef";
const CHAIN: &[u8] = include_bytes!("../../testdata/server.pem");
const KEY: &[u8] = include_bytes!("../../testdata/server.key");
const AUTHORITY: &[u8] = include_bytes!("../../testdata/authority.pem");
const OTHER: &[u8] = include_bytes!("../../testdata/other.pem");

async fn serving(bounds: Bounds) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = TlsListener::new(listener, &Certificate::new(CHAIN, KEY).unwrap());
    let router = Router::new().route("/", get(async || "hello")).route("/echo", get(echo));
    let router =
        router.layer(from_fn_with_state(Credential::from(Token::new(TOKEN).unwrap()), admit));
    tokio::spawn(serve(listener, router, bounds, Ending::default()));
    address
}

/// Sends back the received bytes, instead of HTTP.
async fn echo(request: Request) -> Result<Response, Problem> {
    let (answer, incoming) = Incoming::of(request)?;
    tokio::spawn(async move {
        let mut stream = incoming.stream().await.unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    Ok(answer)
}

async fn connect(
    address: SocketAddr,
    authority: &[u8],
    name: &'static str,
) -> io::Result<client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn trusting(address: SocketAddr) -> client::TlsStream<TcpStream> {
    connect(address, AUTHORITY, "localhost").await.unwrap()
}

fn request(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{headers}\r\n")
}

/// The answer, until the other side closes the connection. A reset is an end as well.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    // It may have ended before everything was sent.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.flush().await;
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_request_is_answered_over_tls() {
    let address = serving(TENANTS).await;
    let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("hello"), "{said}");
    let wrong = request("/", "connection: close\r\n").replace(TOKEN, "another-token-of-16");
    let said = answer(trusting(address).await, &wrong).await;
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
}

#[tokio::test]
async fn a_connection_leaves_http_over_tls() {
    let address = serving(TENANTS).await;
    let mut stream = trusting(address).await;
    let asked = request("/echo", "connection: upgrade\r\nupgrade: snowmelt\r\n");
    // The first bytes of the other protocol come with the request.
    let said = answer(&mut stream, &format!("{asked}hello")).await;
    assert!(said.starts_with("HTTP/1.1 101") && said.ends_with("hello"), "{said}");
}

#[tokio::test]
async fn a_client_does_not_trust_another_authority_or_name() {
    let address = serving(TENANTS).await;
    for (authority, name) in [(OTHER, "localhost"), (AUTHORITY, "example.org")] {
        assert!(connect(address, authority, name).await.is_err(), "{name}");
    }
    trusting(address).await;
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_to_new_clients() {
    let certificate = Certificate::new(CHAIN, KEY).unwrap();
    let refused = certificate.replace(OTHER, KEY).unwrap_err();
    assert!(refused.contains("do not fit"), "{refused}");
    assert!(certificate.replace(b"", KEY).is_err() && certificate.replace(CHAIN, b"").is_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = TlsListener::new(listener, &certificate);
    tokio::spawn(serve(listener, Router::new(), TENANTS, Ending::default()));
    // Wrong ones changed nothing.
    trusting(address).await;
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let text = own.cert.pem();
    certificate.replace(text.as_bytes(), own.signing_key.serialize_pem().as_bytes()).unwrap();
    assert!(connect(address, AUTHORITY, "localhost").await.is_err());
    connect(address, text.as_bytes(), "localhost").await.unwrap();
}

/// The protocol and the certificate that a client without trust gets.
async fn shown(
    address: SocketAddr,
    name: &'static str,
    protocols: &[&[u8]],
) -> io::Result<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsAll));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap();
    let shown = certificates[0].to_vec();
    if protocols == [PROOF_PROTOCOL] {
        assert_eq!(answer(stream, &request("/", "")).await, "", "no request is served");
    }
    Ok(shown)
}

#[derive(Debug)]
struct TrustsAll;

impl ServerCertVerifier for TrustsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn a_proof_of_a_name_is_shown_to_authorities_only() {
    let certificate = Certificate::awaited().unwrap();
    assert_eq!(certificate.validity(), None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = TlsListener::new(listener, &certificate);
    let router = Router::new().route("/", get(async || "hello"));
    tokio::spawn(serve(listener, router, TENANTS, Ending::default()));
    let proof = ProofOfName { name: "a.example".to_owned(), digest: [7; 32] };
    certificate.prove(&[proof]).unwrap();
    // Nobody else gets a certificate while there is none.
    for protocols in [&[][..], &[HTTP], &[PROOF_PROTOCOL, HTTP]] {
        shown(address, "a.example", protocols).await.unwrap_err();
    }
    shown(address, "b.example", &[PROOF_PROTOCOL]).await.unwrap_err();
    let proved = shown(address, "a.example", &[PROOF_PROTOCOL]).await.unwrap();
    let has = |part: &[u8]| proved.windows(part.len()).any(|found| found == part);
    assert!(has(&[7; 32]) && has(b"a.example"), "the digest and the name");

    certificate.replace(CHAIN, KEY).unwrap();
    let own = CertificateDer::from_pem_slice(CHAIN).unwrap().to_vec();
    for protocols in [&[][..], &[HTTP], &[PROOF_PROTOCOL, HTTP]] {
        assert_eq!(shown(address, "a.example", protocols).await.unwrap(), own);
    }
    assert_eq!(shown(address, "A.Example", &[PROOF_PROTOCOL]).await.unwrap(), proved);
    certificate.prove(&[]).unwrap();
    shown(address, "a.example", &[PROOF_PROTOCOL]).await.unwrap_err();
}

#[test]
fn the_validity_of_a_certificate_is_known() {
    let certificate = Certificate::new(CHAIN, KEY).unwrap();
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2024, 2, 29);
    params.not_after = rcgen::date_time_ymd(2051, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let text = params.self_signed(&key).unwrap().pem();
    certificate.replace(text.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let expected = Validity { from: at(1_709_164_800), until: at(2_556_144_000) };
    assert_eq!(certificate.validity(), Some(expected));
}

#[tokio::test]
async fn plain_http_is_not_served() {
    let address = serving(TENANTS).await;
    let plain = TcpStream::connect(address).await.unwrap();
    let said = answer(plain, &request("/", "")).await;
    assert!(!said.contains("HTTP") && !said.contains("hello"), "{said}");
    trusting(address).await;
}

#[tokio::test]
async fn a_header_that_is_too_long_is_refused() {
    let address = serving(TENANTS).await;
    let long = format!("x-long: {}\r\n", "x".repeat(1 << 20));
    let said = answer(trusting(address).await, &request("/", &long)).await;
    assert!(!said.contains("200 OK"), "{said}");
    trusting(address).await;
}

/// The first bytes of a handshake.
async fn begun(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    stream
}

#[tokio::test]
async fn a_slow_client_delays_no_other() {
    let address = serving(TENANTS).await;
    let slow = (TcpStream::connect(address).await.unwrap(), begun(address).await);
    let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    drop(slow);
}

#[tokio::test]
async fn a_slow_client_is_disconnected() {
    let bounds = Bounds { idle: Duration::from_millis(50), ..TENANTS };
    let address = serving(bounds).await;
    for stream in [TcpStream::connect(address).await.unwrap(), begun(address).await] {
        assert_eq!(answer(stream, "").await, "");
    }
    // It sends a part of its request, unless its handshake was too slow already.
    if let Ok(stream) = connect(address, AUTHORITY, "localhost").await {
        assert!(!answer(stream, "GET / HTTP/1.1\r\n").await.contains("200"));
    }
}

#[tokio::test]
async fn unauthenticated_clients_are_few() {
    let bounds = Bounds { unauthenticated: Some(2), ..TENANTS };
    let address = serving(bounds).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(answer(silent.remove(0), "").await, "");
}

#[test]
fn files_that_are_not_a_certificate_and_its_key_are_refused() {
    for (chain, key, reason) in [
        (&b""[..], KEY, "no PEM certificate"),
        (CHAIN, &b""[..], "the key cannot be read"),
        (OTHER, KEY, "do not fit each other"),
    ] {
        let refused = Certificate::new(chain, key).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

//! Tests of connections between processes with certificates.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::Extension;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, extract::Request};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::authority::{Authority, HostKey};
use super::*;
use crate::client::NO_BODY;
use crate::server::{Ending, HostListener, NETWORK, serve};
use crate::upgrade::{self, Incoming};
use crate::{Client, HostTarget, Problem, admit, of_control};

const LIFE: Duration = Duration::from_secs(3600);

fn name(name: &str) -> HostName {
    name.parse().unwrap()
}

fn authority() -> Authority {
    Authority::make().unwrap().0
}

fn text(authority: &Authority, of: &str, serial: u64) -> CertificateText {
    let key = HostKey::make().unwrap();
    let certificate = authority.certify(&key.request().unwrap(), &name(of), serial, LIFE).unwrap();
    let authority = authority.certificate().to_owned();
    CertificateText { certificate, key: key.text(), authority }
}

fn host(authority: &Authority, of: &str, serial: u64) -> Credential {
    Credential::certified(text(authority, of, serial), Anonymous::Refused).unwrap()
}

fn control(authority: &Authority) -> Credential {
    let text = authority.for_control(&name("one"), 1, LIFE).unwrap();
    Credential::certified(text, Anonymous::MayJoin).unwrap()
}

fn target(address: SocketAddr, meant: Meant, credential: &Credential) -> Arc<HostTarget> {
    Arc::new(HostTarget { address, meant, credential: credential.clone() })
}

/// Says who asks, gives back bytes, takes orders of control, and lets others join.
async fn serving(credential: &Credential) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let order = Router::new()
        .route("/order", get(async || "done"))
        .layer(from_fn_with_state(credential.clone(), of_control));
    let router = Router::new()
        .route("/who", get(who))
        .route("/echo", get(echo))
        .merge(order)
        .layer(from_fn_with_state(credential.clone(), admit))
        .route("/join", post(async || axum::Json("joined")));
    let listener = HostListener::new(listener, credential.clone());
    tokio::spawn(serve(listener, router, NETWORK, Ending::default()));
    address
}

async fn who(Extension(peer): Extension<PeerSlot>) -> axum::Json<String> {
    let peer = peer.certificate().unwrap();
    axum::Json(format!("{} {} {}", peer.name, peer.serial, peer.is_control))
}

async fn echo(request: Request) -> Result<Response, Problem> {
    let (answer, incoming) = Incoming::of(request)?;
    tokio::spawn(async move {
        let stream = incoming.connection().await.unwrap();
        let mut stream = stream.detach().unwrap().attach().unwrap();
        stream.spoken_to().await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    });
    Ok(answer)
}

async fn ask(target: Arc<HostTarget>, path: &str) -> Result<String, ErrorReport> {
    Client::host(target).json(Method::GET, path, NO_BODY).await
}

#[tokio::test]
async fn each_side_knows_the_other_one_by_its_certificate() {
    let ours = authority();
    let address = serving(&host(&ours, "Two", 7)).await;
    let three = host(&ours, "three", u64::MAX);
    let said = ask(target(address, Meant::Host(name("Two")), &three), "/who").await.unwrap();
    assert_eq!(said, format!("three {} false", u64::MAX));
    for wrong in [Meant::Host(name("two")), Meant::Host(name("three")), Meant::Control] {
        let refused = ask(target(address, wrong.clone(), &three), "/who").await.unwrap_err();
        assert_eq!(refused.code, Code::CERTIFICATE.code, "{wrong}: {refused:?}");
    }
    let at_control = serving(&control(&ours)).await;
    for right in [Meant::Control, Meant::Host(name("one"))] {
        ask(target(at_control, right, &three), "/who").await.unwrap();
    }
}

#[tokio::test]
async fn nobody_is_served_without_a_certificate_of_the_authority() {
    let ours = authority();
    let address = serving(&host(&ours, "two", 7)).await;
    let two = Meant::Host(name("two"));
    // Each of these would take the other end's certificate.
    let mut stranger = text(&authority(), "two", 7);
    stranger.authority = ours.certificate().to_owned();
    let stranger = Credential::certified(stranger, Anonymous::Refused).unwrap();
    let joining = Credential::joining(ours.fingerprint().to_owned()).unwrap();
    for wrong in [stranger, joining] {
        let refused = ask(target(address, two.clone(), &wrong), "/who").await.unwrap_err();
        assert_eq!(refused.code, Code::HOST_REFUSED.code, "{refused:?}");
    }
    let token = Token::new("0123456789abcdef").unwrap();
    let plain = Client::tcp(address, token).send(Method::GET, "/who", NO_BODY).await;
    plain.unwrap_err();
    let mut raw = TcpStream::connect(address).await.unwrap();
    raw.write_all(b"GET /who HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = raw.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
}

#[tokio::test]
async fn a_host_that_joins_knows_the_authority_by_its_fingerprint_and_may_do_nothing_else() {
    let ours = authority();
    let address = serving(&control(&ours)).await;
    let joining = Credential::joining(ours.fingerprint().to_owned()).unwrap();
    let client = Client::host(target(address, Meant::Control, &joining));
    let joined: String = client.json(Method::POST, "/join", NO_BODY).await.unwrap();
    assert_eq!(joined, "joined");
    let refused = ask(target(address, Meant::Control, &joining), "/who").await.unwrap_err();
    assert_eq!(refused.code, Code::HOST_REFUSED.code);
    let other = Credential::joining(authority().fingerprint().to_owned()).unwrap();
    let refused = ask(target(address, Meant::Control, &other), "/join").await.unwrap_err();
    assert_eq!(refused.code, Code::CERTIFICATE.code);
    // A host of the cluster is not control.
    let fake = serving(&host(&ours, "two", 7)).await;
    let refused = ask(target(fake, Meant::Control, &joining), "/join").await.unwrap_err();
    assert_eq!(refused.code, Code::CERTIFICATE.code);
}

#[tokio::test]
async fn only_control_gives_orders() {
    let ours = authority();
    let address = serving(&host(&ours, "two", 7)).await;
    let two = Meant::Host(name("two"));
    let sent = async |by: &Credential| {
        let client = Client::host(target(address, two.clone(), by));
        client.no_content(Method::GET, "/order", NO_BODY).await
    };
    sent(&control(&ours)).await.unwrap();
    let refused = sent(&host(&ours, "three", 8)).await.unwrap_err();
    assert_eq!(refused.code, Code::HOST_REFUSED.code);
    // Control's own name alone does not make one.
    assert!(sent(&host(&ours, "one", 8)).await.is_err());
}

#[tokio::test]
async fn bytes_of_a_connection_that_left_http_come_as_they_were_sent() {
    let ours = authority();
    let address = serving(&host(&ours, "two", 7)).await;
    let three = target(address, Meant::Host(name("two")), &host(&ours, "three", 8));
    for size in [1, 16 << 10, (3 << 20) + 1] {
        let sent: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        let mut stream = upgrade::connect(&three, "/echo").await.unwrap();
        let mut got = Vec::new();
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == sent, "{size}");
    }
}

#[tokio::test]
async fn another_process_speaks_through_a_descriptor() {
    let ours = authority();
    let address = serving(&host(&ours, "two", 7)).await;
    let three = target(address, Meant::Host(name("two")), &host(&ours, "three", 8));
    let stream = upgrade::connect(&three, "/echo").await.unwrap();
    let descriptor = stream.into_descriptor().unwrap();
    let near = std::os::unix::net::UnixStream::from(descriptor);
    let mut near = tokio::net::UnixStream::from_std(near).unwrap();
    near.write_all(b"hello").await.unwrap();
    near.shutdown().await.unwrap();
    let mut said = String::new();
    near.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "hello");
}

#[tokio::test]
async fn a_removed_host_is_refused_and_its_connections_end() {
    let ours = authority();
    let two = host(&ours, "two", 7);
    let address = serving(&two).await;
    let old = target(address, Meant::Host(name("two")), &host(&ours, "three", 8));
    let new = target(address, Meant::Host(name("two")), &host(&ours, "three", 9));
    let other = target(address, Meant::Host(name("two")), &host(&ours, "four", 3));
    let kept = Client::host(Arc::clone(&old));
    kept.json::<String>(Method::GET, "/who", NO_BODY).await.unwrap();
    let mut open = upgrade::connect(&old, "/echo").await.unwrap();
    let mut others = upgrade::connect(&other, "/echo").await.unwrap();
    open.write_all(b"x").await.unwrap();
    two.refuse(BTreeMap::from([(name("three"), 9)]));
    let mut rest = Vec::new();
    assert!(open.read_to_end(&mut rest).await.is_err(), "{rest:?}");
    // Its connection has ended, and so does the next one.
    let again = async || kept.json::<String>(Method::GET, "/who", NO_BODY).await.unwrap_err();
    again().await;
    assert_eq!(again().await.code, Code::HOST_REMOVED.code);
    ask(new, "/who").await.unwrap();
    others.write_all(b"x").await.unwrap();
    others.shutdown().await.unwrap();
    others.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"x");
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_on_new_connections() {
    let ours = authority();
    let address = serving(&control(&ours)).await;
    let three = host(&ours, "three", 8);
    let at = target(address, Meant::Control, &three);
    let said = ask(Arc::clone(&at), "/who").await.unwrap();
    assert_eq!(said, "three 8 false");
    three.replace(text(&ours, "three", 9)).unwrap();
    assert_eq!(ask(at, "/who").await.unwrap(), "three 9 false");
}

#[test]
fn a_request_for_a_certificate_is_signed_by_its_own_key() {
    let ours = authority();
    let right = HostKey::make().unwrap().request().unwrap();
    let other = HostKey::make().unwrap().request().unwrap();
    ours.certify(&right, &name("two"), 1, LIFE).unwrap();
    for wrong in [
        authority::SigningRequest { key: other.key.clone(), ..right.clone() },
        authority::SigningRequest { proof: String::new(), ..right.clone() },
        authority::SigningRequest { key: "é".repeat(65), ..right.clone() },
        authority::SigningRequest { key: String::new(), ..right },
    ] {
        assert!(ours.certify(&wrong, &name("two"), 1, LIFE).is_err());
    }
}

#[test]
fn an_authority_is_read_again_as_the_same() {
    let (ours, key) = Authority::make().unwrap();
    let again = Authority::read(ours.certificate(), &key).unwrap();
    assert_eq!(ours.fingerprint(), again.fingerprint());
    let text = text(&again, "two", 1);
    assert!(Meant::Host(name("two")).is_named_by(&text.certificate));
    assert!(!Meant::Control.is_named_by(&text.certificate));
    Credential::certified(text, Anonymous::Refused).unwrap();
}

#[tokio::test]
async fn a_certificate_ends() {
    let ours = authority();
    let address = serving(&control(&ours)).await;
    let key = HostKey::make().unwrap();
    let request = key.request().unwrap();
    let certificate = ours.certify(&request, &name("two"), 1, Duration::ZERO).unwrap();
    let authority = ours.certificate().to_owned();
    let text = CertificateText { certificate, key: key.text(), authority };
    let ended = Credential::certified(text, Anonymous::Refused).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = ask(target(address, Meant::Control, &ended), "/who").await.unwrap_err();
    assert_eq!(refused.code, Code::HOST_REFUSED.code, "{refused:?}");
}

#[tokio::test]
async fn damaged_bytes_end_a_connection_and_count_for_their_host() {
    let ours = authority();
    let address = serving(&host(&ours, "two", 7)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let before = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut near = listener.accept().await.unwrap().0;
        let mut far = TcpStream::connect(address).await.unwrap();
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = far.split();
        let damaging = async {
            let mut passed = 0;
            let mut piece = vec![0; 4096];
            while let Ok(read @ 1..) = from_far.read(&mut piece).await {
                // In the middle of the answer.
                if (passed..passed + read).contains(&100_000) {
                    piece[100_000 - passed] ^= 1;
                }
                passed += read;
                if to_near.write_all(&piece[..read]).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::join!(tokio::io::copy(&mut from_near, &mut to_far), damaging);
    });
    let three = target(before, Meant::Host(name("two")), &host(&ours, "three", 8));
    let mut stream = upgrade::connect(&three, "/echo").await.unwrap();
    stream.write_all(&vec![7; 1 << 20]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    let ended = stream.read_to_end(&mut got).await.unwrap_err();
    assert!(crate::checksum_errors::is_damage(&ended), "{ended:?}");
    assert!(got.len() < 100_000 && got.iter().all(|byte| *byte == 7));
    let again = stream.read_u8().await.unwrap_err();
    assert!(crate::checksum_errors::is_damage(&again), "{again:?}");
    let counted = crate::checksum_errors::connections();
    assert!(counted.iter().any(|(from, _)| from.is_loopback()), "{counted:?}");
}

//! Tests of the server over real connections: bounds, shares and ends.

use std::net::SocketAddr;

use crate::{Credential, HostTarget, Meant, Token, admit};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;

const TOKEN: &str = "0123456789abcdef";
const HELLO: &str = "GET / HTTP/1.1\r\nhost: x\r\n";

fn cluster(listener: TcpListener) -> HostListener {
    HostListener::new(listener, Token::new(TOKEN).unwrap())
}

async fn serving(bounds: Bounds, router: Router) -> (SocketAddr, Ending) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = Ending::default();
    tokio::spawn(serve(cluster(listener), router, bounds, ending.clone()));
    (address, ending)
}

fn guarded() -> Router {
    let credential = Credential::from(Token::new(TOKEN).unwrap());
    Router::new().route("/", get(async || "hello")).layer(from_fn_with_state(credential, admit))
}

fn with_token() -> String {
    format!("{HELLO}authorization: Bearer {TOKEN}\r\n\r\n")
}

async fn first_line(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = vec![0; 4096];
    let length = stream.read(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    said.lines().next().unwrap_or_default().to_owned()
}

/// Waits until the other side has closed the connection.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let bounds = Bounds { idle: Duration::from_millis(50), ..NETWORK };
    let (address, _ending) = serving(bounds, guarded()).await;
    closed(TcpStream::connect(address).await.unwrap()).await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(HELLO.as_bytes()).await.unwrap();
    closed(slow).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    assert_eq!(first_line(&mut idle, &with_token()).await, "HTTP/1.1 200 OK");
    closed(idle).await;
}

/// Before there was a bound, 15,000 silent connections were all kept.
#[tokio::test]
async fn unauthenticated_connections_are_few_and_block_no_others() {
    let bounds = Bounds { unauthenticated: Some(4), ..NETWORK };
    let (address, _ending) = serving(bounds, guarded()).await;
    let mut member = TcpStream::connect(address).await.unwrap();
    assert_eq!(first_line(&mut member, &with_token()).await, "HTTP/1.1 200 OK");
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut late = TcpStream::connect(address).await.unwrap();
    assert_eq!(first_line(&mut late, &with_token()).await, "HTTP/1.1 200 OK");
    assert_eq!(first_line(&mut member, &with_token()).await, "HTTP/1.1 200 OK");
    for stream in silent.drain(..36) {
        closed(stream).await;
    }
}

/// Connects from an address of this machine.
async fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

/// Once, a host that connected a thousand times in a second took the places of all others.
#[tokio::test]
async fn connections_of_one_source_take_no_place_of_another() {
    let bounds = Bounds { unauthenticated: Some(4), ..NETWORK };
    let (address, _ending) = serving(bounds, guarded()).await;
    let mut distant = connect_from([127, 0, 0, 2], address).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for stream in silent.drain(..37) {
        closed(stream).await;
    }
    assert_eq!(first_line(&mut distant, &with_token()).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_holder_of_a_token_has_a_share_of_the_connections() {
    let bounds = Bounds { of_holder: Some(2), ..NETWORK };
    let (address, _ending) = serving(bounds, guarded()).await;
    let mut two = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut stream, &with_token()).await, "HTTP/1.1 200 OK");
        two.push(stream);
    }
    let mut third = TcpStream::connect(address).await.unwrap();
    assert_eq!(first_line(&mut third, &with_token()).await, "HTTP/1.1 503 Service Unavailable");
    closed(third).await;
    // Further requests on the others, and other holders, are served.
    assert_eq!(first_line(&mut two[0], &with_token()).await, "HTTP/1.1 200 OK");
    let mut other = connect_from([127, 0, 0, 2], address).await;
    assert_eq!(first_line(&mut other, &with_token()).await, "HTTP/1.1 200 OK");
    drop(two);
    loop {
        let mut again = TcpStream::connect(address).await.unwrap();
        if first_line(&mut again, &with_token()).await == "HTTP/1.1 200 OK" {
            break;
        }
    }
}

/// Before there was a bound, 2,048 bodies that never ended kept all connections.
#[tokio::test]
async fn a_body_that_comes_too_slowly_is_given_up() {
    let pace = Pace { grace: Duration::from_millis(50), bytes_per_second: 1 << 20 };
    let bounds = Bounds { pace: Some(pace), ..NETWORK };
    let length = async |body: crate::body::RequestBody| body.0.len().to_string();
    let (address, _ending) = serving(bounds, Router::new().route("/", post(length))).await;
    for begin in
        ["content-length: 100\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]
    {
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(format!("POST / HTTP/1.1\r\nhost: x\r\n{begin}").as_bytes()).await.unwrap();
        let mut said = String::new();
        slow.read_to_string(&mut said).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        assert!(said.contains("comes too slowly") && !said.contains("buffer"), "{said}");
    }
    let mut whole = TcpStream::connect(address).await.unwrap();
    let said = first_line(&mut whole, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(said.await, "HTTP/1.1 200 OK");
}

#[test]
fn addresses_of_one_host_are_one_source() {
    let source = |text: &str| source(text.parse().unwrap());
    assert_eq!(source("2001:db8::1:2:3:4"), source("2001:db8::ffff:2:3:4"));
    assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
}

#[tokio::test]
async fn a_request_without_the_token_closes_its_connection() {
    let (address, _ending) = serving(NETWORK, guarded()).await;
    let mut unknown = TcpStream::connect(address).await.unwrap();
    let long = format!("{HELLO}content-length: 1000000000\r\n\r\n");
    assert_eq!(first_line(&mut unknown, &long).await, "HTTP/1.1 401 Unauthorized");
    closed(unknown).await;
}

#[tokio::test]
async fn a_running_request_ends_before_the_server() {
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let tell = Arc::clone(&begun);
    let wait = Arc::clone(&go);
    let slow = async move || {
        tell.notify_one();
        wait.notified().await;
        "done"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = Ending::default();
    let router = Router::new().route("/", get(slow));
    let server = tokio::spawn(serve(cluster(listener), router, LOCAL, ending.clone()));
    let mut running = TcpStream::connect(address).await.unwrap();
    let idle = TcpStream::connect(address).await.unwrap();
    running.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
    begun.notified().await;
    ending.asked.cancel();
    closed(idle).await;
    go.notify_one();
    let mut said = String::new();
    running.read_to_string(&mut said).await.unwrap();
    assert!(said.ends_with("done"), "{said}");
    server.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// The last frame of a query's answer says why the query has failed.
#[tokio::test]
async fn an_answer_that_is_being_sent_ends_with_its_last_part_when_the_time_is_over() {
    let ending = Ending::default();
    let over = ending.over.clone();
    let answer = async move || {
        let first = futures::stream::once(async { Ok::<_, io::Error>("first") });
        let last = over.cancelled_owned().map(|()| Ok("last"));
        Body::from_stream(first.chain(futures::stream::once(last)))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(answer));
    let server = tokio::spawn(serve(cluster(listener), router, LOCAL, ending.clone()));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"first\r\n") {
        assert!(client.read_buf(&mut said).await.unwrap() > 0);
    }
    ending.asked.cancel();
    ending.over.cancel();
    client.read_to_end(&mut said).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.ends_with("last\r\n0\r\n\r\n"), "{said}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_is_aborted_after_the_grace_time() {
    let begun = Arc::new(Notify::new());
    let tell = Arc::clone(&begun);
    let never = async move || {
        tell.notify_one();
        std::future::pending::<&str>().await
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = Ending::default();
    let router = Router::new().route("/", get(never));
    let server = tokio::spawn(serve(cluster(listener), router, LOCAL, ending.clone()));
    let mut running = TcpStream::connect(address).await.unwrap();
    running.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
    begun.notified().await;
    ending.asked.cancel();
    ending.over.cancel();
    server.await.unwrap();
    closed(running).await;
}

/// Checks that a leader which was paused orders nothing once a later one has, and that it learns of
/// the later one from answers.
#[tokio::test]
async fn requests_of_an_earlier_leader_are_refused() {
    let of_host = credential();
    let router = Router::new().route("/", get(async || axum::Json(1)));
    let router = router.layer(from_fn_with_state(of_host.clone(), admit));
    let (address, _ending) = serving(NETWORK, router).await;
    let client = |credential| {
        crate::Client::host(Arc::new(HostTarget { address, meant: Meant::Control, credential }))
    };
    let leader = |term| client(credential_of(term));
    let asked = async |client: &crate::Client| {
        client.json::<u8>(http::Method::GET, "/", crate::client::NO_BODY).await
    };
    let earlier = leader(7);
    assert_eq!(asked(&earlier).await.unwrap(), 1);
    assert_eq!(asked(&leader(9)).await.unwrap(), 1);
    let refused = asked(&earlier).await.unwrap_err();
    assert_eq!(refused.code, snowmelt_types::Code::LEADER_OTHER.code);
    let credential_of_7 = credential_of(7);
    let target = HostTarget { address, meant: Meant::Control, credential: credential_of_7 };
    assert!(crate::upgrade::connect(&target, "/").await.is_err());
    let without = client(credential());
    assert_eq!(asked(&without).await.unwrap(), 1, "hosts among each other have no term");
    of_host.terms().lead(8);
    let member = client(credential());
    assert_eq!(asked(&member).await.unwrap(), 1);
    of_host.terms().lead(6);
    let refused = asked(&member).await.unwrap_err();
    assert_eq!(refused.code, snowmelt_types::Code::LEADER_OTHER.code);
}

fn credential() -> Credential {
    Credential::from(Token::new(TOKEN).unwrap())
}

fn credential_of(term: u64) -> Credential {
    let credential = credential();
    credential.terms().lead(term);
    credential
}

//! The client against the server of this crate, over a unix socket and over TCP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::Method;
use snowmelt_rpc::body::{self, json};
use snowmelt_rpc::client::{Lines, NO_BODY};
use snowmelt_rpc::server::{self, AcceptedConnection, Ending, Listener};
use snowmelt_rpc::{Client, Credential, Peer, Problem, RequestId, Token, admit};
use snowmelt_types::{Code, ErrorReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;

const TOKEN: &str = "0123456789abcdef";

/// A listener that counts its connections.
struct Counted<L>(L, Arc<AtomicUsize>);

impl<L: Listener + Sync> Listener for Counted<L> {
    type Stream = L::Stream;

    async fn accept(&self) -> std::io::Result<AcceptedConnection<L::Stream>> {
        let accepted = self.0.accept().await?;
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(accepted)
    }
}

fn serve_unix(socket: &Path, router: Router) -> Arc<AtomicUsize> {
    let accepted = Arc::default();
    let listener = Counted(UnixListener::bind(socket).unwrap(), Arc::clone(&accepted));
    tokio::spawn(server::serve(listener, router, server::LOCAL, Ending::default()));
    accepted
}

async fn serve_tcp(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let credential = Credential::from(Token::new(TOKEN).unwrap());
    let router = router.layer(axum::middleware::from_fn_with_state(credential.clone(), admit));
    let listener = server::HostListener::new(listener, credential);
    tokio::spawn(server::serve(listener, router, server::NETWORK, Ending::default()));
    address
}

fn add() -> Router {
    let add = async |body::RequestBody(body): body::RequestBody| {
        let numbers: Vec<u32> = body::parse(&body)?;
        json(StatusCode::OK, &numbers.iter().sum::<u32>())
    };
    Router::new().route("/add", post(add))
}

#[tokio::test]
async fn requests_one_after_another_share_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    let accepted = serve_unix(&socket, add());
    let client = Client::unix(&socket);
    for _ in 0..10 {
        let sum: u32 = client.json(Method::POST, "/add", Some(&[1, 2])).await.unwrap();
        assert_eq!(sum, 3);
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_server_that_was_started_again_is_reached_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    let client = Client::unix(&socket);
    for _ in 0..3 {
        let ending = Ending::default();
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = server::serve(listener, add(), server::LOCAL, ending.clone());
        let serving = tokio::spawn(serving);
        let sum: u32 = client.json(Method::POST, "/add", Some(&[1])).await.unwrap();
        assert_eq!(sum, 1);
        ending.asked.cancel();
        serving.await.unwrap();
        std::fs::remove_file(&socket).unwrap();
    }
    let error = client.json::<u32>(Method::POST, "/add", Some(&[1])).await.unwrap_err();
    assert_eq!(error.code, Code::SERVER_UNREACHABLE.code);
    assert!(error.retryable);
    assert!(error.message.contains("No such file or directory"), "{error}");
}

#[tokio::test]
async fn an_error_arrives_as_it_was_sent() {
    let report = ErrorReport::new(Code::FUNCTION_MISSING, "there is no function `f`")
        .hint("`snowmelt fn ls` lists them");
    let sent = report.clone();
    let refuse = async move || -> Problem { sent.clone().into() };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    serve_unix(&socket, Router::new().route("/f", get(refuse)).merge(add()));
    let client = Client::unix(&socket);
    assert_eq!(client.json::<()>(Method::GET, "/f", NO_BODY).await.unwrap_err(), report);
    let wrong = client.json::<u32>(Method::POST, "/add", Some(&["x"])).await.unwrap_err();
    assert_eq!(wrong.code, Code::OPTION.code);
    let unknown = client.json::<u32>(Method::GET, "/none", NO_BODY).await.unwrap_err();
    assert_eq!(unknown.code, Code::PROTOCOL.code, "a 404 without a problem document");
}

#[tokio::test]
async fn a_request_has_the_header_of_its_client_and_the_user_of_its_connection() {
    let show = async |Extension(peer): Extension<Peer>, headers: HeaderMap| {
        let header = headers.get("x-name").map(|value| value.to_str().unwrap().to_owned());
        let user = matches!(peer, Peer::User(user) if user == rustix::process::geteuid().as_raw());
        json(StatusCode::OK, &(user, header))
    };
    let router = Router::new().route("/", get(show));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    serve_unix(&socket, router.clone());
    let local = Client::unix(&socket);
    let shown: (bool, Option<String>) = local.json(Method::GET, "/", NO_BODY).await.unwrap();
    assert_eq!(shown, (true, None));
    let named = local.with_header("x-name", Some("ada"));
    let shown: (bool, Option<String>) = named.json(Method::GET, "/", NO_BODY).await.unwrap();
    assert_eq!(shown, (true, Some("ada".to_owned())));
    let remote = Client::tcp(serve_tcp(router).await, Token::new(TOKEN).unwrap());
    let shown: (bool, Option<String>) = remote.json(Method::GET, "/", NO_BODY).await.unwrap();
    assert_eq!(shown, (false, None));
}

#[tokio::test]
async fn only_a_client_with_the_token_is_admitted() {
    let address = serve_tcp(add()).await;
    let good = Client::tcp(address, Token::new(TOKEN).unwrap());
    let bad = Client::tcp(address, Token::new("another-token-of-16").unwrap());
    let sum: u32 = good.json(Method::POST, "/add", Some(&[4])).await.unwrap();
    assert_eq!(sum, 4);
    let error = bad.json::<u32>(Method::POST, "/add", Some(&[4])).await.unwrap_err();
    assert_eq!(error.code, Code::HOST_REFUSED.code);
    assert!(!error.retryable, "it would be refused again");
}

/// Sends when it is dropped.
struct OnDrop(mpsc::Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        // The test has ended if the channel is full or closed.
        let _ = self.0.try_send(());
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_ends_on_the_server() {
    let (begun, mut has_begun) = mpsc::channel(1);
    let (ended, mut has_ended) = mpsc::channel(1);
    let never = async move |State(()): State<()>| {
        let _dropped = OnDrop(ended.clone());
        begun.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    serve_unix(&socket, Router::new().route("/", get(never)).with_state(()));
    let client = Client::unix(&socket);
    let asked = client.clone();
    let asking = tokio::spawn(async move { asked.send(Method::GET, "/", NO_BODY).await });
    has_begun.recv().await.unwrap();
    asking.abort();
    has_ended.recv().await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_dropped_ends_on_the_server() {
    let (ended, mut has_ended) = mpsc::channel(1);
    let lines = async move || {
        let dropped = OnDrop(ended.clone());
        axum::body::Body::from_stream(futures::stream::unfold(0, move |line| {
            let _ = &dropped;
            async move { Some((Ok::<_, std::io::Error>(format!("{line}\n")), line + 1)) }
        }))
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    serve_unix(&socket, Router::new().route("/", get(lines)));
    let response = Client::unix(&socket).send(Method::GET, "/", NO_BODY).await.unwrap();
    let mut lines = Lines::<u32>::new(response);
    for line in 0..1000 {
        assert_eq!(lines.next().await.unwrap(), Some(line));
    }
    drop(lines);
    has_ended.recv().await.unwrap();
}

#[tokio::test]
async fn requests_that_follow_from_a_request_have_its_identifier() {
    let inner = async || RequestId::current().unwrap().to_string();
    let address = serve_tcp(Router::new().route("/inner", get(inner))).await;
    let outer = async move || {
        let client = Client::tcp(address, Token::new(TOKEN).unwrap());
        let response = client.send(Method::GET, "/inner", NO_BODY).await.unwrap();
        client.whole(response).await.unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    serve_unix(&socket, Router::new().route("/outer", get(outer)));
    let client = Client::unix(&socket);
    let id = RequestId::new();
    let response = id.scope(client.send(Method::GET, "/outer", NO_BODY)).await.unwrap();
    assert_eq!(response.headers()["x-request-id"], id.to_string());
    assert_eq!(client.whole(response).await.unwrap(), id.to_string());
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_before_it_is_sent() {
    let client = Client::unix("/nonexistent.sock");
    let long = "x".repeat(body::MAX_REQUEST_BYTES);
    let error = client.json::<()>(Method::POST, "/", Some(&long)).await.unwrap_err();
    assert_eq!(error.code, Code::REQUEST_SIZE.code);
}

/// Carries connections to an address, and changes one bit of what comes back from it: the one there
/// after so many bytes.
async fn damaging(to: SocketAddr, after: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(to).await.unwrap();
            let ((mut from, mut back), (mut answers, mut on)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut on).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 1000];
                let mut seen = 0;
                while let Ok(count @ 1..) = answers.read(&mut piece).await {
                    if (seen..seen + count).contains(&after) {
                        piece[after - seen] ^= 4;
                    }
                    seen += count;
                    back.write_all(&piece[..count]).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_damaged_answer_is_no_answer() {
    let long = async || json(StatusCode::OK, &vec![7; 100_000]);
    let server = serve_tcp(Router::new().route("/long", get(long))).await;
    for (after, told) in [(100, "cannot be reached"), (150_000, "cannot be used")] {
        let address = damaging(server, after).await;
        let client = Client::tcp(address, Token::new(TOKEN).unwrap());
        let answer: Result<Vec<u32>, _> = client.json(Method::GET, "/long", NO_BODY).await;
        let error = answer.unwrap_err();
        assert_eq!(error.code, Code::SERVER_UNREACHABLE.code);
        let said = &error.message;
        assert!(said.contains(told) && said.contains("data from 127.0.0.1 was damaged"), "{said}");
    }
    let client = Client::tcp(damaging(server, usize::MAX).await, Token::new(TOKEN).unwrap());
    let answer: Vec<u32> = client.json(Method::GET, "/long", NO_BODY).await.unwrap();
    assert!(answer == vec![7; 100_000]);
}

//! Measures what bytes between hosts cost: records with checksums, TLS, and TLS through a descriptor.
//! Both ends are in this process, over the loopback.
//!
//! ```sh
//! cargo run --release -p snowmelt-rpc --example host_planes -- 4
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use snowmelt_rpc::membership::authority::Authority;
use snowmelt_rpc::membership::{Anonymous, Credential};
use snowmelt_rpc::server::{Ending, HostListener, NETWORK, serve};
use snowmelt_rpc::upgrade::{self, Incoming};
use snowmelt_rpc::{HostTarget, Meant, Problem, Token};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

const PIECE: usize = 256 << 10;
const HANDSHAKES: u32 = 200;

/// A connection in both directions.
trait Link: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Link for T {}

#[tokio::main]
async fn main() {
    let gigabytes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let token = Token::new("0123456789abcdef").expect("a token");
    let (authority, _) = Authority::make().expect("an authority");
    let name = "one".parse().expect("a name");
    let text = authority.for_control(&name, 1, Duration::from_secs(3600)).expect("a certificate");
    let certified = Credential::certified(text, Anonymous::Refused).expect("a credential");
    for (kind, credential) in [("records", Credential::from(token)), ("TLS", certified)] {
        let address = serving(&credential).await;
        let target = HostTarget { address, meant: Meant::Control, credential };
        measure(kind, &target, gigabytes).await;
    }
}

async fn measure(kind: &str, target: &HostTarget, gigabytes: u64) {
    for path in ["/rows", "/blocks"] {
        let stream = upgrade::connect(target, path).await.expect("a connection");
        // As the readers of blocks do, which verify them.
        let mut stream: Box<dyn Link> = match path == "/blocks" && !stream.is_encrypted() {
            true => Box::new(stream.into_unverified().expect("a socket")),
            false => Box::new(stream),
        };
        let asked = gigabytes * 1_000_000_000;
        let begun = Instant::now();
        let used = cpu();
        stream.write_all(&asked.to_le_bytes()).await.expect("a request");
        let mut left = asked;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let read = stream.read(&mut piece).await.expect("bytes");
            assert!(read > 0, "the other end stopped");
            left -= read as u64;
        }
        let wall = begun.elapsed().as_secs_f64() / gigabytes as f64;
        let cpu = (cpu() - used).as_secs_f64() / gigabytes as f64;
        println!("{kind} {path}: {cpu:.2} CPU s for each GB, {:.2} GB/s", 1.0 / wall);
    }
    let begun = Instant::now();
    let used = cpu();
    for _ in 0..HANDSHAKES {
        drop(upgrade::connect(target, "/rows").await.expect("a connection"));
    }
    let wall = begun.elapsed() / HANDSHAKES;
    println!("{kind}: a connection takes {wall:?}, {:?} of CPU", (cpu() - used) / HANDSHAKES);
}

async fn serving(credential: &Credential) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/rows", get(rows)).route("/blocks", get(blocks));
    let listener = HostListener::new(listener, credential.clone());
    tokio::spawn(serve(listener, router, NETWORK, Ending::default()));
    address
}

/// Sends as many bytes as the other end asks for.
async fn rows(request: Request) -> Result<Response, Problem> {
    let (answer, incoming) = Incoming::of(request)?;
    tokio::spawn(async move {
        let Ok(stream) = incoming.connection().await else { return };
        let _ = send(stream).await;
    });
    Ok(answer)
}

/// Sends them as another process does, which has a descriptor.
async fn blocks(request: Request) -> Result<Response, Problem> {
    let (answer, incoming) = Incoming::of(request)?;
    tokio::spawn(async move {
        let Ok(stream) = incoming.connection().await else { return };
        if !stream.is_encrypted() {
            let _ = send(stream.into_unverified().expect("a socket")).await;
            return;
        }
        let descriptor = stream.into_descriptor().expect("a descriptor");
        let near = std::os::unix::net::UnixStream::from(descriptor);
        let _ = send(tokio::net::UnixStream::from_std(near).expect("a socket")).await;
    });
    Ok(answer)
}

async fn send(mut to: impl AsyncReadExt + AsyncWriteExt + Unpin) -> std::io::Result<()> {
    let mut asked = [0; 8];
    to.read_exact(&mut asked).await?;
    let mut left = u64::from_le_bytes(asked);
    let piece: Arc<[u8]> = (0..PIECE).map(|at| (at * 7 % 251) as u8).collect();
    while left > 0 {
        let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        to.write_all(&piece[..length]).await?;
        left -= length as u64;
    }
    to.shutdown().await
}

/// The CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

//! A small HTTP server with scripted answers that records its requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A received request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Header names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The connection is closed after this many bytes of the body.
    pub cut: Option<usize>,
    /// Nothing is sent, and the connection remains open.
    pub silent: bool,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// How fast bodies of requests are read.
#[derive(Clone, Copy)]
pub struct Pace {
    pub bytes: usize,
    pub pause: Duration,
}

/// Serves until the test ends.
pub struct Server {
    pub address: String,
    received: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` receives the request and the number of earlier requests.
    pub fn new(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::slow(Pace { bytes: usize::MAX, pause: Duration::ZERO }, answer)
    }

    /// A server that reads request bodies slowly.
    pub fn slow(
        pace: Pace,
        answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let known = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let known = Arc::clone(&known);
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream.unwrap(), pace, &known, &*answer));
            }
        });
        Self { address, received }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    pace: Pace,
    received: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request, usize) -> Reply,
) -> Option<()> {
    let request = read(&stream, pace)?;
    let before = {
        let mut received = received.lock().unwrap();
        received.push(request.clone());
        received.len() - 1
    };
    let reply = answer(&request, before);
    if reply.silent {
        // Until the client closes the connection.
        let _ = stream.read(&mut [0]);
        return None;
    }
    let mut head = format!("HTTP/1.1 {} It\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", reply.body.len()));
    stream.write_all(head.as_bytes()).ok()?;
    let end = if request.method == "HEAD" { 0 } else { reply.body.len() };
    stream.write_all(&reply.body[..reply.cut.unwrap_or(end).min(end)]).ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    let _ = stream.read_to_end(&mut Vec::new());
    Some(())
}

fn read(stream: &TcpStream, pace: Pace) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let method = words.next()?;
    let path = words.next()?;
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    for piece in body.chunks_mut(pace.bytes) {
        thread::sleep(pace.pause);
        reader.read_exact(piece).ok()?;
    }
    Some(Request { method, path, headers, body })
}

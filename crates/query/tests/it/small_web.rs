//! A small server of HTTP in this process, which answers as the first part of a path says: well,
//! without ranges, cut off, wrongly.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    /// The bytes and the version of each file.
    files: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    requests: AtomicU64,
    /// So many of the next answers of `cut` end early.
    cuts: AtomicU64,
}

/// The server; it runs until the process ends.
pub struct SmallWeb {
    state: Arc<State>,
    /// Host and port.
    pub host: String,
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
}

impl SmallWeb {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&serving);
                std::thread::spawn(move || serve(socket, &state));
            }
        });
        Self { state, host }
    }

    /// The URL of a file that is answered in this way.
    pub fn url(&self, how: &str, file: &str) -> String {
        format!("http://{}/{how}/{file}", self.host)
    }

    /// Puts a file, or replaces it.
    pub fn put(&self, file: &str, bytes: Vec<u8>) {
        let mut files = self.state.files.lock().unwrap();
        let version = files.get(file).map_or(1, |(_, version)| version + 1);
        files.insert(file.to_owned(), (bytes, version));
    }

    pub fn cut(&self, answers: u64) {
        self.state.cuts.store(answers, Ordering::SeqCst);
    }

    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }
}

fn serve(socket: TcpStream, state: &State) {
    let mut reading = BufReader::new(socket.try_clone().unwrap());
    let mut writing = socket;
    while let Some(request) = read(&mut reading) {
        state.requests.fetch_add(1, Ordering::SeqCst);
        let (head, body, ends) = answer(&request, state);
        let body = if request.method == "HEAD" { Vec::new() } else { body };
        let sent = writing.write_all(head.as_bytes()).and_then(|()| writing.write_all(&body));
        if sent.is_err() || ends {
            return;
        }
    }
}

fn read(reading: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reading.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let path = words.next()?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reading.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Request { method, path, headers })
}

fn status(code: &str, more: &str) -> (String, Vec<u8>, bool) {
    (format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n{more}\r\n"), Vec::new(), false)
}

/// The head and the body of an answer, and whether the connection ends behind it.
fn answer(request: &Request, state: &State) -> (String, Vec<u8>, bool) {
    let path = request.path.trim_start_matches('/');
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (how, rest) = path.split_once('/').unwrap_or((path, ""));
    match how {
        "to" => return status("302 Found", &format!("Location: http://{rest}\r\n")),
        "round" => return status("302 Found", &format!("Location: /round/{rest}\r\n")),
        "forbidden" => return status("403 Forbidden", ""),
        "token" if query != "token=a%2Fb&x" => return status("403 Forbidden", ""),
        "broken" => return status("500 Internal Server Error", ""),
        "headless" if request.method == "HEAD" => return status("405 Method Not Allowed", ""),
        // It says that files are empty, unless it is asked for a whole one.
        "hollow" if request.method == "HEAD" => return status("200 OK", ""),
        "hollow" if request.headers.get("range").is_some_and(|range| range == "bytes=0-0") => {
            return status("416 Range Not Satisfiable", "");
        }
        _ => (),
    }
    let files = state.files.lock().unwrap();
    let Some((bytes, version)) = files.get(rest) else { return status("404 Not Found", "") };
    let (tag, date) =
        (format!("\"v{version}\""), format!("Wed, 21 Oct 2015 07:28:{version:02} GMT"));
    let is_dated = how == "dated";
    let said =
        if is_dated { format!("Last-Modified: {date}\r\n") } else { format!("ETag: {tag}\r\n") };
    let other =
        |name: &str, own: &str| request.headers.get(name).is_some_and(|header| header != own);
    if other("if-match", &tag) || is_dated && other("if-unmodified-since", &date) {
        return status("412 Precondition Failed", "");
    }
    let ranged = !matches!(how, "rangeless" | "huge" | "hollow");
    let range = request.headers.get("range").filter(|_| ranged).map(|range| {
        let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
        let last = last.parse::<usize>().unwrap().min(bytes.len() - 1);
        first.parse::<usize>().unwrap()..last + 1
    });
    let part = range.clone().map_or(bytes.as_slice(), |range| &bytes[range]);
    let mut head = match range {
        Some(range) => {
            // A wrong server sends other bytes than it was asked for.
            let first = if how == "shifted" { range.start + 1 } else { range.start };
            let place = format!("bytes {first}-{}/{}", range.end - 1, bytes.len());
            format!("HTTP/1.1 206 Partial Content\r\nContent-Range: {place}\r\n")
        }
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    let length = if how == "huge" { 100 << 20 } else { part.len() };
    let length = if how == "short" && request.method == "GET" { length + 10 } else { length };
    head.push_str(&format!("{said}Content-Length: {length}\r\n\r\n"));
    let take_one = |left: u64| left.checked_sub(1);
    let cut = how == "cut" && request.method == "GET";
    if cut && state.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok() {
        return (head, part[..part.len() / 2].to_vec(), true);
    }
    (head, part.to_vec(), matches!(how, "short" | "huge"))
}

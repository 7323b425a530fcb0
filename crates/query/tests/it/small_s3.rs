//! A small S3 server in this process: it counts requests by kind, and answers wrongly if asked to.
//! The client is the real one, so everything above the socket is as with another store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Requests by kind, without those that were answered wrongly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub reads: u64,
    pub writes: u64,
    pub lists: u64,
}

/// One bucket, `b`.
#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    counted: Mutex<Requests>,
    // So many of the next requests for objects are answered with 503.
    busy: AtomicU64,
    // So many of the next objects that are read are removed before.
    removed: AtomicU64,
    // Each object is missing when it is read first.
    late: AtomicBool,
    seen: Mutex<BTreeSet<String>>,
    read_only: AtomicBool,
    // So many requests for objects are answered before one never is.
    until_stall: AtomicU64,
}

/// The server; it runs until the process ends.
pub struct SmallS3 {
    state: Arc<State>,
    endpoint: String,
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

type Response = (&'static str, Vec<(&'static str, String)>, Vec<u8>);

impl SmallS3 {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&serving);
                std::thread::spawn(move || serve(socket, &state));
            }
        });
        Self { state, endpoint }
    }

    /// The variables of a client.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    pub fn requests(&self) -> Requests {
        *self.state.counted.lock().unwrap()
    }

    pub fn keys(&self) -> Vec<String> {
        self.state.objects.lock().unwrap().keys().cloned().collect()
    }

    pub fn put(&self, key: &str) {
        self.put_bytes(key, vec![1]);
    }

    pub fn put_bytes(&self, key: &str, bytes: Vec<u8>) {
        self.state.objects.lock().unwrap().insert(key.to_owned(), bytes);
    }

    pub fn busy(&self, requests: u64) {
        self.state.busy.store(requests, Ordering::SeqCst);
    }

    pub fn remove_before_reading(&self, objects: u64) {
        self.state.removed.store(objects, Ordering::SeqCst);
    }

    pub fn late(&self) {
        self.state.late.store(true, Ordering::SeqCst);
    }

    /// Of the next requests for objects, one is never answered: that after this many others.
    pub fn stall_after(&self, requests: u64) {
        self.state.until_stall.store(requests + 1, Ordering::SeqCst);
    }

    pub fn read_only(&self) {
        self.state.read_only.store(true, Ordering::SeqCst);
    }
}

fn serve(socket: TcpStream, state: &State) {
    socket.set_nodelay(true).unwrap();
    let mut reading = BufReader::new(socket.try_clone().unwrap());
    let mut writing = socket;
    while let Some(request) = read(&mut reading) {
        stall(&request, state);
        let (status, headers, body) = answer(&request, state);
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let sent = writing.write_all((head + "\r\n").as_bytes());
        if sent.and_then(|()| writing.write_all(&body)).is_err() {
            return;
        }
    }
}

/// Does not return if the request is never answered.
fn stall(request: &Request, state: &State) {
    if request.method != "GET" || !request.headers.contains_key("range") {
        return;
    }
    let left = &state.until_stall;
    let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    if before != Ok(1) {
        return;
    }
    state.counted.lock().unwrap().reads += 1;
    loop {
        std::thread::park();
    }
}

fn read(from: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split(' ');
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let decoded = |text: &str| text.replace("%2F", "/").replace("%2E", ".").replace("%3D", "=");
    let path = decoded(path);
    let query = decoded(query);
    Some(Request { method, path, query, headers, body })
}

fn answer(request: &Request, state: &State) -> Response {
    let path = request.path.trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket != "b" {
        return error("404 Not Found", "NoSuchBucket");
    }
    let is_busy = state.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    if !key.is_empty() && is_busy.is_ok() {
        return error("503 Slow Down", "SlowDown");
    }
    match request.method.as_str() {
        "PUT" if state.read_only.load(Ordering::SeqCst) => error("403 Forbidden", "AccessDenied"),
        "PUT" => {
            state.counted.lock().unwrap().writes += 1;
            let mut objects = state.objects.lock().unwrap();
            let before = objects.insert(key.to_owned(), request.body.clone());
            assert!(before.is_none(), "{key} was written twice");
            ("200 OK", vec![("ETag", "\"x\"".to_owned())], Vec::new())
        }
        "GET" if key.is_empty() => {
            state.counted.lock().unwrap().lists += 1;
            list(request, state)
        }
        "GET" => get(request, key, state),
        "POST" => {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let mut objects = state.objects.lock().unwrap();
            let mut deleted = String::new();
            for part in body.split("<Key>").skip(1) {
                let key = part.split("</Key>").next().unwrap();
                objects.remove(key);
                deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
            let body = format!("<DeleteResult>{deleted}</DeleteResult>");
            ("200 OK", Vec::new(), body.into_bytes())
        }
        other => panic!("an exchange sends no {other}"),
    }
}

fn get(request: &Request, key: &str, state: &State) -> Response {
    let mut objects = state.objects.lock().unwrap();
    let is_next = |n: u64| n.checked_sub(1).filter(|_| objects.contains_key(key));
    if state.removed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next).is_ok() {
        objects.remove(key);
    }
    let is_first =
        state.late.load(Ordering::SeqCst) && state.seen.lock().unwrap().insert(key.to_owned());
    let Some(object) = objects.get(key).filter(|_| !is_first) else {
        return error("404 Not Found", "NoSuchKey");
    };
    state.counted.lock().unwrap().reads += 1;
    let range = request.headers["range"].trim_start_matches("bytes=").to_owned();
    let (start, end) = range.split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    let tag = tag(object);
    if request.headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
        return error("412 Precondition Failed", "PreconditionFailed");
    }
    let headers = vec![
        ("ETag", tag),
        ("Last-Modified", "Tue, 24 Nov 2026 07:00:00 GMT".to_owned()),
        ("Content-Range", format!("bytes {start}-{end}/{}", object.len())),
    ];
    ("206 Partial Content", headers, object[start..=end].to_vec())
}

fn list(request: &Request, state: &State) -> Response {
    let parameter = |name: &str| {
        let pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    };
    let prefix = parameter("prefix").unwrap_or_default();
    let mut folders = BTreeSet::new();
    let mut text = String::new();
    for (key, object) in state.objects.lock().unwrap().iter() {
        let Some(rest) = key.strip_prefix(&prefix) else { continue };
        match rest.split_once('/') {
            Some((folder, _)) if parameter("delimiter").is_some() => {
                folders.insert(format!("{prefix}{folder}/"));
            }
            _ => {
                text += &format!(
                    "<Contents><Key>{key}</Key><LastModified>2026-11-24T07:00:00.000Z\
                     </LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                    tag(object),
                    object.len()
                );
            }
        }
    }
    for folder in folders {
        text += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    let body = format!("<ListBucketResult>{text}</ListBucketResult>");
    ("200 OK", Vec::new(), body.into_bytes())
}

/// Changes with the bytes of an object.
fn tag(object: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    format!("\"{:x}\"", hasher.finish())
}

fn error(status: &'static str, code: &str) -> Response {
    (status, Vec::new(), format!("<Error><Code>{code}</Code></Error>").into_bytes())
}

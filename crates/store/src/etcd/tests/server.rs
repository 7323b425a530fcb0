//! Real servers of etcd for tests, on ports of loopback, and a way to them that can be cut.

use std::net::{SocketAddr, TcpListener as Listener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::etcd::{Etcd, EtcdSettings};

/// A server of etcd with a folder of its own. It ends with the test.
pub(super) struct EtcdProcess {
    child: Child,
    port: u16,
    scheme: &'static str,
    options: Vec<String>,
    folder: TempDir,
}

impl EtcdProcess {
    pub fn start() -> Self {
        Self::with("http", &[])
    }

    pub fn with(scheme: &'static str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may take a port in between.
        for _ in 0..5 {
            let port = free_port();
            let mut child = spawn(folder.path(), port, scheme, &options);
            if listens(&mut child, port) {
                return Self { child, port, scheme, options, folder };
            }
        }
        panic!("etcd does not start: is etcd-server installed, as `scripts/setup test` does?");
    }

    /// Starts the server again after it was killed, with its data and its port.
    pub fn start_again(&mut self) {
        self.child = spawn(self.folder.path(), self.port, self.scheme, &self.options);
        assert!(listens(&mut self.child, self.port), "etcd does not start again");
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        // A thread on another processor may answer once more.
        while signal == Signal::STOP && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether all threads are stopped. The state follows the name, which is in parentheses.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, after)| after.starts_with('T'))
        })
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub fn settings(&self) -> EtcdSettings {
        EtcdSettings::parse(&format!("etcd://{}/test", self.address())).unwrap()
    }

    pub fn store(&self) -> Etcd {
        Etcd::new(self.settings()).unwrap()
    }

    /// Runs a command of etcd's own client.
    pub fn ctl(&self, options: &[&str]) -> String {
        let endpoint = format!("{}://{}", self.scheme, self.address());
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={endpoint}"))
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
        said
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, port: u16, scheme: &str, options: &[String]) -> Child {
    let client = format!("{scheme}://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    // It ends with the test also if that is killed.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "etcd", "--name", "test"])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("test={peer}"), "--logger", "zap"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap()
}

fn free_port() -> u16 {
    Listener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a server listens. False if it has ended.
fn listens(child: &mut Child, port: u16) -> bool {
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A way to a server that a test can cut.
pub(super) struct Cuttable {
    pub port: u16,
    state: Arc<watch::Sender<LineState>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// Bytes pass in both directions.
    Open,
    /// Requests pass, and no answer.
    Deaf,
    /// Nothing passes, and connections are closed.
    Cut,
}

impl Cuttable {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(watch::Sender::new(LineState::Open));
        let states = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(relay(client, server, states.subscribe()));
            }
        });
        Self { port, state }
    }

    pub fn store(&self) -> Etcd {
        Etcd::new(EtcdSettings::parse(&format!("etcd://127.0.0.1:{}/test", self.port)).unwrap())
            .unwrap()
    }

    pub fn open(&self) {
        self.state.send_replace(LineState::Open);
    }

    /// From now on requests pass and answers do not.
    pub fn deafen(&self) {
        self.state.send_replace(LineState::Deaf);
    }

    /// Closes all connections, until the way is open again.
    pub fn cut(&self) {
        self.state.send_replace(LineState::Cut);
    }

    /// Closes all connections; others are possible at once.
    pub async fn interrupt(&self) {
        self.cut();
        tokio::time::sleep(Duration::from_millis(30)).await;
        self.open();
    }
}

async fn relay(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<LineState>) {
    if *state.borrow() == LineState::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut hearing = state.clone();
    let answers = async {
        loop {
            let _ = hearing.wait_for(|state| *state == LineState::Open).await;
            tokio::select! {
                _ = copy(&mut from_server, &mut to_client) => return,
                _ = hearing.wait_for(|state| *state != LineState::Open) => {}
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = answers => {}
        _ = state.wait_for(|state| *state == LineState::Cut) => {}
    }
}

/// An authority with a certificate for 127.0.0.1, which is also that of a client.
pub(super) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                -subj /CN=authority -keyout ca.key -out ca.pem
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=here \
                -keyout key.pem -out request.pem
            printf 'subjectAltName=IP:127.0.0.1' > names
            openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                -extfile names -out cert.pem";
        let mut shell = Command::new("sh");
        let made = shell.args(["-ec", script]).current_dir(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

//! A lab with a folder of its own, and connections between its hosts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use snowmelt_lab::{Lab, LabHost, LabLink, LabMember, LabPlan, Roots};
use snowmelt_types::{ByteSize, HostName};

/// Longer than a connection takes whose first packets are lost. Unreachable hosts fail immediately.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can make network namespaces");
    }
    root
}

/// A running lab, which ends when this is dropped.
pub struct Rig {
    pub folder: tempfile::TempDir,
    pub lab: Lab,
}

pub fn sleeper(_: &LabHost) -> Command {
    let mut command = Command::new("sleep");
    command.arg("3600");
    command
}

pub fn name() -> HostName {
    "lab".parse().unwrap()
}

pub fn roots(folder: &tempfile::TempDir) -> Roots {
    Roots { run: folder.path().join("run"), state: folder.path().join("state") }
}

pub fn plan(hosts: u32, rate: Option<&str>) -> LabPlan {
    let link = LabLink { rate: rate.map(|rate| rate.parse().unwrap()), delay: None };
    LabPlan {
        hosts,
        pool: None,
        link,
        memory: ByteSize::mib(64),
        control_only: false,
        disk: None,
        registry: None,
        store: None,
    }
}

impl Rig {
    pub fn up(hosts: u32, rate: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::with(folder, plan(hosts, rate))
    }

    pub fn with(folder: tempfile::TempDir, plan: LabPlan) -> Self {
        let lab = Lab::up(&roots(&folder), &name(), plan, &sleeper).unwrap();
        Self { folder, lab }
    }

    pub fn member(&self, name: &str) -> LabMember {
        self.lab.member_named(name).unwrap()
    }

    pub fn host(&self, number: u32) -> LabHost {
        self.member(&format!("host-{number}")).host().unwrap().clone()
    }

    /// Whether a connection can be made.
    pub fn reaches(&self, from: u32, to: u32) -> bool {
        self.sends(from, to, 1).is_some()
    }

    /// How long bytes take from a host to another one; none if no connection can be made.
    pub fn sends(&self, from: u32, to: u32, bytes: usize) -> Option<Duration> {
        let any_port = SocketAddr::new(self.host(to).address.ip(), 0);
        thread::scope(|scope| {
            let listener = scope.spawn(|| {
                self.lab.enter(&self.host(to).machine).unwrap();
                TcpListener::bind(any_port).unwrap()
            });
            // A socket belongs to its namespace, also when used from another.
            let listener = listener.join().unwrap();
            let address = listener.local_addr().unwrap();
            let from = self.host(from);
            let sender = scope.spawn(move || {
                self.lab.enter(&from.machine).unwrap();
                TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()
            });
            let mut sender = sender.join().unwrap()?;
            let begun = Instant::now();
            scope.spawn(move || sender.write_all(&vec![7; bytes]).unwrap());
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), bytes);
            Some(begun.elapsed())
        })
    }

    /// Which hosts run their program.
    pub fn running(&self) -> Vec<bool> {
        self.lab.states().unwrap().iter().map(|state| state.runs).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Some tests have ended it already.
        drop(Lab::down(&roots(&self.folder), &name()));
    }
}

/// Waits until a condition is true.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

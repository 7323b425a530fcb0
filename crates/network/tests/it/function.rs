//! Controls `function.c`: a process in a control group and a job's namespace.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use snowmelt_network::{Address, JobNetwork};

use crate::harness::within;

/// How the program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Static,
    Dynamic,
}

/// The method of address enforcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// BPF programs on control groups.
    Cgroups,
    /// Answers to system calls.
    Notifier,
}

pub const INET: i32 = 2;
pub const INET6: i32 = 10;
pub const STREAM: i32 = 1;
pub const DATAGRAM: i32 = 2;

/// A running function with its addresses and its control group.
pub struct Function {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    group: Option<PathBuf>,
    pub address: Address,
    /// Its listening socket, for tests with several functions.
    pub server: String,
}

impl Function {
    /// Starts one in a slot of a network, with either method of enforcement.
    pub fn start(by: By, network: &JobNetwork, above: &Path, slot: u32, linked: Linked) -> Self {
        match by {
            By::Cgroups => Self::in_group(network, above, slot, linked),
            By::Notifier => Self::with_notifier(network, slot, linked),
        }
    }

    /// In a control group below `above`.
    fn in_group(network: &JobNetwork, above: &Path, slot: u32, linked: Linked) -> Self {
        let group = above.join(format!("{}-{slot}", network.spec().vni));
        std::fs::create_dir(&group).unwrap();
        let address = network.attach(&group, slot).unwrap();
        let mut function = Self::run(network, linked, &group.join("cgroup.procs"), address);
        function.group = Some(group);
        assert_eq!(function.line(), "ready");
        function
    }

    /// With the system call filter whose calls the network answers.
    fn with_notifier(network: &JobNetwork, slot: u32, linked: Linked) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("filter");
        std::fs::write(&file, snowmelt_kernel::notify::address_filter(None).to_bytes()).unwrap();
        let address = network.address(slot).unwrap();
        let mut function = Self::run(network, linked, &file, address);
        let said = function.line();
        let number = said.strip_prefix("listener ").unwrap().parse().unwrap();
        let listener =
            snowmelt_kernel::notify::copy_descriptor(function.process.id(), number).unwrap();
        assert_eq!(network.attach_notifier(listener, slot).unwrap(), address);
        writeln!(function.input, "go").unwrap();
        assert_eq!(function.line(), "ready");
        function
    }

    fn run(network: &JobNetwork, linked: Linked, argument: &Path, address: Address) -> Self {
        let mut process = within(network.namespace(), || {
            Command::new(program(linked))
                .arg(argument)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output, group: None, address, server: String::new() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Executes a command; returns its result, or the error number.
    pub fn execute(&mut self, what: &str) -> Result<String, i32> {
        writeln!(self.input, "{what}").unwrap();
        let line = self.line();
        match line.split_once(' ') {
            Some(("ok", value)) => Ok(value.to_owned()),
            Some(("error", number)) => Err(number.parse().unwrap()),
            _ => panic!("`{what}` gave `{line}`"),
        }
    }

    /// A fresh socket, by its descriptor.
    pub fn socket(&mut self, family: i32, kind: i32) -> String {
        self.execute(&format!("socket {family} {kind} 0")).unwrap()
    }

    /// A socket that is bound and listens.
    pub fn listen(&mut self, family: i32, at: IpAddr, port: u16) -> String {
        let socket = self.socket(family, STREAM);
        self.execute(&format!("bind {socket} {at} {port}")).unwrap();
        self.execute(&format!("listen {socket}")).unwrap();
        socket
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let Some(group) = &self.group else { return };
        // The kernel releases the group a moment later.
        for _ in 0..1000 {
            if std::fs::remove_dir(group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Compiles it once for each kind of linking.
fn program(linked: Linked) -> &'static Path {
    static STATIC: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    static DYNAMIC: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (compiled, flag) = match linked {
        Linked::Static => (&STATIC, "-static"),
        Linked::Dynamic => (&DYNAMIC, "-pie"),
    };
    let (_, path) = compiled.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("function");
        let source = Path::new("tests/it/function.c");
        let done = Command::new("cc").args(["-O1", flag, "-o"]).arg(&path).arg(source).status();
        assert!(done.unwrap().success());
        (folder, path)
    });
    path
}

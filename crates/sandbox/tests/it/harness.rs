//! A separate spawner for each test, and the check that it leaves nothing behind.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use snowmelt_sandbox::{
    Bind, Limits, Network, Options, ProcessSettings, Root, Sandbox, SandboxSpec, Spawner,
    SpawnerProcess, SyscallPolicy,
};
use snowmelt_types::{Outcome, SandboxId};

/// A spawner with its own run directory.
pub struct Rig {
    pub spawner: Spawner,
    pub base: tempfile::TempDir,
    pub run_dir: PathBuf,
    pub cgroup: String,
}

/// Runs a test with a spawner, then shuts it down and checks that nothing is left. Without root,
/// prints that it skips the test.
pub fn with_spawner<F: Future<Output = ()>>(test: impl FnOnce(SharedRig) -> F) {
    if !is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return;
    }
    runtime().block_on(async {
        let rig = std::sync::Arc::new(Rig::new());
        test(rig.clone()).await;
        rig.spawner.shutdown().await.unwrap();
        rig.assert_nothing_left();
    });
}

pub type SharedRig = std::sync::Arc<Rig>;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

impl Rig {
    pub fn new() -> Self {
        Self::with(vec![spawner_program().into()])
    }

    /// Starts it with at most this number of lanes.
    pub fn with_lanes(lanes: u32) -> Self {
        Self::prepare(vec![spawner_program().into()], |process| process.with_lanes(lanes))
    }

    /// Starts it with another spawner command.
    pub fn with(spawner_command: Vec<OsString>) -> Self {
        Self::prepare(spawner_command, |process| process)
    }

    fn prepare(
        spawner_command: Vec<OsString>,
        prepare: impl FnOnce(SpawnerProcess) -> SpawnerProcess,
    ) -> Self {
        let base = tempfile::tempdir().unwrap();
        let run_dir = base.path().join("run");
        let instance = SandboxId::new();
        let cgroup = format!("snowmelt/test-{instance}");
        let process = Spawner::launch(Options {
            run_dir: run_dir.clone(),
            spawner_command,
            parent_cgroup: cgroup.clone(),
            total: Default::default(),
            server_user: None,
        });
        let process = prepare(process.unwrap());
        let spawner = process.attach().unwrap();
        Self { spawner, base, run_dir, cgroup }
    }

    pub fn assert_nothing_left(&self) {
        assert!(!self.run_dir.exists(), "the run directory is left");
        let groups = self.groups();
        assert!(groups.is_empty(), "control groups are left: {groups:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let base = self.base.path().to_str().unwrap();
        assert!(!mounts.contains(base), "mounts are left: {mounts}");
    }

    /// The folders of this rig's control groups.
    pub fn groups(&self) -> Vec<PathBuf> {
        let roots = ["", "memory", "cpu", "pids", "unified", "freezer"]
            .map(|name| Path::new("/sys/fs/cgroup").join(name));
        roots.into_iter().map(|root| root.join(&self.cgroup)).filter(|path| path.exists()).collect()
    }

    /// Every process in its control groups.
    pub fn processes(&self) -> Vec<i32> {
        let groups = self.groups().into_iter().flat_map(fs::read_dir).flatten().flatten();
        let lists = groups.filter_map(|group| read(group.path().join("cgroup.procs")));
        let mut pids: Vec<i32> =
            lists.flat_map(|list| list.lines().flat_map(str::parse).collect::<Vec<_>>()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Starts Python with a script.
    pub async fn python(&self, script: &str) -> Sandbox {
        self.spawner.start(python(script)).await.unwrap()
    }

    /// Runs a script to its end and returns its output.
    pub async fn run(&self, spec: SandboxSpec) -> (String, Outcome) {
        let mut sandbox = self.spawner.start(spec).await.unwrap();
        let log = sandbox.take_log().unwrap();
        let text = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
        (text, within(sandbox.wait()).await)
    }

    /// The output of a Python script, which must exit with 0.
    pub async fn printed(&self, script: &str) -> String {
        let (text, outcome) = self.run(python(script)).await;
        assert_eq!(outcome.end, snowmelt_types::End::Exit { code: 0 }, "{text}");
        text.trim().to_owned()
    }
}

fn read(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Every process in the control group of this process.
pub fn processes_in_group_of(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = text.lines().find_map(|line| line.split(":/snowmelt/").nth(1)).unwrap();
    let path = Path::new("snowmelt").join(group).join("cgroup.procs");
    let roots = ["", "memory"].map(|name| Path::new("/sys/fs/cgroup").join(name));
    let list = roots.iter().find_map(|root| read(root.join(&path))).unwrap();
    list.lines().map(|pid| pid.parse().unwrap()).collect()
}

pub fn read_all(log: OwnedFd) -> String {
    let mut bytes = Vec::new();
    fs::File::from(log).read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Turns a hang into a failure.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("waited for a minute")
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The example `spawner`.
pub fn spawner_program() -> PathBuf {
    program("spawner")
}

/// An example, which `cargo test` builds next to this program.
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let program = here.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(program.is_file(), "build {} with `cargo build --examples`", program.display());
    program
}

/// The interpreter's own path, and its prefix, which may be outside `/usr`.
pub fn interpreter() -> &'static (String, PathBuf) {
    static FOUND: OnceLock<(String, PathBuf)> = OnceLock::new();
    FOUND.get_or_init(|| {
        let code = "import sys,os; print(os.path.realpath(sys.executable)); print(sys.base_prefix)";
        let output = Command::new("python3").args(["-c", code]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        (lines.next().unwrap().to_owned(), lines.next().unwrap().into())
    })
}

pub fn python_root() -> Root {
    let prefix = interpreter().1.clone();
    if prefix.starts_with("/usr") {
        return Root::default();
    }
    Root { binds: vec![Bind { source: prefix.clone(), target: prefix }], ..Root::default() }
}

pub fn spec(command: &[&str]) -> SandboxSpec {
    SandboxSpec {
        id: SandboxId::new(),
        root: python_root(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        limits: Limits { pids: 32, ..Limits::default() },
        network: Network::None,
        policy: SyscallPolicy::Function,
        process: ProcessSettings::default(),
    }
}

pub fn python(script: &str) -> SandboxSpec {
    spec(&[&interpreter().0, "-I", "-c", script])
}

/// Sends a line over the channel and returns the answer.
pub fn ask(sandbox: &Sandbox, line: &str) -> std::io::Result<String> {
    let mut stream = sandbox.connect()?;
    stream.write_all(line.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

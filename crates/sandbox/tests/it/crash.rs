//! kill -9 of the server, of the spawner, and of both.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use snowmelt_sandbox::{Error, sweep};
use snowmelt_types::{End, SandboxId};

use crate::harness::{Rig, interpreter, is_root, runtime, spawner_program, until, within};

/// A server in a process of its own, with a program, a zygote and a child of the zygote.
struct Holder {
    process: Child,
    run_dir: PathBuf,
    cgroup: String,
}

impl Holder {
    fn start(base: &Path) -> Self {
        let mut holder = Self::run(base, spawner_program().to_str().unwrap());
        let mut line = String::new();
        BufReader::new(holder.process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "holding\n");
        holder
    }

    fn run(base: &Path, spawner: &str) -> Self {
        let run_dir = base.join("run-of-holder");
        let cgroup = format!("snowmelt/test-{}", SandboxId::new());
        let (python, prefix) = interpreter();
        let process = Command::new(spawner_program().with_file_name("holder"))
            .args([Path::new(spawner), &run_dir, cgroup.as_ref(), python.as_ref(), prefix])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { process, run_dir, cgroup }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Every process in its control groups.
    fn processes(&self) -> Vec<i32> {
        let parent = Path::new("/sys/fs/cgroup/memory").join(&self.cgroup);
        let parent =
            if parent.exists() { parent } else { Path::new("/sys/fs/cgroup").join(&self.cgroup) };
        let groups = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let lists = groups
            .filter_map(|group| std::fs::read_to_string(group.path().join("cgroup.procs")).ok());
        lists
            .flat_map(|list| list.lines().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect()
    }

    fn groups(&self) -> Vec<PathBuf> {
        let roots = ["", "memory", "cpu", "pids", "unified", "freezer"]
            .map(|name| Path::new("/sys/fs/cgroup").join(name));
        roots.into_iter().map(|root| root.join(&self.cgroup)).filter(|path| path.exists()).collect()
    }
}

/// The parent of a process: for a program, the spawner.
fn parent_of(pid: i32) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    Pid::from_raw(line.trim().parse().unwrap()).unwrap()
}

fn lives(pid: i32) -> bool {
    // A zombie that is not reaped yet is dead.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// The spawner among the parents: the holder's own child.
fn spawner_of(holder: &Holder) -> Pid {
    let parents = holder.processes().into_iter().map(parent_of);
    let ours = holder.process.id() as i32;
    parents
        .into_iter()
        .find(|pid| parent_of(pid.as_raw_nonzero().get()).as_raw_nonzero().get() == ours)
        .unwrap()
}

#[test]
fn the_spawner_cleans_up_after_a_killed_server() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let base = tempfile::tempdir().unwrap();
        let mut holder = Holder::start(base.path());
        let processes = holder.processes();
        // The zygote may have made its preforked child.
        assert!(matches!(processes.len(), 3 | 4), "{processes:?}");
        holder.kill();
        until("nothing is left", || !holder.run_dir.exists() && holder.groups().is_empty()).await;
        assert!(processes.into_iter().all(|pid| !lives(pid)));
    });
}

/// Kills the server that has executed it as soon as the set-up message has arrived, and then
/// becomes the spawner.
const KILLS: &str = "import os, signal, socket, sys, time
socket.socket(fileno=os.dup(0)).recv(1, socket.MSG_PEEK)
server = os.getppid()
os.kill(server, signal.SIGKILL)
while os.getppid() == server:
    time.sleep(0.001)
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_spawner_whose_server_is_killed_before_it_is_ready_leaves_nothing() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    let base = tempfile::tempdir().unwrap();
    let script = base.path().join("kills.py");
    std::fs::write(&script, KILLS).unwrap();
    let (python, _) = interpreter();
    let command = format!("{python} {} {}", script.display(), spawner_program().display());
    let mut holder = Holder::run(base.path(), &command);
    holder.process.wait().unwrap();
    let is_clean = || !holder.run_dir.exists() && holder.groups().is_empty();
    runtime().block_on(until("nothing is left", is_clean));
}

#[test]
fn a_killed_spawner_ends_everything_and_is_replaced() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let rig = Rig::new();
        let kept = rig.run_dir.join("kept by the server");
        std::fs::write(&kept, "").unwrap();
        for replaced in 0..3 {
            let sandbox = rig.python("import time; time.sleep(600)").await;
            let pid = sandbox.pid();
            kill_process(parent_of(pid), Signal::KILL).unwrap();
            assert_eq!(within(sandbox.wait()).await.end, End::SpawnerLost);
            let (text, outcome) = rig.run(crate::harness::python("print('again')")).await;
            assert_eq!((&*text, outcome.end), ("again\n", End::Exit { code: 0 }));
            until("the program is dead", || !lives(pid)).await;
            let health = rig.spawner.health();
            assert_eq!((health.replaced, health.failure), (replaced + 1, None));
            assert!(kept.exists());
        }
        within(rig.spawner.shutdown()).await.unwrap();
        rig.assert_nothing_left();
    });
}

/// The program is missing when it is needed again, as during an update, or exits with an error.
#[test]
fn a_failed_replacement_is_reported_until_it_succeeds() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let base = tempfile::tempdir().unwrap();
        let program = base.path().join("spawner");
        let fails = base.path().join("fails");
        let real = spawner_program();
        let text =
            format!("#!/bin/sh\n[ ! -e {} ] || exit 1\nexec {}\n", fails.display(), real.display());
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let rig = Rig::with(vec!["/bin/sh".into(), program.into()]);
        let sandbox = rig.python("import time; time.sleep(600)").await;
        std::fs::write(&fails, "").unwrap();
        kill_process(parent_of(sandbox.pid()), Signal::KILL).unwrap();
        assert_eq!(within(sandbox.wait()).await.end, End::SpawnerLost);
        let error = within(rig.spawner.start(crate::harness::python(""))).await.err();
        assert!(matches!(error, Some(Error::NotReplaced { .. })), "{error:?}");
        let health = rig.spawner.health();
        assert!(health.processes.is_empty() && health.failure.is_some(), "{health:?}");
        std::fs::remove_file(&fails).unwrap();
        until("the spawner is replaced", || rig.spawner.health().failure.is_none()).await;
        assert_eq!(rig.run(crate::harness::python("print(1)")).await.0, "1\n");
        within(rig.spawner.shutdown()).await.unwrap();
        rig.assert_nothing_left();
    });
}

/// As by an update while the server runs: both ends must be of the same build.
#[test]
fn a_replaced_program_file_is_executed_in_its_first_version() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let base = tempfile::tempdir().unwrap();
        let program = base.path().join("spawner");
        std::fs::copy(spawner_program(), &program).unwrap();
        let rig = Rig::with(vec![program.clone().into()]);
        let sandbox = rig.python("import time; time.sleep(600)").await;
        std::fs::remove_file(&program).unwrap();
        std::fs::copy("/bin/false", &program).unwrap();
        kill_process(parent_of(sandbox.pid()), Signal::KILL).unwrap();
        assert_eq!(rig.run(crate::harness::python("print(1)")).await.0, "1\n");
        within(rig.spawner.shutdown()).await.unwrap();
        rig.assert_nothing_left();
    });
}

#[test]
fn a_sweep_removes_the_remains_of_dead_processes_only() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let rig = Rig::new();
        let living = rig.python("import time; time.sleep(600)").await;
        let mut holder = Holder::start(rig.base.path());
        let processes = holder.processes();
        let spawner = spawner_of(&holder);
        // While stopped, it cannot clean up when its server dies.
        kill_process(spawner, Signal::STOP).unwrap();
        holder.kill();
        kill_process(spawner, Signal::KILL).unwrap();
        until("the sandboxes are dead", || processes.iter().all(|pid| !lives(*pid))).await;
        assert!(holder.run_dir.exists() && !holder.groups().is_empty());
        until("the lock is free", || sweep(rig.base.path()).unwrap() == [holder.run_dir.clone()])
            .await;
        assert!(!holder.run_dir.exists() && holder.groups().is_empty());
        assert!(rig.run_dir.exists() && living.memory_peak().is_some());
        living.kill(End::Killed);
        assert_eq!(within(living.wait()).await.end, End::Killed);
        rig.spawner.shutdown().await.unwrap();
        rig.assert_nothing_left();
    });
}

/// A spawner that has made its init and then hangs.
const HANGS: &str = "import os, socket, sys, time
control = socket.socket(fileno=0)
control.recv(4096)
init = os.fork()
if init == 0:
    time.sleep(600)
open(sys.argv[1], 'w').write(str(init))
socket.send_fds(control, [b'made'], [os.pidfd_open(init)])
time.sleep(600)
";

#[test]
fn a_spawner_that_hangs_in_its_set_up_is_ended_with_what_it_has_made() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("init");
    let (python, _) = interpreter();
    let command = ["-c", HANGS, file.to_str().unwrap()].map(OsString::from);
    let error = snowmelt_sandbox::Spawner::launch(snowmelt_sandbox::Options {
        run_dir: base.path().join("base/run"),
        spawner_command: [OsString::from(python)].into_iter().chain(command).collect(),
        parent_cgroup: format!("snowmelt/test-{}", SandboxId::new()),
        total: Default::default(),
        server_user: None,
    });
    assert!(matches!(error.err(), Some(Error::Launch { .. })));
    let init: i32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    assert!(!lives(init));
    assert_eq!(std::fs::read_dir(base.path().join("base")).unwrap().count(), 0);
}

#[test]
fn a_program_that_is_not_a_spawner_is_refused_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    for program in ["/bin/true", "/no/such/program"] {
        let error = snowmelt_sandbox::Spawner::launch(snowmelt_sandbox::Options {
            run_dir: base.path().join("run"),
            spawner_command: vec![program.into()],
            parent_cgroup: format!("snowmelt/test-{}", SandboxId::new()),
            total: Default::default(),
            server_user: None,
        });
        assert!(matches!(error.err(), Some(Error::Launch { .. })));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }
}

//! A spawner that dies, or whose system call fails, at each step of a request: nothing is left, and
//! a failure is reported. `strace` makes it die or fail at its n-th call.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use snowmelt_sandbox::sweep;
use snowmelt_types::SandboxId;

use crate::harness::{interpreter, is_root, spawner_program};

/// A server with a spawner, in separate processes.
struct Server {
    process: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    spawner: u32,
    base: tempfile::TempDir,
    cgroup: String,
    mark: String,
}

impl Server {
    fn start() -> Self {
        let base = tempfile::tempdir().unwrap();
        let mark = format!("mark-{}", SandboxId::new());
        let cgroup = format!("snowmelt/test-{}", SandboxId::new());
        let (python, prefix) = interpreter();
        let mut process = Command::new(spawner_program().with_file_name("steps"))
            .args([spawner_program().as_path(), &base.path().join("run"), cgroup.as_ref()])
            .args([Path::new(python), prefix, mark.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let words = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let spawner = line.trim().parse().unwrap();
        Self { process, words, answers, spawner, base, cgroup, mark }
    }

    fn ask(&mut self, word: &str) -> String {
        writeln!(self.words, "{word}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn must(&mut self, words: &[&str]) {
        for word in words {
            assert_eq!(self.ask(word), "ok", "{word}");
        }
    }

    /// Whether the spawner waits for the next request; waits until it does or is dead.
    fn spawner_lives(&self) -> bool {
        loop {
            match state_of(self.spawner) {
                Some('S') => return true,
                Some('Z' | 'X') | None => return false,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Processes with the mark in their arguments or their environment.
    fn processes(&self) -> Vec<u32> {
        let ours = self.process.id();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let marked = |pid: &u32| {
            let has = |file: &str| {
                let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                text.windows(self.mark.len()).any(|part| part == self.mark.as_bytes())
            };
            *pid != ours && (has("cmdline") || has("environ"))
        };
        pids.filter(marked).collect()
    }

    fn groups(&self) -> Vec<PathBuf> {
        let roots =
            ["", "memory", "cpu", "pids", "freezer"].map(|n| Path::new("/sys/fs/cgroup").join(n));
        roots.into_iter().map(|root| root.join(&self.cgroup)).filter(|p| p.exists()).collect()
    }

    /// Kills the server and sweeps until nothing is left.
    fn kill_and_sweep(mut self, moment: &str) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let run = self.base.path().join("run");
        let started = Instant::now();
        loop {
            sweep(self.base.path()).unwrap();
            let processes = self.processes();
            let groups = self.groups();
            if processes.is_empty() && groups.is_empty() && !run.exists() {
                break;
            }
            let waited = started.elapsed() < Duration::from_secs(30);
            assert!(waited, "{moment}: {processes:?} {groups:?} {}", run.exists());
            std::thread::sleep(Duration::from_millis(2));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(self.base.path().to_str().unwrap()), "{moment}: a mount is left");
    }
}

fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// `strace` on the spawner and on its descendants.
struct Tracer(Child);

impl Tracer {
    fn attach(spawner: u32, options: &[&str], output: &Path) -> Self {
        // To a file: strace stops when its output pipe is full.
        let output_file = tempfile::NamedTempFile::new().unwrap();
        let process = Command::new("strace")
            .args(["-f", "-o"])
            .arg(output)
            .args(options)
            .args(["-p", &spawner.to_string()])
            .stderr(output_file.reopen().unwrap())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !fs::read_to_string(output_file.path()).unwrap().contains("attached") {
            assert!(started.elapsed() < Duration::from_secs(20), "strace does not attach");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(process)
    }

    fn detach(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // It may have ended with the traced process.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.0.wait().unwrap();
    }
}

fn can_trace() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return false;
    }
    let there = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("skipped: strace is not installed");
    }
    there
}

/// Kills the spawner at its n-th call after a request, for every n until it has answered; the
/// server dies at the same time.
fn kill_at_each_step(prepare: &[&str], word: &str, stride: usize) {
    kill_at_each_call("all", prepare, word, stride);
}

/// [`kill_at_each_step`] with the n-th of these calls only.
fn kill_at_each_call(calls: &str, prepare: &[&str], word: &str, stride: usize) {
    if !can_trace() {
        return;
    }
    let first = first_step(stride);
    for step in (first..).step_by(stride) {
        let mut server = Server::start();
        server.must(prepare);
        let inject = format!("inject={calls}:signal=SIGKILL:when={step}");
        let tracer = Tracer::attach(server.spawner, &["-e", &inject], Path::new("/dev/null"));
        let answer = server.ask(word);
        let over = answer == "ok" && server.spawner_lives();
        server.kill_and_sweep(&format!("{word}, killed at call {step} of {calls}, every {stride}"));
        tracer.detach();
        if over {
            assert!(step > 2, "{word} took {step} calls");
            return;
        }
    }
}

/// A different one each time, so that in the long run all are tested; it is part of the failure
/// message.
fn first_step(stride: usize) -> usize {
    1 + std::process::id() as usize % stride
}

#[test]
fn killed_while_a_program_starts() {
    kill_at_each_step(&["start"], "start", 2);
}

#[test]
fn killed_while_the_first_program_of_a_root_starts() {
    kill_at_each_step(&[], "start", 31);
}

#[test]
fn killed_while_lanes_are_made_and_share_a_burst() {
    kill_at_each_step(&["start"], "many", 19);
}

#[test]
fn killed_while_a_program_ends() {
    kill_at_each_step(&["start"], "end", 1);
}

#[test]
fn killed_while_a_zygote_starts() {
    kill_at_each_step(&["start"], "zygote", 11);
}

/// One of these calls opens the map of user ids, for which the new process waits: it does not wait
/// for a dead spawner, whose socket it would keep open.
#[test]
fn killed_while_a_zygote_waits_for_its_id_maps() {
    kill_at_each_call("openat", &["start"], "zygote", 1);
}

#[test]
fn killed_while_a_zygote_forks() {
    kill_at_each_step(&["zygote"], "fork", 5);
}

#[test]
fn killed_while_a_child_of_a_zygote_ends() {
    kill_at_each_step(&["zygote", "fork"], "leave", 2);
}

/// The calls of a start, in the spawner and in the new process, except the return to the spawner's
/// own namespaces, whose failure ends it, and the messages to the server.
const FALLIBLE: &str = "fsopen,fsconfig,fsmount,mount,move_mount,open_tree,mount_setattr,openat,openat2,\
    mkdir,mkdirat,write,socket,socketpair,bind,listen,pipe2,clone3,unshare,pidfd_open,setresuid,\
    setresgid,setgroups,capset,prctl,prlimit64,landlock_create_ruleset,landlock_add_rule,\
    landlock_restrict_self,seccomp,execve,dup2,close_range,chdir,fchdir,pivot_root";

/// Makes the n-th of those calls fail with EIO, in the spawner and in each process that it makes:
/// an answer arrives, an error has its code, and the resources made before it are released.
fn fail_at_each_step(prepare: &[&str], word: &str, undo: &str, stride: usize) {
    if !can_trace() {
        return;
    }
    let mut server = Server::start();
    server.must(prepare);
    server.must(&[word, undo]);
    let calls = most_calls(&mut server, word);
    server.must(&[undo]);
    assert!(calls > 5, "{word} makes {calls} calls");
    let before = Resources::of(&server);
    let mut failures = 0;
    for step in (first_step(stride)..=calls).step_by(stride) {
        let inject = format!("inject={FALLIBLE}:error=EIO:when={step}");
        let tracer = Tracer::attach(server.spawner, &["-e", &inject], Path::new("/dev/null"));
        let answer = server.ask(word);
        tracer.detach();
        let moment = format!("{word}, call {step} of {calls} failed: {answer}");
        assert!(server.spawner_lives(), "{moment}");
        match &*answer {
            "ok" => server.must(&[undo]),
            _ => {
                assert!(answer.starts_with("error SM-05"), "{moment}");
                failures += 1;
            }
        }
        Resources::of(&server).shrinks_to(&before, &server, &moment);
    }
    assert!(failures > 0, "no call of {word} failed");
    server.must(&[word, undo]);
    server.kill_and_sweep("after all failures");
}

/// The highest number of those calls in one process.
fn most_calls(server: &mut Server, word: &str) -> usize {
    let output = server.base.path().join("trace");
    let trace = format!("trace={FALLIBLE}");
    let tracer = Tracer::attach(server.spawner, &["-e", &trace], &output);
    server.must(&[word]);
    tracer.detach();
    let text = fs::read_to_string(&output).unwrap();
    fs::remove_file(output).unwrap();
    let mut counts = HashMap::<&str, usize>::new();
    for line in text.lines().filter(|line| line.contains('(')) {
        *counts.entry(line.split_whitespace().next().unwrap()).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

#[test]
fn a_failing_step_of_a_start_is_reported_and_undone() {
    fail_at_each_step(&[], "start", "end", 1);
}

#[test]
fn a_failing_step_of_a_fork_is_reported_and_undone() {
    fail_at_each_step(&["zygote"], "fork", "leave", 4);
}

/// The resources of the spawner.
#[derive(Debug)]
struct Resources {
    /// Except files of control groups, of which a group keeps more once it has been used.
    descriptors: usize,
    of_groups: usize,
    processes: usize,
    mounts: usize,
    namespaces: usize,
    resident_kib: u64,
}

impl Resources {
    fn of(server: &Server) -> Self {
        let proc = PathBuf::from(format!("/proc/{}", server.spawner));
        let processes = server.processes();
        let spaces =
            processes.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/ns")).ok());
        let spaces = spaces.flatten().flatten().filter_map(|ns| fs::read_link(ns.path()).ok());
        let status = fs::read_to_string(proc.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let files = fs::read_dir(proc.join("fd")).unwrap().flatten();
        let files = files.filter_map(|file| fs::read_link(file.path()).ok());
        let (of_groups, others): (Vec<_>, Vec<_>) =
            files.partition(|file| file.starts_with("/sys/fs/cgroup"));
        Self {
            descriptors: others.len(),
            of_groups: of_groups.len(),
            mounts: fs::read_to_string(proc.join("mountinfo")).unwrap().lines().count(),
            namespaces: spaces.collect::<std::collections::HashSet<_>>().len(),
            processes: processes.len(),
            resident_kib: resident.split_whitespace().next().unwrap().parse().unwrap(),
        }
    }

    /// Waits until it has no more than before: a killed process disappears a moment later.
    fn shrinks_to(mut self, before: &Self, server: &Server, moment: &str) {
        let started = Instant::now();
        while self.descriptors > before.descriptors
            || self.processes > before.processes
            || self.mounts > before.mounts
            || self.namespaces > before.namespaces
        {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{moment}: {self:?} of {before:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
            self = Self::of(server);
        }
    }
}

/// After a mixed load, in an order given by a seed, the spawner has the same resources as after the
/// same load before, when its pools and caches were filled.
#[test]
fn a_mixed_load_leaks_no_resources() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    let mut server = Server::start();
    let seed = u64::from(std::process::id()) | 1;
    load(&mut server, seed);
    let before = Resources::of(&server);
    let groups = count_groups(&server);
    load(&mut server, seed);
    let moment = format!("seed {seed}");
    Resources::of(&server).shrinks_to(&before, &server, &moment);
    let after = Resources::of(&server);
    assert!(after.resident_kib < before.resident_kib + 4096, "{moment}: {after:?} of {before:?}");
    // The preforked child of a zygote, which is made when there is time, may need one more.
    let most = groups + server.groups().len();
    assert!(count_groups(&server) <= most, "{moment}");
    // One entry file for each folder of a group, and five files to read at most.
    assert!(after.of_groups <= 3 * most, "{moment}: {after:?}, {most} folders");
    server.kill_and_sweep(&moment);
}

/// Programs, children of a zygote, failures and ends; at the end nothing runs.
fn load(server: &mut Server, seed: u64) {
    const STEPS: [(&str, &str); 2] = [("start", "end"), ("fork", "leave")];
    let mut random = seed;
    let mut live = [0, 0];
    server.must(&["zygote"]);
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let choice = (random >> 33) % 5;
        let kind = (random >> 40) as usize % 2;
        match choice {
            0 | 1 if live[kind] < 20 => {
                server.must(&[STEPS[kind].0]);
                live[kind] += 1;
            }
            2 | 3 if live[kind] > 0 => {
                server.must(&[STEPS[kind].1]);
                live[kind] -= 1;
            }
            _ => assert!(server.ask("wrong").starts_with("error SM-05"), "seed {seed}"),
        }
    }
    for (kind, count) in live.into_iter().enumerate() {
        (0..count).for_each(|_| server.must(&[STEPS[kind].1]));
    }
    server.must(&["retire"]);
}

fn count_groups(server: &Server) -> usize {
    let folders = server.groups().into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    folders.flatten().filter(|entry| entry.path().is_dir()).count()
}

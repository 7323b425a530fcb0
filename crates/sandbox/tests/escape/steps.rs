//! A spawner that dies, or whose system call fails, at each step of what it was asked for: nothing
//! is left, and a failure is told. `strace` makes it die or fail at its n-th call.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use snowmelt_sandbox::sweep;
use snowmelt_types::SandboxId;

use crate::harness::{interpreter, is_root, spawner_program};

/// A server with a spawner, in processes of their own.
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

    /// Whether it waits for the next request, once it does that or is dead.
    fn spawner_lives(&self) -> bool {
        loop {
            match state_of(self.spawner) {
                Some('S') => return true,
                Some('Z' | 'X') | None => return false,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Processes that the mark names, by their arguments or their environment.
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
        let begun = Instant::now();
        loop {
            sweep(self.base.path()).unwrap();
            let (processes, groups) = (self.processes(), self.groups());
            if processes.is_empty() && groups.is_empty() && !run.exists() {
                break;
            }
            let waited = begun.elapsed() < Duration::from_secs(30);
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

/// `strace` on the spawner and on all that it makes.
struct Tracer(Child);

impl Tracer {
    fn attach(spawner: u32, options: &[&str], output: &Path) -> Self {
        // To a file: strace gives up when nobody reads what it says.
        let said = tempfile::NamedTempFile::new().unwrap();
        let process = Command::new("strace")
            .args(["-f", "-o"])
            .arg(output)
            .args(options)
            .args(["-p", &spawner.to_string()])
            .stderr(said.reopen().unwrap())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !fs::read_to_string(said.path()).unwrap().contains("attached") {
            assert!(begun.elapsed() < Duration::from_secs(20), "strace does not attach");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(process)
    }

    fn detach(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // It may have ended with what it traced.
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

/// Kills the spawner at its n-th call after it was asked, for every n until it has answered; the
/// server dies at the same time.
fn kill_at_each_step(prepare: &[&str], word: &str, stride: usize) {
    if !can_trace() {
        return;
    }
    let first = first_step(stride);
    for step in (first..).step_by(stride) {
        let mut server = Server::start();
        server.must(prepare);
        let inject = format!("inject=all:signal=SIGKILL:when={step}");
        let tracer = Tracer::attach(server.spawner, &["-e", &inject], Path::new("/dev/null"));
        let answer = server.ask(word);
        let over = answer == "ok" && server.spawner_lives();
        server.kill_and_sweep(&format!("{word}, killed at call {step} of every {stride}"));
        tracer.detach();
        if over {
            assert!(step > 2, "{word} took {step} calls");
            return;
        }
    }
}

/// Another one each time, so that in the long run none is left out; it stands in the failure.
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

#[test]
fn killed_while_a_zygote_forks() {
    kill_at_each_step(&["zygote"], "fork", 5);
}

#[test]
fn killed_while_a_child_of_a_zygote_ends() {
    kill_at_each_step(&["zygote", "fork"], "leave", 2);
}

/// What a start does, in the spawner and in the new process, but for going back to the spawner's
/// own namespaces, which ends it when it fails, and for what it says to the server.
const FALLIBLE: &str = "fsopen,fsconfig,fsmount,mount,move_mount,open_tree,mount_setattr,openat,openat2,\
    mkdir,mkdirat,write,socket,socketpair,bind,listen,pipe2,clone3,unshare,pidfd_open,setresuid,\
    setresgid,setgroups,capset,prctl,prlimit64,landlock_create_ruleset,landlock_add_rule,\
    landlock_restrict_self,seccomp,execve,dup2,close_range,chdir,fchdir,pivot_root";

/// Lets the n-th of those calls fail with EIO, of the spawner and of each process that it makes:
/// an answer comes, an error has its code, and what was made on the way is gone.
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
    let (before, mut failures) = (Held::of(&server), 0);
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
        Held::of(&server).shrinks_to(&before, &server, &moment);
    }
    assert!(failures > 0, "no call of {word} failed");
    server.must(&[word, undo]);
    server.kill_and_sweep("after all failures");
}

/// The most of those calls that one process makes.
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
fn a_failing_step_of_a_start_is_told_and_undone() {
    fail_at_each_step(&[], "start", "end", 1);
}

#[test]
fn a_failing_step_of_a_fork_is_told_and_undone() {
    fail_at_each_step(&["zygote"], "fork", "leave", 4);
}

/// What the spawner holds.
#[derive(Debug)]
struct Held {
    /// But for those of files of control groups, of which a group keeps more once it has served.
    descriptors: usize,
    of_groups: usize,
    processes: usize,
    mounts: usize,
    namespaces: usize,
    resident_kib: u64,
}

impl Held {
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

    /// Waits until it holds no more: a process that was killed goes a moment later.
    fn shrinks_to(mut self, before: &Self, server: &Server, moment: &str) {
        let begun = Instant::now();
        while self.descriptors > before.descriptors
            || self.processes > before.processes
            || self.mounts > before.mounts
            || self.namespaces > before.namespaces
        {
            assert!(begun.elapsed() < Duration::from_secs(20), "{moment}: {self:?} of {before:?}");
            std::thread::sleep(Duration::from_millis(5));
            self = Self::of(server);
        }
    }
}

/// After much of everything, in an order that a seed gives, the spawner holds what it held after
/// the same once before, when its pools and caches were filled.
#[test]
fn a_mixed_load_leaves_the_spawner_as_it_was() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    let mut server = Server::start();
    let seed = u64::from(std::process::id()) | 1;
    load(&mut server, seed);
    let (before, groups) = (Held::of(&server), count_groups(&server));
    load(&mut server, seed);
    let moment = format!("seed {seed}");
    Held::of(&server).shrinks_to(&before, &server, &moment);
    let after = Held::of(&server);
    assert!(after.resident_kib < before.resident_kib + 4096, "{moment}: {after:?} of {before:?}");
    // The spare of a zygote, which comes when there is time for it, may need one more.
    let most = groups + server.groups().len();
    assert!(count_groups(&server) <= most, "{moment}");
    // One door for each folder of a group, and five files to read at most.
    assert!(after.of_groups <= 3 * most, "{moment}: {after:?}, {most} folders");
    server.kill_and_sweep(&moment);
}

/// Programs, children of a zygote, failures and ends; in the end nothing runs.
fn load(server: &mut Server, seed: u64) {
    const STEPS: [(&str, &str); 2] = [("start", "end"), ("fork", "leave")];
    let (mut random, mut live) = (seed, [0, 0]);
    server.must(&["zygote"]);
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (choice, kind) = ((random >> 33) % 5, (random >> 40) as usize % 2);
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

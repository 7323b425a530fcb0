//! The memory of sandboxes that have no control group: the lane looks at it, and ends a sandbox that
//! exceeds its limit.
//!
//! Counted are the private memory of all processes of the sandbox with its page tables, and its
//! scratch. The system call policy of such a platform lets no program have memory that is in neither
//! (`policy/no-control-group.json`).
//!
//! Invariant: a look takes a small part of the lane's time, whatever the sandboxes do: the next one
//! comes later when it took long.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::statfs;
use snowmelt_types::ByteSize;

use super::Service;
use crate::spawner::zygote::protocol::SandboxToken;

/// The time between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a look, as a multiple of the time that it took.
const PAUSE_FACTOR: u32 = 20;

/// The pauses before further looks at a sandbox that seems to exceed its limit; together a few
/// milliseconds, in which the lane does nothing else.
const SECOND_LOOKS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(3)];

/// The longest way from a process up to the first one of its sandbox.
const MAX_DEPTH: usize = 4096;

/// The number of the file system of a scratch in statfs(2).
const TMPFS: i64 = 0x0102_1994;

/// A process, as the kernel describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProcessMemory {
    parent: i32,
    /// Private memory, in main memory and swapped out, and page tables; in bytes.
    bytes: u64,
}

impl Service {
    /// The time of the next look; `None` if nothing has to be looked at.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_watched = self.groups.backend().is_watched() && !self.records.is_empty();
        is_watched.then_some(self.look_due)
    }

    /// Looks at the memory of all sandboxes of this lane if that is due, and ends those that exceed
    /// their limits.
    pub(super) fn look_at_memory(&mut self, now: Instant) {
        if self.next_look().is_none_or(|due| due > now) {
            return;
        }
        for token in self.too_large() {
            self.kill_sandbox(token);
        }
        let pause = (now.elapsed() * PAUSE_FACTOR).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.look_due = Instant::now() + pause;
    }

    fn too_large(&mut self) -> Vec<SandboxToken> {
        let mut used = self.used(|_, process| process.bytes, |_| true);
        let exact = |pid: i32, process: &ProcessMemory| exact(pid, process.bytes);
        for pause in SECOND_LOOKS {
            let is_over = |token: &SandboxToken| {
                let record = self.records.get(token);
                record.is_some_and(|record| used[token] > record.group.memory_limit())
            };
            let suspects: HashSet<SandboxToken> = used.keys().copied().filter(is_over).collect();
            if suspects.is_empty() {
                break;
            }
            std::thread::sleep(pause);
            // Pages that processes share after a fork count for each of them so far. Between vfork and
            // exec a process has all memory of its parent, also for the kernel's shares: a later look
            // finds that it has its own. Processes are listed again, for a program may hand its memory
            // to a new one.
            let again = self.used(exact, |token| suspects.contains(token));
            for token in suspects {
                let now = again.get(&token).copied().unwrap_or(ByteSize(0));
                used.entry(token).and_modify(|used| *used = now.min(*used));
            }
        }
        let mut over = Vec::new();
        for (token, used) in used {
            let Some(record) = self.records.get(&token) else { continue };
            if self.groups.count_memory(&record.group, used) {
                over.push(token);
            }
        }
        over
    }

    /// Adds up the memory of sandboxes that are asked for.
    fn used(
        &self,
        bytes: impl Fn(i32, &ProcessMemory) -> u64,
        is_asked: impl Fn(&SandboxToken) -> bool,
    ) -> HashMap<SandboxToken, ByteSize> {
        let started = self.records.iter().filter(|(_, record)| record.pid != 0);
        let first: HashMap<i32, SandboxToken> =
            started.map(|(token, record)| (record.pid, *token)).collect();
        let processes = processes();
        let mut used: HashMap<SandboxToken, ByteSize> = HashMap::new();
        for (pid, process) in &processes {
            let Some(token) = sandbox_of(*pid, &first, &processes).filter(&is_asked) else {
                continue;
            };
            let sum = used.entry(token).or_insert_with(|| {
                ByteSize(self.records.get(&token).map_or(0, |record| scratch_of(record.pid)))
            });
            sum.0 += bytes(*pid, process);
        }
        used
    }
}

/// All processes of the spawner's pid namespace.
fn processes() -> HashMap<i32, ProcessMemory> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read =
        |pid: i32| Some((pid, status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)));
    // A process that has ended meanwhile has no memory.
    pids.filter_map(read).collect()
}

fn status(text: &str) -> ProcessMemory {
    let mut found = ProcessMemory::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "PPid" => found.parent = value.trim().parse().unwrap_or(0),
            "RssAnon" | "VmSwap" | "VmPTE" => found.bytes += kilobytes(value),
            _ => {}
        }
    }
    found
}

fn kilobytes(value: &str) -> u64 {
    value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The sandbox of a process: that of the nearest process above it, or itself, that is the first of a
/// sandbox. The orphans in a pid namespace are children of its first process.
fn sandbox_of(
    pid: i32,
    first: &HashMap<i32, SandboxToken>,
    processes: &HashMap<i32, ProcessMemory>,
) -> Option<SandboxToken> {
    let mut at = pid;
    for _ in 0..MAX_DEPTH {
        if let Some(token) = first.get(&at) {
            return Some(*token);
        }
        at = processes.get(&at)?.parent;
    }
    None
}

/// The share of a process in its private memory, where several processes have the same pages since
/// a fork; `otherwise` if the kernel does not tell.
fn exact(pid: i32, otherwise: u64) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return otherwise;
    };
    share(&text).unwrap_or(otherwise)
}

fn share(text: &str) -> Option<u64> {
    let of = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map(kilobytes)
    };
    Some(of("Pss_Anon:")? + of("SwapPss:").unwrap_or(0))
}

/// The bytes in the scratch of a sandbox, by its first process.
fn scratch_of(pid: i32) -> u64 {
    let Ok(found) = statfs(format!("/proc/{pid}/root/tmp")) else { return 0 };
    // Before its mounts are attached, the process may see another file system there.
    let is_scratch = found.f_type == TMPFS;
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    if is_scratch { used.saturating_mul(found.f_bsize as u64) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_description_of_a_process() {
        let text = "Name:\tpython3\nPid:\t7\nPPid:\t5\nVmRSS:\t 900 kB\nRssAnon:\t     100 kB\n\
                    RssFile:\t 800 kB\nVmPTE:\t 20 kB\nVmSwap:\t 3 kB\nThreads:\t1\n";
        assert_eq!(status(text), ProcessMemory { parent: 5, bytes: 123 << 10 });
        assert_eq!(status("Name:\tkthreadd\nPPid:\t0\n"), ProcessMemory::default());
        let rollup = "5500-7ff [rollup]\nRss: 9 kB\nPss: 8 kB\nPss_Anon:   6 kB\nSwapPss:  1 kB\n";
        assert_eq!((share(rollup), share("Rss: 9 kB\n")), (Some(7 << 10), None));
    }

    #[test]
    fn a_process_counts_for_the_nearest_sandbox_above_it() {
        let process = |parent| ProcessMemory { parent, bytes: 1 };
        // 2 is a lane, 3 a zygote, 4 its child, 5 a process of the child, 6 one of the zygote.
        let processes = HashMap::from([
            (2, process(0)),
            (3, process(2)),
            (4, process(3)),
            (5, process(4)),
            (6, process(3)),
        ]);
        let first = HashMap::from([(3, 30), (4, 40)]);
        let of = |pid| sandbox_of(pid, &first, &processes);
        assert_eq!(
            [2, 3, 4, 5, 6, 7].map(of),
            [None, Some(30), Some(40), Some(40), Some(30), None]
        );
    }

    #[test]
    fn own_memory_is_seen() {
        let own = std::process::id() as i32;
        let before = processes()[&own];
        let memory = vec![1_u8; 64 << 20];
        let after = processes()[&own];
        assert!(after.bytes >= before.bytes + (48 << 20), "{before:?} {after:?}");
        assert!(exact(own, 0) >= 48 << 20 && memory[7] == 1);
    }
}

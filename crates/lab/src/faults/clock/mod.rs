//! The wall clock of one machine of a lab, an hour ahead or behind.
//!
//! All namespaces of a machine share its wall clock, and programs read it without a system call, by
//! functions that the kernel maps into each process (the vDSO). So these functions are replaced in
//! the processes of one host, by functions that add an offset. The monotonic clock stays as it is,
//! as on a host whose wall clock is set.
//!
//! Invariant: no thread runs in a function while it is replaced: all threads are stopped, and none
//! has stopped in the kernel's function. A thread may have stopped in a function that was replaced
//! before: a program that reads the clock all the time is nearly always in its system call. In such
//! a function only the number of seconds is written, and with 0 seconds the clock is right.
//!
//! Boundary: programs that are started later have the right time; processes that are forked later
//! have that of their parent.

mod vdso;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{self, Process};
use crate::{Error, Result};

use vdso::{ClockChange, Code, Vdso};

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The limit on the wait until all threads are stopped outside of the functions to replace.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets the wall clock of a process and all below it `ahead` seconds ahead of the machine's; 0 is
/// the right time.
pub(crate) fn set(root: Process, ahead: i64) -> Result<()> {
    let failed = || Error::step("set the clock of a host");
    let vdso = Vdso::own().map_err(failed())?;
    let code = vdso.clock(ahead).map_err(failed())?;
    // A frozen host stays frozen.
    let was_stopped = root.is_stopped();
    let replaced = stop(root, &vdso, &code).and_then(|processes| {
        let each = processes.iter().try_for_each(|process| replace(*process, &vdso, &code));
        each.map_err(failed())
    });
    if !was_stopped {
        process::thaw(&root.with_below())?;
    }
    replaced
}

/// Stops all processes, with no thread in the functions to replace.
fn stop(root: Process, vdso: &Vdso, code: &[Code]) -> Result<Vec<Process>> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    loop {
        root.freeze()?;
        let processes = root.with_below();
        match processes.iter().map(|process| threads(*process, vdso, code)).max() {
            None | Some(Threads::Elsewhere) => return Ok(processes),
            Some(Threads::Running) => {}
            // It goes on, and is elsewhere in a moment.
            Some(Threads::Inside) => process::thaw(&processes)?,
        }
        if Instant::now() > deadline {
            return Err(Error::step("stop a host to set its clock")(ErrorKind::TimedOut.into()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The positions of the threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Threads {
    /// All threads are stopped, outside of the functions to replace.
    Elsewhere,
    /// A thread still runs.
    Running,
    /// A thread has stopped in a function to replace.
    Inside,
}

/// Finds where the threads of a process are. Those of a process that has ended meanwhile are
/// nowhere.
fn threads(process: Process, vdso: &Vdso, code: &[Code]) -> Threads {
    let Some((memory, base)) = memory(process, vdso) else { return Threads::Elsewhere };
    let is_replaced =
        |it: &&Code| it.change(&memory, base).is_ok_and(|change| change == ClockChange::Function);
    let inside: Vec<Range<u64>> =
        code.iter().filter(is_replaced).map(|code| code.range(base)).collect();
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten();
    let at = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("syscall")).ok()?;
        // Its last number is the address of the next instruction.
        let at = text.trim_end().rsplit_once("0x");
        Some(match at.and_then(|(_, at)| u64::from_str_radix(at, 16).ok()) {
            Some(at) if inside.iter().any(|range| range.contains(&at)) => Threads::Inside,
            Some(_) => Threads::Elsewhere,
            None => Threads::Running,
        })
    };
    tasks.flatten().filter_map(at).max().unwrap_or(Threads::Elsewhere)
}

/// Replaces the functions of a process. A process that has ended has none.
fn replace(process: Process, vdso: &Vdso, code: &[Code]) -> io::Result<()> {
    let Some((memory, base)) = memory(process, vdso) else { return Ok(()) };
    match code.iter().try_for_each(|code| code.apply(&memory, base)) {
        Err(_) if !process.is_alive() => Ok(()),
        done => done,
    }
}

/// Opens the memory of a process, and returns the address of its vDSO. `None` if the process does
/// not have the same functions as this one, such as a 32-bit program.
fn memory(process: Process, vdso: &Vdso) -> Option<(File, u64)> {
    let range = vdso::mapped(&process.pid.to_string()).ok().flatten()?;
    let mut header = vec![0; vdso.header().len()];
    let path = format!("/proc/{}/mem", process.pid);
    let memory = File::options().read(true).write(true).open(path).ok()?;
    memory.read_exact_at(&mut header, range.start).ok()?;
    (header == vdso.header()).then_some((memory, range.start))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::process::tests::ChildProcess;

    /// A Python program that prints the clocks of a thread for each line that it reads, while
    /// another thread reads them all the time. The clock 5 is `CLOCK_REALTIME_COARSE`.
    const CLOCKS: &str = "
import sys, threading, time
def read():
    while True:
        time.time(), time.monotonic()
threading.Thread(target=read, daemon=True).start()
for _ in sys.stdin:
    print(time.time(), time.clock_gettime(5), time.monotonic(), flush=True)
";

    fn now() -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
    }

    #[test]
    fn the_wall_clock_of_a_process_and_those_below_it_is_set_and_set_right() {
        let mut python = Command::new("python3");
        python.args(["-c", &format!("import os\nif os.fork(): os.wait(); os._exit(0)\n{CLOCKS}")]);
        let mut child = ChildProcess::by(python.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut clocks = || -> Vec<f64> {
            writeln!(input).unwrap();
            let line = lines.next().unwrap().unwrap();
            line.split(' ').map(|number| number.parse().unwrap()).collect()
        };
        let mut monotonic = clocks()[2];
        let root = child.process();
        for ahead in [3600, -3600, 0, 3600, 0] {
            let before = now();
            set(root, ahead).unwrap();
            let read = clocks();
            let after = now();
            // Coarse clocks are some milliseconds behind.
            let shifted = before - 0.1 + ahead as f64..=after + 0.1 + ahead as f64;
            assert!(shifted.contains(&read[0]) && shifted.contains(&read[1]), "{ahead}: {read:?}");
            assert!(read[2] > monotonic && read[2] - monotonic < 600.0, "{ahead}: {read:?}");
            monotonic = read[2];
        }
    }

    #[test]
    fn a_clock_that_was_set_is_set_again_while_it_is_read() {
        let code = "import time\nwhile True: time.time()";
        let child = ChildProcess::by(Command::new("python3").args(["-c", code]));
        let root = child.process();
        let vdso = Vdso::own().unwrap();
        set(root, 3600).unwrap();
        let is_in_a_function = || {
            let at = fs::read_to_string(format!("/proc/{}/syscall", root.pid)).unwrap();
            // A thread that is just being stopped still runs.
            let Some((_, at)) = at.trim_end().rsplit_once("0x") else { return false };
            let at = u64::from_str_radix(at, 16).unwrap();
            let (_, base) = memory(root, &vdso).unwrap();
            vdso.clock(0).unwrap().iter().any(|clock| clock.range(base).contains(&at))
        };
        loop {
            root.freeze().unwrap();
            while !root.is_stopped() {
                thread::sleep(POLL_INTERVAL);
            }
            if is_in_a_function() {
                break;
            }
            process::thaw(&[root]).unwrap();
            thread::sleep(POLL_INTERVAL);
        }
        for ahead in [-3600, 0] {
            let code = vdso.clock(ahead).unwrap();
            assert_eq!(threads(root, &vdso, &code), Threads::Elsewhere);
            set(root, ahead).unwrap();
            assert!(is_in_a_function(), "it did not stay stopped");
        }
    }

    #[test]
    fn a_stopped_process_stays_stopped() {
        let child = ChildProcess::by(Command::new("sleep").arg("3600"));
        let root = child.process();
        root.freeze().unwrap();
        while !root.is_stopped() {
            thread::sleep(POLL_INTERVAL);
        }
        set(root, 3600).unwrap();
        assert!(root.is_stopped());
    }
}

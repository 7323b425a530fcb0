//! The floor: one clone into the namespaces that a sandbox has, a root put in place, an exec.
//!
//! No control group, no limits, no ids, no filter, no privileges taken away, nobody to talk to:
//! whatever a sandbox costs beyond this is ours to justify. Each lane is a process of its own with
//! one thread and two mounts, because a clone copies what its parent has.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::pipe::{PipeFlags, pipe_with};
use snowmelt_bench_lean::samples::{Bounds, Sample, Series, Turns};
use snowmelt_kernel::fds;
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::process::{Cloned, clone_into, reap};
use snowmelt_sandbox::NAMESPACES;

/// The four binds of a root with programs and libraries.
const BINDS: [&str; 4] = ["usr", "bin", "lib", "lib64"];

/// Where a lane has the root that it copies, and where a child attaches its copy.
const TEMPLATE: &str = "template";
const NEW_ROOT: &str = "/root";

#[derive(Args)]
pub struct Options {
    /// How many at once; one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    concurrency: Vec<usize>,
    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Args)]
pub struct WorkerOptions {
    #[command(flatten)]
    bounds: Bounds,
}

/// Prints a line of JSON for each concurrency.
pub fn run(options: &Options) -> Result<()> {
    for &concurrency in &options.concurrency {
        let share = options.bounds.count.div_ceil(concurrency);
        let bounds = Bounds { count: share, ..options.bounds };
        let lanes: Result<Vec<_>> = (0..concurrency).map(|_| Lane::start(bounds)).collect();
        let mut lanes = lanes?;
        let series = Series::begin()?;
        lanes.iter_mut().try_for_each(Lane::go)?;
        let mut samples = Vec::new();
        for lane in lanes {
            samples.extend(lane.finish()?);
        }
        println!("{}", serde_json::to_string(&series.end(concurrency, &samples)?)?);
    }
    Ok(())
}

/// A process that makes one child after the other. When we end, so does its input, and it.
struct Lane {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Lane {
    fn start(bounds: Bounds) -> Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg("floor-worker")
            .args(["--count", &bounds.count.to_string()])
            .args(["--seconds", &bounds.seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take().context("its input is a pipe")?;
        let answers = process.stdout.take().context("its output is a pipe")?;
        let mut lane = Self { process, orders, answers: BufReader::new(answers) };
        ensure!(lane.answer()? == "ready\n", "a lane of the floor did not start");
        Ok(lane)
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.orders.write_all(b"go\n")?)
    }

    fn finish(mut self) -> Result<Vec<Sample>> {
        let samples = serde_json::from_str(&self.answer()?)?;
        ensure!(self.process.wait()?.success(), "a lane of the floor failed");
        Ok(samples)
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }
}

/// One lane: makes ready, waits for the word, prints its samples.
pub fn work(options: &WorkerOptions) -> Result<()> {
    let template = enter_stage().context("cannot make the namespaces of the floor")?;
    for _ in 0..5 {
        sample(&template)?;
    }
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let turns = Turns::new(options.bounds);
    let mut samples = Vec::new();
    while turns.take() {
        samples.push(sample(&template)?);
    }
    println!("{}", serde_json::to_string(&samples)?);
    Ok(())
}

/// Leaves the host's mounts behind for an almost empty namespace, as the spawner does, and puts
/// together the root that each child gets a copy of.
fn enter_stage() -> io::Result<OwnedFd> {
    let binds: io::Result<Vec<_>> = BINDS
        .iter()
        .map(|name| Path::new("/").join(name))
        .filter(|path| path.exists())
        .map(|path| Ok((mount::copy(&path)?, path)))
        .collect();
    let binds = binds?;
    unshare(flags::MOUNT | flags::NETWORK)?;
    mount::make_private()?;
    let top = tmpfs()?;
    mount::attach_at(&top, CWD, Path::new("/tmp"))?;
    for name in [TEMPLATE, NEW_ROOT.trim_start_matches('/'), "proc"] {
        mkdirat(&top, name, Mode::from_raw_mode(0o755))?;
    }
    // The count of threads is read there before each clone.
    let proc = mount::fresh("proc", &[], mount::inert())?;
    mount::attach_at(proc, &top, Path::new("proc"))?;
    let template = tmpfs()?;
    mount::attach_at(&template, &top, Path::new(TEMPLATE))?;
    for (tree, path) in binds {
        let name = path.strip_prefix("/").unwrap_or(&path);
        mkdirat(&template, name, Mode::from_raw_mode(0o755))?;
        mount::attach_at(tree, &template, name)?;
    }
    mount::set_attributes(&template, mount::inert())?;
    mount::pivot(&top)?;
    Ok(template)
}

fn tmpfs() -> io::Result<OwnedFd> {
    mount::fresh("tmpfs", &[("size", "64k"), ("mode", "755")], Attributes::empty())
}

fn sample(template: &OwnedFd) -> Result<Sample> {
    let begun = Instant::now();
    let root = mount::copy_at(template, Path::new(""))?;
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = clone_into(NAMESPACES, None, || {
        let Err(error) = become_no_op(&root, &input);
        eprintln!("the floor's child: {error}");
        1
    })?;
    drop(input);
    let read = File::from(output).read(&mut [0; 1])?;
    let first_byte = begun.elapsed();
    drop(root);
    ensure!(read == 1 && wait(&child)? == 0, "a child of the floor failed");
    Ok(Sample { first_byte, whole: begun.elapsed() })
}

fn become_no_op(root: &OwnedFd, output: &OwnedFd) -> io::Result<Infallible> {
    mount::attach_at(root, CWD, Path::new(NEW_ROOT))?;
    mount::pivot(root)?;
    fds::place(output.as_fd(), 1)?;
    Err(Command::new("/bin/busybox").args(["echo", "x"]).env_clear().exec())
}

fn wait(child: &Cloned) -> io::Result<i32> {
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None)?;
    let reaped = reap(child.pidfd.as_fd())?.ok_or(io::ErrorKind::WouldBlock)?;
    Ok(reaped.code)
}

//! The floor: what the kernel alone takes to run a program in the namespaces of a sandbox.
//!
//! No control group, no limits, no ids, no filter, no scratch, no privileges taken away, nobody to
//! talk to: whatever a sandbox costs beyond this is ours to justify. Each lane is a process of its
//! own with one thread, a root of four binds, and no other mounts, because a clone copies what its
//! parent has. The bare floor clones in borrowed memory, as vfork does, and executes; with
//! `--mount-root` it forks, and the child gets a copy of the root by mounts of its own, as one
//! would do it by the book.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::pipe::{PipeFlags, pipe_with};
use snowmelt_bench_lean::samples::{Bounds, Sample, Series, Turns};
use snowmelt_kernel::clone::{Cloned, clone_into};
use snowmelt_kernel::execute::ExecProgram;
use snowmelt_kernel::fds;
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::process::reap;
use snowmelt_kernel::vfork::{Stack, clone_vfork};
use snowmelt_sandbox::NAMESPACES;

/// The four binds of a root with programs and libraries.
const BINDS: [&str; 4] = ["usr", "bin", "lib", "lib64"];

/// Where a child attaches its copy of the root.
const NEW_ROOT: &str = "/root";

#[derive(Args)]
pub struct Options {
    /// How many at once; one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    concurrency: Vec<usize>,
    #[command(flatten)]
    lane: LaneOptions,
}

#[derive(Args, Clone, Copy)]
pub struct LaneOptions {
    #[command(flatten)]
    bounds: Bounds,
    /// Fork, and give each child a root of its own by mounts.
    #[arg(long)]
    mount_root: bool,
}

/// Prints a line of JSON for each concurrency.
pub fn run(options: &Options) -> Result<()> {
    for &concurrency in &options.concurrency {
        let mut share = options.lane;
        share.bounds.count = share.bounds.count.div_ceil(concurrency);
        let lanes: Result<Vec<_>> = (0..concurrency).map(|_| Lane::start(share)).collect();
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
    fn start(options: LaneOptions) -> Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg("floor-lane")
            .args(["--count", &options.bounds.count.to_string()])
            .args(["--seconds", &options.bounds.seconds.to_string()])
            .args(options.mount_root.then_some("--mount-root"))
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
pub fn lane(options: &LaneOptions) -> Result<()> {
    let mut host = Host {
        root: enter_root().context("cannot make the namespaces of the floor")?,
        program: ExecProgram::new(&["/bin/busybox", "echo", "x"], &[] as &[(&str, &str)])?,
        stack: Stack::new()?,
        mount_root: options.mount_root,
    };
    for _ in 0..5 {
        host.sample()?;
    }
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let turns = Turns::new(options.bounds);
    let mut samples = Vec::new();
    while turns.take() {
        samples.push(host.sample()?);
    }
    println!("{}", serde_json::to_string(&samples)?);
    Ok(())
}

/// Leaves the host's mounts behind for a root with programs and libraries and nothing else.
fn enter_root() -> io::Result<OwnedFd> {
    let binds: io::Result<Vec<_>> = BINDS
        .iter()
        .map(|name| Path::new("/").join(name))
        .filter(|path| path.exists())
        .map(|path| Ok((mount::copy(&path)?, path)))
        .collect();
    let binds = binds?;
    unshare(flags::MOUNT | flags::NETWORK)?;
    mount::make_private()?;
    let options = [("size", "64k"), ("mode", "755")];
    let root = mount::fresh("tmpfs", &options, Attributes::empty())?;
    mount::attach_at(&root, CWD, Path::new("/tmp"))?;
    let folder = |name: &Path| mkdirat(&root, name, Mode::from_raw_mode(0o755));
    folder(Path::new(NEW_ROOT.trim_start_matches('/')))?;
    // The count of threads is read there before each clone.
    folder(Path::new("proc"))?;
    let proc = mount::fresh("proc", &[], mount::inert())?;
    mount::attach_at(proc, &root, Path::new("proc"))?;
    for (tree, path) in binds {
        let name = path.strip_prefix("/").unwrap_or(&path);
        folder(name)?;
        mount::attach_at(&tree, &root, name)?;
        mount::set_attributes_of(&tree, mount::inert())?;
    }
    mount::set_attributes_of(&root, mount::inert())?;
    mount::pivot(&root)?;
    Ok(root)
}

/// What a lane makes its children with.
struct Host {
    root: OwnedFd,
    program: ExecProgram,
    stack: Stack,
    mount_root: bool,
}

impl Host {
    fn sample(&mut self) -> Result<Sample> {
        let begun = Instant::now();
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let child = if self.mount_root { self.fork(&input) } else { self.borrow(&input) }?;
        drop(input);
        let read = File::from(output).read(&mut [0; 1])?;
        let first_byte = begun.elapsed();
        ensure!(read == 1 && wait(&child)? == 0, "a child of the floor failed");
        Ok(Sample { first_byte, whole: begun.elapsed() })
    }

    /// The child sees the root of the lane.
    fn borrow(&mut self, output: &OwnedFd) -> io::Result<Cloned> {
        let program = &self.program;
        clone_vfork(NAMESPACES, None, &mut self.stack, &mut || {
            failed(fds::duplicate_to(output.as_fd(), 1).err().unwrap_or_else(|| program.execute()))
        })
    }

    /// The child makes a copy of it its own.
    fn fork(&self, output: &OwnedFd) -> io::Result<Cloned> {
        let root = mount::copy_at(&self.root, Path::new(""))?;
        let enter = || {
            mount::attach_at(&root, CWD, Path::new(NEW_ROOT))?;
            mount::pivot(&root)?;
            fds::duplicate_to(output.as_fd(), 1)
        };
        clone_into(NAMESPACES, None, || {
            failed(enter().err().unwrap_or_else(|| self.program.execute()))
        })
    }
}

fn failed(error: io::Error) -> i32 {
    eprintln!("a child of the floor: {error}");
    1
}

fn wait(child: &Cloned) -> io::Result<i32> {
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None)?;
    let reaped = reap(child.pidfd.as_fd())?.ok_or(io::ErrorKind::WouldBlock)?;
    Ok(reaped.code)
}

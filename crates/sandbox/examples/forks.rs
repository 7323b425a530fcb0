//! Measures the cost of a zygote's child in comparison to a bare fork of the same process.
//! Arguments: spawner, Python, its prefix, a folder with packages, the modules to import. Build
//! with `--release`.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use snowmelt_sandbox::{Bind, ForkSpec, Limits, Options, Root, Spawner, Zygote, ZygoteSpec};
use snowmelt_types::SandboxId;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 200;

/// `first` is the least that a handler can do; `bare` forks its own process, which has the zygote's
/// memory.
const CODE: &str = "
import os, resource, time
def first(listener):
    os.write(1, b'x')
    os._exit(0)
def spent(listener):
    used = resource.getrusage(resource.RUSAGE_SELF)
    print('%.3fms, %d page faults' % ((used.ru_utime + used.ru_stime) * 1000, used.ru_minflt))
def bare(listener):
    times, cpu, faults = [], 0, 0
    for _ in range(200):
        started = time.perf_counter_ns()
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, b'x')
            os._exit(0)
        os.read(read, 1)
        times.append(time.perf_counter_ns() - started)
        os.close(read)
        os.close(write)
        used = os.wait4(-1, 0)[2]
        cpu += used.ru_utime + used.ru_stime
        faults += used.ru_minflt
    times.sort()
    print('%.3fms of cpu, %d faults; ' % (cpu * 5, faults // 200), end='')
    print('p50 %.3fms, p90 %.3fms, p99 %.3fms' % tuple(times[i] / 1e6 for i in (99, 179, 197)))
";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut next =
        || arguments.next().ok_or("usage: forks SPAWNER PYTHON PREFIX PACKAGES MODULE..");
    let program = next()?;
    let python = next()?;
    let prefix = next()?;
    let packages = next()?;
    let imports: Vec<String> = arguments.collect();
    let folder = std::env::temp_dir().join(format!("snowmelt-forks-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("code"))?;
    std::fs::File::create(folder.join("code/timed.py"))?.write_all(CODE.as_bytes())?;
    let options = Options {
        run_dir: folder.join("run"),
        spawner_command: vec![program.into()],
        parent_cgroup: format!("snowmelt/forks-{}", std::process::id()),
        total: Default::default(),
        server_user: None,
    };
    let spawner = Spawner::launch(options)?.attach()?;
    let bind = |source: PathBuf, target: &str| Bind { source, target: target.into() };
    let root = Root {
        binds: vec![
            bind((&prefix).into(), &prefix),
            bind(packages.into(), "/packages"),
            bind(folder.join("code"), "/code"),
        ],
        ..Root::default()
    };
    let started = Instant::now();
    let zygote = spawner.start_zygote(ZygoteSpec {
        id: SandboxId::new(),
        root: root.clone(),
        python: python.into(),
        python_path: vec!["/code".to_owned(), "/packages".to_owned()],
        imports: imports.iter().cloned().chain(["timed".to_owned()]).collect(),
        env: Vec::new(),
        limits: Limits::default(),
    });
    let zygote = zygote.await?;
    println!("{imports:?} ready in {:?}, failed {:?}", started.elapsed(), zygote.failed_imports());
    measure(&spawner, &zygote, &root).await?;
    drop(zygote);
    spawner.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

async fn measure(spawner: &Spawner, zygote: &Zygote, root: &Root) -> Result<(), Failure> {
    let fork = |entry: &str| ForkSpec {
        network: None,
        id: SandboxId::new(),
        root: root.clone(),
        sys_path: Vec::new(),
        env: Vec::new(),
        limits: Limits::default(),
        entry: entry.to_owned(),
    };
    for round in 0..2 {
        let mut first = vec![];
        let mut started_after = vec![];
        let mut whole = vec![];
        let mut cpu = vec![];
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let mut child = spawner.fork(zygote, fork("timed:first")).await?;
            started_after.push(started.elapsed());
            read(child.take_log().ok_or("no log")?, 1)?;
            first.push(started.elapsed());
            cpu.extend(child.wait().await.cpu);
            whole.push(started.elapsed());
        }
        let mut child = spawner.fork(zygote, fork("timed:bare")).await?;
        let bare = read(child.take_log().ok_or("no log")?, 1 << 16)?;
        println!("round {round}: bare fork {}", bare.trim());
        let mut child = spawner.fork(zygote, fork("timed:spent")).await?;
        let spent = read(child.take_log().ok_or("no log")?, 1 << 16)?;
        println!("  up to the first line: {}", spent.trim());
        println!("  answer of the spawner: {}", spread(started_after));
        println!("  first line of the handler: {}", spread(first));
        println!("  whole life: {}", spread(whole));
        println!("  processor time of the child: {}", spread(cpu));
    }
    Ok(())
}

fn read(log: OwnedFd, most: u64) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::from(log).take(most).read_to_string(&mut text)?;
    Ok(text)
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("p50 {:.3?}, p90 {:.3?}, p99 {:.3?}", at(0.5), at(0.9), at(0.99))
}

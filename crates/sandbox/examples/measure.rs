//! Measures a no-op sandbox and a zygote's fork, from request to first byte from inside.
//! Arguments: spawner, Python, its prefix, a folder with numpy and pandas. Build with `--release`.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use snowmelt_sandbox::{
    Bind, ForkSpec, Limits, Network, Options, ProcessSettings, Root, SandboxSpec, Spawner,
    SyscallPolicy, ZygoteSpec,
};
use snowmelt_types::{Outcome, SandboxId};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 300;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [spawner, python, prefix, packages] = <[String; 4]>::try_from(arguments)
        .map_err(|_| "usage: measure SPAWNER PYTHON PREFIX PACKAGES")?;
    let run_dir = std::env::temp_dir().join(format!("snowmelt-measure-{}", std::process::id()));
    let options = Options {
        run_dir: run_dir.join("run"),
        spawner_command: vec![spawner.into()],
        parent_cgroup: format!("snowmelt/measure-{}", std::process::id()),
        total: Default::default(),
        server_user: None,
    };
    let spawner = Spawner::launch(options)?.attach()?;
    let root = Root {
        binds: vec![bind(&prefix, &prefix), bind(&packages, "/packages")],
        ..Root::default()
    };
    programs(&spawner).await?;
    for imports in [&[][..], &["numpy", "pandas"]] {
        forks(&spawner, &root, &python, imports).await?;
    }
    spawner.shutdown().await?;
    std::fs::remove_dir(run_dir)?;
    Ok(())
}

fn bind(source: &str, target: &str) -> Bind {
    Bind { source: PathBuf::from(source), target: PathBuf::from(target) }
}

async fn programs(spawner: &Spawner) -> Result<(), Failure> {
    for _ in 0..20 {
        echo(spawner).await?;
    }
    let mut first = Vec::new();
    let mut cpu = Vec::new();
    for _ in 0..ROUNDS {
        let (time, outcome) = echo(spawner).await?;
        first.push(time);
        cpu.extend(outcome.cpu);
    }
    println!("program, request to first byte: {}", spread(first));
    println!("program, its processor time: {}", spread(cpu));
    for concurrency in [1, 2, 10] {
        let started = Instant::now();
        let workers = (0..concurrency).map(|_| {
            let spawner = spawner.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS / concurrency {
                    echo(&spawner).await?;
                }
                Ok::<_, Failure>(())
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await??;
        }
        let count = ROUNDS / concurrency * concurrency;
        let rate = count as f64 / started.elapsed().as_secs_f64();
        println!("program, whole lives at c={concurrency}: {rate:.0} a second");
    }
    Ok(())
}

/// Starts `/bin/echo` in a sandbox; returns the time to its first byte, and its outcome.
async fn echo(spawner: &Spawner) -> Result<(Duration, Outcome), Failure> {
    let started = Instant::now();
    let spec = SandboxSpec {
        id: SandboxId::new(),
        root: Root::default(),
        command: ["/bin/busybox", "echo", "x"].map(str::to_owned).to_vec(),
        env: Vec::new(),
        limits: Limits::default(),
        network: Network::None,
        policy: SyscallPolicy::Function,
        process: ProcessSettings::default(),
    };
    let mut sandbox = spawner.start(spec).await?;
    let log = sandbox.take_log().ok_or("no log")?;
    let first = first_byte(log.into(), started).await?;
    Ok((first, sandbox.wait().await))
}

async fn first_byte(mut log: std::fs::File, started: Instant) -> Result<Duration, Failure> {
    let read =
        tokio::task::spawn_blocking(move || log.read_exact(&mut [0]).map(|()| started.elapsed()));
    Ok(read.await??)
}

async fn forks(
    spawner: &Spawner,
    root: &Root,
    python: &str,
    imports: &[&str],
) -> Result<(), Failure> {
    let started = Instant::now();
    let limits = Limits::default();
    let zygote = spawner.start_zygote(ZygoteSpec {
        id: SandboxId::new(),
        root: root.clone(),
        python: python.into(),
        python_path: vec!["/packages".to_owned()],
        imports: imports.iter().map(|name| (*name).to_owned()).collect(),
        env: Vec::new(),
        limits,
    });
    let zygote = zygote.await?;
    println!(
        "zygote of {imports:?} ready in {:?}, {:?}",
        started.elapsed(),
        zygote.failed_imports()
    );
    let mut times = Vec::new();
    let mut cpu = Vec::new();
    for _ in 0..ROUNDS / 3 {
        let started = Instant::now();
        let fork = spawner.fork(
            &zygote,
            ForkSpec {
                network: None,
                id: SandboxId::new(),
                root: root.clone(),
                sys_path: Vec::new(),
                env: Vec::new(),
                limits,
                // Prints its argument, and ends.
                entry: "builtins:print".to_owned(),
            },
        );
        let mut child = fork.await?;
        let log = child.take_log().ok_or("no log")?;
        times.push(first_byte(log.into(), started).await?);
        cpu.extend(child.wait().await.cpu);
    }
    println!("fork of {imports:?}, request to first byte: {}", spread(times));
    println!("fork of {imports:?}, its processor time: {}", spread(cpu));
    Ok(())
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("p50 {:?}, p90 {:?}, p99 {:?}", at(0.5), at(0.9), at(0.99))
}

//! Cold starts of no-op sandboxes: the time to the first byte from inside, and how many a second.
//!
//! It drives the sandbox crate as the node does. Nothing is taken again: each sample is a sandbox
//! that is made, executes a program that writes a byte, and is gone.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use snowmelt_bench_lean::samples::{Bounds, Sample, Series, Turns};
use snowmelt_bench_lean::spawner;
use snowmelt_sandbox::{
    Limits, Network, ProcessSettings, Root, SandboxSpec, Spawner, SyscallPolicy,
};
use snowmelt_types::SandboxId;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

#[derive(Args)]
pub struct Options {
    /// How many at once; one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    concurrency: Vec<usize>,
    #[command(flatten)]
    bounds: Bounds,
    /// The most lanes of the spawner; one for each core where absent.
    #[arg(long)]
    lanes: Option<u32>,
    /// The program and its arguments; it must write something.
    #[arg(last = true, default_values = ["/bin/busybox", "echo", "x"])]
    command: Vec<String>,
}

/// Prints a line of JSON for each concurrency.
pub fn run(options: &Options) -> Result<()> {
    let mut process = spawner::launch()?;
    if let Some(lanes) = options.lanes {
        process = process.with_lanes(lanes);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let spawner = process.attach()?;
        let measured = rows(options, &spawner).await;
        spawner.shutdown().await?;
        measured
    })
}

async fn rows(options: &Options, spawner: &Spawner) -> Result<()> {
    // The first one assembles the root that all others copy.
    for _ in 0..20 {
        sample(spawner, &options.command).await?;
    }
    for &concurrency in &options.concurrency {
        let series = Series::begin()?;
        let samples = burst(options, spawner, concurrency).await?;
        println!("{}", serde_json::to_string(&series.end(concurrency, &samples)?)?);
    }
    Ok(())
}

/// As many tasks as `concurrency`, each with one sandbox after the other.
async fn burst(options: &Options, spawner: &Spawner, concurrency: usize) -> Result<Vec<Sample>> {
    let turns = Arc::new(Turns::new(options.bounds));
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let (turns, spawner, command) =
                (Arc::clone(&turns), spawner.clone(), options.command.clone());
            tokio::spawn(async move {
                let mut samples = Vec::new();
                while turns.take() {
                    samples.push(sample(&spawner, &command).await?);
                }
                anyhow::Ok(samples)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(all)
}

async fn sample(spawner: &Spawner, command: &[String]) -> Result<Sample> {
    let begun = Instant::now();
    let mut sandbox = spawner
        .start(SandboxSpec {
            id: SandboxId::new(),
            root: Root::default(),
            command: command.to_vec(),
            env: Vec::new(),
            limits: Limits::default(),
            network: Network::None,
            policy: SyscallPolicy::Function,
            process: ProcessSettings::default(),
        })
        .await?;
    let mut log = Receiver::from_owned_fd(sandbox.take_log().context("a sandbox has a log")?)?;
    let read = log.read(&mut [0; 1]).await?;
    let first_byte = begun.elapsed();
    ensure!(read == 1, "the program wrote nothing: {:?}", sandbox.wait().await.end);
    sandbox.wait().await;
    drop(sandbox);
    Ok(Sample { first_byte, whole: begun.elapsed() })
}

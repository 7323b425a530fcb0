//! Cold starts of no-op sandboxes: the time to the first byte from inside, and how many a second.
//!
//! It drives the sandbox crate as the node does. Nothing is taken again: each sample is a sandbox
//! that is made, executes a program that writes a byte, and is gone.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use snowmelt_sandbox::{Limits, Network, Policy, Root, SandboxSpec, Spawner};
use snowmelt_types::SandboxId;

use crate::samples::{Sample, Series};
use crate::spawner;

#[derive(Args)]
pub struct Options {
    /// How many at once; repeatable, one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    concurrency: Vec<usize>,
    /// How many in each row.
    #[arg(long, default_value_t = 500)]
    count: usize,
    /// The program and its arguments; it must write something.
    #[arg(last = true, default_values = ["/bin/busybox", "echo", "x"])]
    command: Vec<String>,
}

/// Prints a line of JSON for each concurrency.
pub fn run(options: &Options) -> Result<()> {
    let process = spawner::launch()?;
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
    let left = Arc::new(AtomicUsize::new(options.count));
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let (left, spawner, command) =
                (Arc::clone(&left), spawner.clone(), options.command.clone());
            tokio::spawn(async move {
                let mut samples = Vec::new();
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
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
            policy: Policy::Function,
        })
        .await?;
    let mut log = File::from(sandbox.take_log().context("a sandbox has a log")?);
    let first_byte = tokio::task::spawn_blocking(move || {
        let read = log.read(&mut [0; 1]);
        (read, begun.elapsed())
    });
    let (read, first_byte) = first_byte.await?;
    ensure!(read? == 1, "the program wrote nothing: {:?}", sandbox.wait().await.end);
    sandbox.wait().await;
    drop(sandbox);
    Ok(Sample { first_byte, whole: begun.elapsed() })
}

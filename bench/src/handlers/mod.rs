//! How fast a Python handler answers from each of the caches, and what it holds in memory.
//!
//! It drives the node as the gateway does. What is measured is one user file whose first line and
//! whose handler take the time, so that the parts of a start can be told apart.

mod host;
mod levels;
mod memory;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use host::{Host, limits, unlike_the_spare};

#[derive(Args)]
pub struct Options {
    /// What to measure.
    level: Level,
    /// State folder: unpacked packages are found there and left there.
    #[arg(long)]
    state: PathBuf,
    /// The user's file, with a `handler(event)` that gives the times of the file's first line, of
    /// its own entry and of its end, and something that it computed.
    #[arg(long)]
    file: PathBuf,
    /// Packages of the handler.
    #[arg(long = "package")]
    packages: Vec<String>,
    /// Modules that its file imports.
    #[arg(long = "import")]
    imports: Vec<String>,
    /// How many samples, or instances.
    #[arg(long, default_value_t = 1)]
    count: usize,
}

/// What to measure; each prints lines of JSON.
#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// From the request to the answer with whatever the state folder holds, and no zygote.
    First,
    /// From a zygote that imported all, by its preforked child.
    Import,
    /// The same where that child does not fit, so that the zygote forks.
    Fork,
    /// Instances that were kept, and rest until the next call.
    Handler,
    /// Instances that were started before they were asked for.
    Prewarmed,
    /// Memory of instances that run and of the same at rest.
    Memory,
    /// Memory of many instances that live at the same time.
    Alive,
    /// Many calls at the same moment, an instance each.
    Burst,
    /// The same by one request.
    Map,
}

/// Runs one measurement.
pub fn run(options: &Options) -> Result<()> {
    let process = snowmelt_bench_lean::spawner::launch()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let spawner_pid = process.pid();
        let host = Host::open(options, process.attach()?, spawner_pid)?;
        let node = host.node.clone();
        let level = options.level;
        let count = options.count;
        // A task, as each request is one in the gateway: who is waited for by the main thread is
        // woken twice.
        let measured = tokio::spawn(async move { measure(level, count, &host).await }).await;
        node.stop().await?;
        measured?
    })
}

async fn measure(level: Level, count: usize, host: &Host) -> Result<()> {
    match level {
        Level::First => levels::first(host).await,
        Level::Import => levels::import(host, count, &limits(Duration::ZERO)).await,
        Level::Fork => levels::import(host, count, &unlike_the_spare()).await,
        Level::Handler => levels::handler(host, count).await,
        Level::Prewarmed => levels::prewarmed(host, count).await,
        Level::Memory => memory::each(host, count).await,
        Level::Alive => memory::alive(host, count).await,
        Level::Burst => levels::burst(host, count).await,
        Level::Map => levels::map(host, count).await,
    }
}

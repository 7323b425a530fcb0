//! Cold starts of a Python handler with numpy and pandas: the fork from a zygote to its answer.
//!
//! It drives the node as the gateway does: each sample is a fresh instance, which loads the
//! handler's code, answers one call, and is destroyed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use snowmelt_node::{InstanceLimits, Node, Options as NodeOptions, Unit};
use snowmelt_package::Progress;
use snowmelt_types::{ByteSize, CpuMillis};
use snowmelt_wire::{Call, Code, Load, Mode, OnError};

use snowmelt_bench_lean::samples::{Sample, Series};
use snowmelt_bench_lean::spawner;

/// Uses both packages, so that the answer shows that they are there.
const HANDLER: &str = "import numpy\nimport pandas\n\n\
    def handler(event):\n    return int(pandas.Series(numpy.arange(event)).sum())\n";

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct Options {
    /// How many one after the other.
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// State folder with the unpacked packages, kept for the next time.
    #[arg(long)]
    state: PathBuf,
    /// Packages of the handler.
    #[arg(long = "package", default_values = ["numpy", "pandas"])]
    packages: Vec<String>,
}

/// Prints a line of JSON.
pub fn run(options: &Options) -> Result<()> {
    let process = spawner::launch()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = Node::new(
            NodeOptions {
                state_dir: std::path::absolute(&options.state)?,
                worker_binary: std::env::current_exe()?,
                python: None,
            },
            process.attach()?,
        )?;
        let measured = measure(options, &node).await;
        node.stop().await?;
        measured
    })
}

async fn measure(options: &Options, node: &Node) -> Result<()> {
    let code = Code::Source { file: "handler.py".to_owned(), text: HANDLER.to_owned() };
    let imports = ["numpy".to_owned(), "pandas".to_owned()];
    let unit = node
        .prepare(&code, &options.packages, &imports, &|progress: &Progress| eprintln!("{progress}"))
        .await?;
    // The first one starts the zygote.
    for _ in 0..5 {
        sample(node, &unit).await?;
    }
    let series = Series::begin()?;
    let mut samples = Vec::new();
    for _ in 0..options.count {
        samples.push(sample(node, &unit).await?);
    }
    println!("{}", serde_json::to_string(&series.end(1, &samples)?)?);
    Ok(())
}

async fn sample(node: &Node, unit: &Unit) -> Result<Sample> {
    let begun = Instant::now();
    let mut lease = node.lease_instance(unit, &limits()).await?;
    let call = Call { invocation: "bench".to_owned(), event: 4.into() };
    let answer = lease.call(&load(), &call, LIMIT).await?;
    let first_byte = begun.elapsed();
    anyhow::ensure!(answer == 6 && lease.cold, "a fresh handler answers 0 + 1 + 2 + 3");
    drop(lease);
    Ok(Sample { first_byte, whole: begun.elapsed() })
}

fn limits() -> InstanceLimits {
    InstanceLimits {
        memory: ByteSize::mib(512),
        cpu: CpuMillis(1000),
        pids: 64,
        scratch: ByteSize::mib(64),
        environment: Default::default(),
        idle: Duration::ZERO,
    }
}

fn load() -> Load {
    Load {
        mode: Mode::Function,
        code: Unit::code_path(),
        function: "handler".to_owned(),
        batch: None,
        on_error: OnError::Raise,
    }
}

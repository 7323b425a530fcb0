//! Ballista as its users run it: its scheduler, its executors, and a client.
//!
//! `scheduler` and `executor` take the options of the programs `ballista-scheduler` and
//! `ballista-executor`, and are made of the same parts as these.

use std::sync::Arc;

use anyhow::{Result, bail};
use ballista::prelude::SessionContextExt;
use ballista_core::object_store::{
    runtime_env_with_s3_support, session_config_with_s3_support, session_state_with_s3_support,
};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::Parser;
use datafusion::prelude::SessionContext;
use snowmelt_bench_clusters::Tables;

// That of `ballista-executor`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Planning on the stack of a thread, as in `ballista-scheduler`.
const STACK: usize = 32 << 20;

#[derive(Parser)]
struct Client {
    #[command(flatten)]
    tables: Tables,
    /// The scheduler: `df://192.0.2.1:50050`.
    #[arg(long)]
    scheduler: String,
    /// Partitions of each shuffle.
    #[arg(long)]
    partitions: usize,
}

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().collect();
    let role = if words.len() > 1 { words.remove(1) } else { String::new() };
    let threads = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .enable_all()
        .build()?;
    match role.as_str() {
        "scheduler" => runtime.block_on(schedule(words)),
        "executor" => runtime.block_on(execute(words)),
        "client" => runtime.block_on(answer(&Client::parse_from(words))),
        _ => bail!("the first argument is `scheduler`, `executor` or `client`"),
    }
}

async fn schedule(words: Vec<String>) -> Result<()> {
    let options = ballista_scheduler::config::Config::parse_from(words);
    let address = format!("{}:{}", options.bind_host, options.bind_port).parse()?;
    let config: SchedulerConfig = options.try_into()?;
    let config = config
        .with_override_config_producer(Arc::new(session_config_with_s3_support))
        .with_override_session_builder(Arc::new(session_state_with_s3_support));
    let cluster = BallistaCluster::new_from_config(&config).await?;
    Ok(start_server(cluster, address, Arc::new(config)).await?)
}

async fn execute(words: Vec<String>) -> Result<()> {
    let options = ballista_executor::config::Config::parse_from(words);
    let mut config: ExecutorProcessConfig = options.try_into()?;
    config.override_config_producer = Some(Arc::new(session_config_with_s3_support));
    config.override_runtime_producer = Some(Arc::new(runtime_env_with_s3_support));
    Ok(start_executor_process(Arc::new(config)).await?)
}

async fn answer(client: &Client) -> Result<()> {
    snowmelt_bench_clusters::serve(&session(client).await?, &client.tables).await
}

/// A session with the defaults of both projects but for the number of partitions.
async fn session(client: &Client) -> Result<SessionContext> {
    let config = session_config_with_s3_support().with_target_partitions(client.partitions);
    let state = session_state_with_s3_support(config)?;
    Ok(SessionContext::remote_with_state(&client.scheduler, state).await?)
}

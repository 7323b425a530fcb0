//! datafusion-distributed as its users run it: a worker on each host that serves its gRPC, and a
//! coordinator that plans a query and runs it on them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Parser};
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, Worker, WorkerResolver};
use object_store::aws::AmazonS3Builder;
use snowmelt_bench_clusters::Tables;
use tokio::runtime::Runtime;
use tonic::transport::Server;
use url::Url;

/// datafusion-distributed for Snowmelt's benches.
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Serve tasks until killed.
    Worker(WorkerOptions),
    /// Plan the queries of the standard input, and run them on the workers.
    Client(ClientOptions),
}

#[derive(Args)]
struct WorkerOptions {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A bucket that tables are read from: `s3://bucket`. Its server is in the environment.
    #[arg(long)]
    store: Vec<Url>,
}

#[derive(Args)]
struct ClientOptions {
    #[command(flatten)]
    tables: Tables,
    /// A worker: `http://192.0.2.1:9000`.
    #[arg(long = "worker")]
    workers: Vec<Url>,
    /// Partitions of each worker, and threads of the coordinator.
    #[arg(long, default_value_t = 2)]
    partitions: usize,
    /// As for the workers.
    #[arg(long)]
    store: Vec<Url>,
}

#[derive(Clone)]
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Worker(options) => runtime(options.threads)?.block_on(serve(&options)),
        Command::Client(options) => runtime(options.partitions)?.block_on(answer(&options)),
    }
}

fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(threads).enable_all().build()?)
}

async fn serve(options: &WorkerOptions) -> Result<()> {
    let worker = Worker::default().with_runtime_env(environment(&options.store)?);
    let service = worker.into_worker_server();
    Ok(Server::builder().add_service(service).serve(options.listen).await?)
}

async fn answer(options: &ClientOptions) -> Result<()> {
    snowmelt_bench_clusters::serve(&session(options)?, &options.tables).await
}

fn environment(stores: &[Url]) -> Result<Arc<RuntimeEnv>> {
    let environment = RuntimeEnv::default();
    for url in stores {
        let builder = AmazonS3Builder::from_env().with_url(url.as_str());
        environment.register_object_store(url, Arc::new(builder.build()?));
    }
    Ok(Arc::new(environment))
}

/// A session with the defaults of both projects but for the number of partitions.
fn session(options: &ClientOptions) -> Result<SessionContext> {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_runtime_env(environment(&options.store)?)
        .with_config(SessionConfig::new().with_target_partitions(options.partitions))
        .with_distributed_worker_resolver(Workers(options.workers.clone()))
        .with_distributed_planner();
    Ok(SessionContext::from(state.build()))
}

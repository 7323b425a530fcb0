//! Plain DataFusion in one process: the answer that ours must equal and the time to beat.
//!
//! It runs with the defaults of DataFusion but for the number of partitions and threads, so that
//! the comparison is with what a user of DataFusion would have.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow::ipc::writer::FileWriter;
use clap::Args;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use serde::Serialize;

#[derive(Args)]
pub struct Options {
    /// The query, or `@file`.
    #[arg(long)]
    sql: String,
    /// A table and where it lies: `lineitem=data/tpch/sf1/lineitem`.
    #[arg(long = "table", value_parser = parse_table)]
    tables: Vec<(String, String)>,
    /// Partitions and threads.
    #[arg(long, default_value_t = 2)]
    partitions: usize,
    /// How often; each run plans and reads again.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Where the answer of the last run goes, as an Arrow file.
    #[arg(long)]
    answer: Option<PathBuf>,
}

fn parse_table(text: &str) -> Result<(String, String), String> {
    let (name, location) = text.split_once('=').ok_or("a table is given as name=location")?;
    Ok((name.to_owned(), location.to_owned()))
}

/// What is printed on stdout, as one line of JSON.
#[derive(Serialize)]
struct Report {
    rows: usize,
    /// Planning and running, a figure for each run.
    wall_ms: Vec<f64>,
    /// Processor time of this process, a figure for each run.
    cpu_ms: Vec<f64>,
}

/// Runs the query and prints the report.
pub fn run(options: &Options) -> Result<()> {
    let sql = match options.sql.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.to_owned())?,
        None => options.sql.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.partitions)
        .enable_all()
        .build()?;
    let report = runtime.block_on(measure(options, sql.trim().trim_end_matches(';')))?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn measure(options: &Options, sql: &str) -> Result<Report> {
    let tables: BTreeMap<_, _> = options.tables.iter().cloned().collect();
    let mut report = Report { rows: 0, wall_ms: vec![], cpu_ms: vec![] };
    for run in 1..=options.repeat {
        let wall = Instant::now();
        let cpu = cpu_time()?;
        let (schema, batches) = answer(&tables, sql, options.partitions).await?;
        report.wall_ms.push(milliseconds(wall.elapsed()));
        report.cpu_ms.push(milliseconds(cpu_time()? - cpu));
        report.rows = batches.iter().map(RecordBatch::num_rows).sum();
        if let (true, Some(path)) = (run == options.repeat, &options.answer) {
            write(path, &schema, &batches).with_context(|| path.display().to_string())?;
        }
    }
    Ok(report)
}

async fn answer(
    tables: &BTreeMap<String, String>,
    sql: &str,
    partitions: usize,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let context = SessionContext::new_with_config(config);
    for (name, location) in tables {
        context
            .register_parquet(name, location, ParquetReadOptions::default())
            .await
            .with_context(|| format!("table {name} at {location}"))?;
    }
    let frame = context.sql(sql).await?;
    let schema = SchemaRef::new(frame.schema().as_arrow().clone());
    Ok((schema, frame.collect().await?))
}

fn write(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
    let mut writer = FileWriter::try_new(File::create(path)?, schema)?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()?;
    Ok(())
}

/// Processor time of all threads of this process, those that have ended too.
fn cpu_time() -> Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(time.tv_sec.try_into()?, time.tv_nsec.try_into()?))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

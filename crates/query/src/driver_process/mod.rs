//! The driver of a query, in a sandbox: it plans the query, runs the tasks and merges the results.
//!
//! All untrusted input is read here and not in the server: SQL, Parquet footers, results of
//! workers, values of functions. The driver cannot open files: it requests them from the platform
//! over its connection and receives descriptors. The answer has a separate socket, so that a slow
//! client delays no task.
//!
//! Invariant: the last frame of the answer is `End` or `Failure`; an answer without either means
//! that the driver was lost.

mod dispatch;
mod platform;
mod runner;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use snowmelt_execute::process::panics;
use snowmelt_execute::worker::STACK_BYTES;
use snowmelt_plan::prices::CostBasis;
use snowmelt_plan::spec::{QuerySpec, RANGE_SORT_BYTES};
use snowmelt_plan::tasks::worth_a_task;
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::{
    BatchEncoder, Drive, Error as WireError, Frame, FrameStream, Kind, MAX_ANSWER_BYTES,
    Result as WireResult, write_frame,
};
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use crate::Error;
use crate::driver::{ListedQuery, QueryAnswer, Reporter, RunOptions, clean};
pub use dispatch::follow;
use platform::PlatformClient;
use runner::PlatformRunner;

/// The most bytes of a batch's frame: a longer one is split.
const FRAME_BYTES: usize = 16 << 20;

/// Drives the query of a connection whose first frame is given. Returns when the answer is complete
/// or its reader closes the socket.
pub(crate) fn answer(
    frame: &Frame,
    descriptors: Vec<OwnedFd>,
    stream: FrameStream,
) -> WireResult<()> {
    let drive: Drive = frame.parse()?;
    let found = descriptors.len();
    let expected = 2;
    let [answer, spool] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|_| WireError::Descriptors { found, expected })?;
    let socket = std::os::unix::net::UnixStream::from(answer);
    socket.set_nonblocking(true)?;
    panics::install_hook();
    let runtime = Builder::new_multi_thread()
        .worker_threads(drive.threads.max(1) as usize)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?;
    let platform = PlatformClient::new(stream)?;
    let driven = runtime.block_on(async {
        let mut answer = UnixStream::from_std(socket)?;
        let runner = Arc::new(PlatformRunner::new(platform.clone(), File::from(spool)));
        tokio::select! {
            driven = run(drive, runner, &mut answer) => driven,
            // The platform cancelled the query.
            () = platform.closed() => Ok(()),
        }
    });
    runtime.shutdown_background();
    platform.close();
    driven
}

/// Writes the answer. An error means that its reader closed the socket.
async fn run(drive: Drive, runner: Arc<PlatformRunner>, answer: &mut UnixStream) -> WireResult<()> {
    // Some plans make DataFusion panic: only this query fails then.
    match AssertUnwindSafe(query(drive, runner, answer)).catch_unwind().await {
        Ok(Ok(())) => write_frame(answer, &Frame::new(Kind::End, Bytes::new())).await,
        Ok(Err(DriveError::ReaderClosed(error))) => Err(error),
        Err(_) => {
            let report = panics::report("the driver of the query");
            write_frame(answer, &Frame::json(Kind::Failure, &report)?).await
        }
        Ok(Err(DriveError::Failed(report))) => {
            write_frame(answer, &Frame::json(Kind::Failure, &report)?).await
        }
    }
}

/// Why an answer is incomplete.
enum DriveError {
    /// The reader of the answer closed the socket.
    ReaderClosed(WireError),
    /// The query failed.
    Failed(Box<ErrorReport>),
}

impl From<WireError> for DriveError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Io(_) | WireError::Closed => Self::ReaderClosed(error),
            other => Self::Failed(Box::new(other.report())),
        }
    }
}

impl From<Error> for DriveError {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error.report()))
    }
}

async fn query(
    mut drive: Drive,
    runner: Arc<PlatformRunner>,
    socket: &mut UnixStream,
) -> Result<(), DriveError> {
    drive.scan_task_bytes = worth_a_task(drive.scan_task_bytes, drive.worker_memory);
    let options = RunOptions {
        memory_bytes: drive.memory_bytes,
        retries: drive.retries,
        workers: drive.workers,
        scan_task_bytes: drive.scan_task_bytes,
        task_bytes: worth_a_task(drive.exchange.task_bytes.bytes(), drive.worker_memory),
        ..RunOptions::default()
    };
    let spec = spec(drive, &runner)?;
    let reporter: Arc<dyn Reporter> = Arc::clone(&runner) as _;
    let listed = ListedQuery::find(spec, Arc::clone(&runner) as _, &reporter, options).await?;
    let planned = listed.plan().await?;
    runner.planned();
    let cleaner = planned.cleaner();
    let answer = listed.start(planned, reporter, options).await;
    let answered = match answer {
        Ok(answer) => answer_all(answer, socket).await,
        Err(error) => Err(error.into()),
    };
    // Before the end of the answer: then nothing is left once its reader has it.
    let is_whole = answered.as_ref().is_ok_and(QueryAnswer::is_whole);
    let lists = clean(cleaner.as_ref(), is_whole).await;
    let profile = answered?.finish_cleaned(lists);
    write_frame(socket, &Frame::json(Kind::Profile, &profile)?).await?;
    Ok(())
}

/// Writes all batches.
async fn answer_all(
    mut answer: QueryAnswer,
    socket: &mut UnixStream,
) -> Result<QueryAnswer, DriveError> {
    let mut encoder = BatchEncoder::default();
    // A client shows progress until it receives the schema, so the schema is sent with the first
    // batch.
    let mut next = answer.next().await.transpose()?;
    write_frame(socket, &encoder.schema(&answer.schema())?).await?;
    while let Some(batch) = next {
        write_batch(socket, &mut encoder, batch).await?;
        next = answer.next().await.transpose()?;
    }
    Ok(answer)
}

/// Writes a batch in frames of limited length, because several frames may be buffered for a client.
async fn write_batch(
    socket: &mut UnixStream,
    encoder: &mut BatchEncoder,
    batch: RecordBatch,
) -> Result<(), DriveError> {
    let mut rest = vec![batch];
    while let Some(batch) = rest.pop() {
        let rows = batch.num_rows();
        let frame = encoder.batch(&batch)?;
        if frame.payload.len() > FRAME_BYTES && rows > 1 {
            rest.push(batch.slice(rows / 2, rows - rows / 2));
            rest.push(batch.slice(0, rows / 2));
            continue;
        }
        if frame.payload.len() > MAX_ANSWER_BYTES as usize {
            return Err(WireError::TooLong(frame.payload.len() as u64).into());
        }
        write_frame(socket, &frame).await?;
    }
    Ok(())
}

fn spec(drive: Drive, runner: &Arc<PlatformRunner>) -> crate::Result<QuerySpec> {
    let elapsed = Duration::from_micros(drive.elapsed_us);
    let now = Instant::now();
    let prices = drive.prices.as_ref();
    Ok(QuerySpec {
        cost: CostBasis::new(prices, drive.worker_memory, drive.driver_memory)?,
        query: drive.query,
        sql: drive.sql,
        params: drive.params,
        pivots: Default::default(),
        tables: drive.tables,
        csv: drive.csv,
        udfs: drive.udfs,
        files: Arc::clone(runner) as _,
        aws: drive.aws,
        http_sources: drive.http_sources,
        workers: drive.workers,
        scan_task_bytes: drive.scan_task_bytes,
        hosts: drive.hosts.max(1),
        range_sort_bytes: RANGE_SORT_BYTES,
        exchange: drive.exchange,
        exchange_folder: drive.exchange_folder,
        accepted: now.checked_sub(elapsed).unwrap_or(now),
        packages: Duration::from_micros(drive.packages_us),
    })
}

//! Parses a statement that may define a function. The server itself parses no SQL.
//!
//! A worker parses the statement. The worker has the limits of a driver, so the idle driver of an
//! earlier query can be taken, and the next query can take this worker.

use snowmelt_node::{WorkerLease, WorkerSpec};
use snowmelt_types::{Code, CpuMillis, End, ErrorReport, Report};
use snowmelt_wire::{
    Definition, Frame, Kind, MAX_REQUEST_BYTES, Statement, read_frame_within, write_frame,
};
use tokio::net::UnixStream;

use super::{LEAST_MEMORY, nonblocking};
use crate::runner::{END_REPORT_TIMEOUT, PARSE_TIMEOUT, QueryRunner, SPAWNER_REPLACED};

/// Parses a statement in a sandbox without files and without a network, with as many threads as a
/// driver has.
///
/// # Errors
/// The statement begins to define a function and is not valid, or it is more than a sandbox can
/// parse.
pub async fn definition(
    runner: &QueryRunner,
    sql: &str,
    threads: u32,
) -> std::result::Result<Definition, ErrorReport> {
    let cpu = CpuMillis(1000 * threads.max(1));
    let spec = WorkerSpec { memory: LEAST_MEMORY, cpu, network: false };
    let lease = runner.admit(&spec).await.map_err(|error| error.report())?;
    let statement = Statement { sql: sql.to_owned() };
    let asked = tokio::time::timeout(PARSE_TIMEOUT, ask(&lease, &statement)).await;
    let frame = match asked {
        Ok(Ok(Some(frame))) => frame,
        Ok(Ok(None) | Err(_)) => return Err(lost(&lease).await),
        Err(_) => return Err(too_much("was not parsed in time")),
    };
    lease.give_back();
    match frame.kind {
        Kind::Failure => Err(frame.parse().map_err(|error| error.report())?),
        _ => frame
            .expect(Kind::Definition, "a definition")
            .and_then(|frame| frame.parse())
            .map_err(|error: snowmelt_wire::Error| error.report()),
    }
}

async fn ask(lease: &WorkerLease, statement: &Statement) -> snowmelt_wire::Result<Option<Frame>> {
    let mut socket: UnixStream = nonblocking(lease.connect()?)?;
    write_frame(&mut socket, &Frame::json(Kind::Definition, statement)?).await?;
    read_frame_within(&mut socket, MAX_REQUEST_BYTES).await
}

async fn lost(lease: &WorkerLease) -> ErrorReport {
    match lease.ended(END_REPORT_TIMEOUT).await {
        Some((outcome, output)) if outcome.end == End::SpawnerLost => {
            let message = format!("the parser of the statement {}", outcome.end);
            ErrorReport::new(Code::SPAWNER_LOST, message).hint(SPAWNER_REPLACED).excerpt(output)
        }
        Some((outcome, output)) => {
            too_much(&format!("ended its parser, which {}", outcome.end)).excerpt(output)
        }
        None => too_much("ended its parser"),
    }
}

fn too_much(what: &str) -> ErrorReport {
    ErrorReport::new(Code::DRIVER_LOST, format!("the statement {what}"))
        .hint("run it again; if it fails again, simplify it")
}

//! Why an attempt failed that reads outputs of other hosts.
//!
//! Invariant: an attempt that failed because an output is gone names the tasks whose outputs are, so
//! that they are run again before it is.

use snowmelt_types::{Code, HostName};
use snowmelt_wire::Failed;

use super::cluster::Cluster;
use super::inputs::by_host;
use super::places::{Input, Places};
use crate::remote::grants::gone;

/// S3 may refuse one host alone: whose clock is wrong, which its message says.
fn with_host(failed: Failed, reader: Option<&HostName>) -> Failed {
    let report = &failed.report;
    let is_of_clock = report.code == Code::S3_SETTING.code && report.message.contains("clock");
    let Some(host) = reader.filter(|_| is_of_clock) else { return failed };
    let hint = format!("the host {host} was refused: drain it if others are not");
    Failed { report: Box::new(failed.report.hint(hint)), ..failed }
}

/// The real reason why an attempt failed: that a host is lost which has outputs that it reads, or
/// that the `reader`, the other host that ran it, cannot reach another one.
pub(super) async fn explain(
    places: &Places,
    cluster: &Cluster,
    failed: Failed,
    inputs: &[Input],
    reader: Option<&HostName>,
) -> Failed {
    if !failed.outputs.is_empty() {
        let is_named = |input: &&Input| failed.outputs.contains(&input.task);
        places.forget(inputs.iter().filter(is_named).map(Input::output));
        return failed;
    }
    let cannot_read = failed.report.code == Code::OUTPUT_LOST.code;
    if !failed.lost && !cannot_read {
        return with_host(failed, reader);
    }
    let hosts = by_host(inputs);
    let checking = hosts.values().map(|(session, inputs)| async move {
        let is_there = match cannot_read {
            true => session.confirm().await,
            false => !session.is_dead(),
        };
        if is_there { Vec::new() } else { inputs.iter().map(Input::output).collect() }
    });
    let lost: Vec<(u32, u64)> = futures::future::join_all(checking).await.concat();
    if !lost.is_empty() {
        places.forget(lost.iter().copied());
        return gone(lost.into_iter().map(|(task, _)| task).collect());
    }
    if !cannot_read {
        return failed;
    }
    // The report names the host that has the outputs.
    let named: Option<HostName> = failed.report.input.as_ref().and_then(|it| it.parse().ok());
    cluster.set_apart(named.iter().chain(reader));
    let hint = "run the query again; `snowmelt hosts` shows which hosts there are";
    Failed::lost(failed.report.hint(hint))
}

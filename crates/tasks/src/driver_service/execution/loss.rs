//! The real reason for the failure of an attempt that reads outputs of other hosts.
//!
//! Invariant: an attempt that failed because outputs are gone names the tasks that made them, so
//! that those tasks are run again before the attempt is.

use snowmelt_types::{Code, HostName};
use snowmelt_wire::RequestFailure;

use crate::driver_service::hosts::QueryCluster;
use crate::driver_service::outputs::{Input, Places, by_host};
use crate::remote::grants::gone;

/// Adds the name of the reading host to an error of S3 about a wrong clock: S3 then refuses one
/// host alone, and its message speaks of the clock.
fn with_host(failed: RequestFailure, reader: Option<&HostName>) -> RequestFailure {
    let report = &failed.report;
    let is_of_clock = report.code == Code::S3_SETTING.code && report.message.contains("clock");
    let Some(host) = reader.filter(|_| is_of_clock) else { return failed };
    let hint = format!("the host {host} was refused: drain it if others are not");
    RequestFailure { report: Box::new(failed.report.hint(hint)), ..failed }
}

/// Returns the real reason why an attempt failed: a host with outputs that it reads is lost, or the
/// `reader`, the other host that ran the attempt, cannot reach such a host.
pub(super) async fn explain(
    places: &Places,
    cluster: &QueryCluster,
    failed: RequestFailure,
    inputs: &[Input],
    reader: Option<&HostName>,
) -> RequestFailure {
    if !failed.outputs.is_empty() {
        let is_named = |input: &&Input| failed.outputs.contains(&input.task);
        places.forget(inputs.iter().filter(is_named).map(Input::output));
        return failed;
    }
    let cannot_read = failed.report.code == Code::OUTPUT_LOST.code;
    // What is damaged between control and the host ends the attempt alone. The next one must not
    // have its place there.
    if let Some(host) = reader.filter(|_| failed.lost) {
        cluster.confirm(host).await;
    }
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
    let named: Option<HostName> = failed.report.input.as_ref().and_then(|input| input.parse().ok());
    cluster.set_apart(named.iter().chain(reader));
    let hint = "run the query again; `snowmelt hosts` shows which hosts there are";
    RequestFailure::lost(failed.report.hint(hint))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use snowmelt_types::ErrorReport;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::Notify;

    use super::*;
    use crate::driver_service::hosts::SessionOpening;
    use crate::peers::Peer;
    use crate::peers::messages::{SessionAnswer, SessionAsk, SessionReply, SessionRequest};
    use crate::remote::fake::{FakePeer, FakePeers, heard, open, order, say};

    /// Checks that a session is open for as long as the bytes of its host arrive undamaged.
    #[tokio::test]
    async fn a_host_that_damages_what_it_sends_gets_no_other_attempt() {
        let (peer, mut connections) = FakePeer::new("a").await;
        let changed = Arc::new(Notify::new());
        let peers = Arc::new(FakePeers(vec![Arc::clone(&peer)]));
        let cluster = QueryCluster::of(Some(peers), order(), &changed, Duration::MAX);
        let peer: Arc<dyn Peer> = peer;
        let opened = changed.notified();
        assert!(matches!(cluster.session(&peer), SessionOpening::Soon));
        let mut agent = open(&mut connections).await;
        opened.await;
        let places = Places::default();
        let host = peer.name();
        let lost = || {
            let failed =
                RequestFailure::lost(ErrorReport::new(Code::WORKER_LOST, "its connection broke"));
            explain(&places, &cluster, failed, &[], Some(&host))
        };
        let answers = async {
            let SessionRequest { id, ask } = heard(&mut agent).await;
            let SessionAsk::Ping { text } = ask else { panic!("{ask:?}") };
            assert!(text.len() > 10_000, "it fills some packets");
            say(&mut agent, &SessionReply { id, answer: SessionAnswer::Pong { text } }).await;
        };
        assert!(tokio::join!(lost(), answers).0.lost);
        assert!(matches!(cluster.session(&peer), SessionOpening::Session(_)));
        let damages = async {
            heard::<SessionRequest>(&mut agent).await;
            agent.into_unverified().unwrap().write_all(&[7; 64]).await.unwrap();
        };
        assert!(tokio::join!(lost(), damages).0.lost);
        assert!(matches!(cluster.session(&peer), SessionOpening::Never));
        let told: Vec<_> = cluster.take_failures().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["data of the host a were damaged on their way"]);
    }
}

//! Opens the outputs that a task on this host reads: files of this host, and connections to others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::FutureExt;
use snowmelt_types::{Code, ErrorReport, HostName};
use snowmelt_wire::{HostOutputs, RequestFailure};
use tokio_util::task::AbortOnDropHandle;

use super::places::{Input, OutputPlace};
use crate::peers::messages::ReadOutputs;
use crate::peers::outputs::Outputs;
use crate::peers::remote_outputs::ReadError;
use crate::remote::grants::gone;
use crate::remote::session::Session;

/// The inputs of a task on other hosts, by host.
pub(in crate::driver_service) type ByHost = BTreeMap<HostName, (Arc<Session>, Vec<Input>)>;

/// Opens the outputs on this host that a task here reads.
pub(in crate::driver_service) fn here(
    kept: Option<&Outputs>,
    inputs: &[Input],
) -> Result<Vec<(u32, OwnedFd)>, RequestFailure> {
    let here = inputs.iter().filter(|input| matches!(input.place, OutputPlace::Here));
    let open = |input: &Input| {
        let opened = kept.and_then(|kept| kept.open(input.attempt));
        let file = opened.ok_or_else(|| gone(vec![input.task]))?;
        let file = file.map_err(|error| {
            let message = format!("the output of task {} cannot be opened: {error}", input.task);
            RequestFailure::of(ErrorReport::new(Code::STORAGE, message))
        })?;
        Ok((input.task, OwnedFd::from(file)))
    };
    here.map(open).collect()
}

/// Opens connections to the outputs on other hosts that a task here reads.
pub(in crate::driver_service) async fn elsewhere(
    query: &str,
    inputs: &[Input],
) -> Result<Vec<(HostOutputs, OwnedFd)>, RequestFailure> {
    let hosts = by_host(inputs);
    let opening = hosts.values().map(|(session, inputs)| async move {
        let attempts = inputs.iter().map(|input| input.attempt).collect();
        let asked = ReadOutputs { query: query.to_owned(), attempts, copy: None };
        let tasks: Vec<u32> = inputs.iter().map(|input| input.task).collect();
        match session.read(&asked).await {
            Ok(socket) => {
                Ok((HostOutputs { host: session.name().as_str().to_owned(), tasks }, socket))
            }
            Err(ReadError::Missing(places)) => {
                Err(gone(places.into_iter().filter_map(|at| tasks.get(at).copied()).collect()))
            }
            Err(ReadError::Unreachable(report)) => Err(RequestFailure::of(report)),
        }
    });
    futures::future::try_join_all(opening).await
}

/// Breaks connections once one of the hosts that have inputs is lost: the connection to a frozen
/// host does not end by itself.
pub(in crate::driver_service) fn break_with(
    inputs: &[Input],
    sockets: Vec<OwnedFd>,
) -> Option<AbortOnDropHandle<()>> {
    end_with(inputs, move || {
        for socket in &sockets {
            // It may be closed already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    })
}

/// Calls `end` once one of the hosts that have inputs is lost.
pub(in crate::driver_service) fn end_with(
    inputs: &[Input],
    end: impl FnOnce() + Send + 'static,
) -> Option<AbortOnDropHandle<()>> {
    if !inputs.iter().any(|input| matches!(input.place, OutputPlace::There(_))) {
        return None;
    }
    let inputs = inputs.to_vec();
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        lost(&inputs).await;
        end();
    })))
}

/// Returns the output of a future, or `None` if one of the hosts that have inputs is lost before.
pub(in crate::driver_service) async fn unless_lost<T>(
    inputs: &[Input],
    beginning: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        begun = beginning => Some(begun),
        () = lost(inputs) => None,
    }
}

/// Waits until one of the hosts that have inputs is lost.
async fn lost(inputs: &[Input]) {
    let hosts = by_host(inputs);
    if hosts.is_empty() {
        return std::future::pending().await;
    }
    let sessions = hosts.values().map(|(session, _)| session.dead().boxed());
    futures::future::select_all(sessions).await;
}

/// Groups the inputs on other hosts by host.
pub(in crate::driver_service) fn by_host(inputs: &[Input]) -> ByHost {
    let mut hosts = ByHost::new();
    for input in inputs {
        if let OutputPlace::There(session) = &input.place {
            let entry = hosts.entry(session.name().clone());
            let (_, there) = entry.or_insert_with(|| (Arc::clone(session), Vec::new()));
            there.push(input.clone());
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::messages::SessionAsk;
    use crate::remote::fake::{asked, opened};
    use crate::remote::starting::tests::placed;

    #[tokio::test]
    async fn a_start_ends_at_once_when_a_host_with_its_inputs_is_lost() {
        let (_peer, mut connections, session, mut control) = opened("runs-it").await;
        let (with_inputs, _, there, _stays) = opened("has-inputs").await;
        let input = Input {
            task: 1,
            attempt: 7,
            place: OutputPlace::There(there),
            bytes: 1,
            is_shared: false,
        };
        // It waits there for a connection to its inputs, and never runs.
        let (placed, _stream) = placed(&session, &mut connections, 9).await;
        let inputs = [input];
        let loss = async { with_inputs.lost.cancel() };
        let (begun, ()) = tokio::join!(unless_lost(&inputs, placed.started()), loss);
        assert!(begun.is_none());
        assert!(matches!(asked(&mut control).await, SessionAsk::Abandon { attempt: 9 }));
    }

    #[tokio::test]
    async fn a_start_without_inputs_on_other_hosts_is_waited_for() {
        let input =
            Input { task: 1, attempt: 7, place: OutputPlace::Here, bytes: 1, is_shared: false };
        let begun = async {
            tokio::task::yield_now().await;
            5
        };
        assert_eq!(unless_lost(&[input], begun).await, Some(5));
    }
}

//! Opens the outputs that a task on this host reads: files of this host, and connections to others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::FutureExt;
use snowmelt_types::{Code, ErrorReport, HostName};
use snowmelt_wire::{Failed, HostOutputs};
use tokio_util::task::AbortOnDropHandle;

use super::places::{Input, Place};
use crate::remote::hosted::gone;
use crate::remote::messages::ReadOutputs;
use crate::remote::outputs::Outputs;
use crate::remote::reading::ReadError;
use crate::remote::session::Session;

/// The inputs of a task on other hosts, by host.
pub(super) type ByHost = BTreeMap<HostName, (Arc<Session>, Vec<Input>)>;

/// The outputs on this host that a task here reads.
pub(super) fn here(
    kept: Option<&Outputs>,
    inputs: &[Input],
) -> Result<Vec<(u32, OwnedFd)>, Failed> {
    let here = inputs.iter().filter(|input| matches!(input.place, Place::Here));
    let open = |input: &Input| {
        let opened = kept.and_then(|kept| kept.open(input.attempt));
        let file = opened.ok_or_else(|| gone(vec![input.task]))?;
        let file = file.map_err(|error| {
            let message = format!("the output of task {} cannot be opened: {error}", input.task);
            Failed::of(ErrorReport::new(Code::STORAGE, message))
        })?;
        Ok((input.task, OwnedFd::from(file)))
    };
    here.map(open).collect()
}

/// Connections to the outputs on other hosts that a task here reads.
pub(super) async fn elsewhere(
    query: &str,
    inputs: &[Input],
) -> Result<Vec<(HostOutputs, OwnedFd)>, Failed> {
    let hosts = by_host(inputs);
    let opening = hosts.values().map(|(session, inputs)| async move {
        let attempts = inputs.iter().map(|input| input.attempt).collect();
        let asked = ReadOutputs { query: query.to_owned(), attempts };
        let tasks: Vec<u32> = inputs.iter().map(|input| input.task).collect();
        match session.read(&asked).await {
            Ok(socket) => {
                Ok((HostOutputs { host: session.name().as_str().to_owned(), tasks }, socket))
            }
            Err(ReadError::Missing(places)) => {
                Err(gone(places.into_iter().filter_map(|at| tasks.get(at).copied()).collect()))
            }
            Err(ReadError::Unreachable(report)) => Err(Failed::of(report)),
        }
    });
    futures::future::try_join_all(opening).await
}

/// Breaks connections once one of the hosts is lost: the connection to a host that is frozen does
/// not end by itself.
pub(super) fn break_with(inputs: &[Input], sockets: Vec<OwnedFd>) -> Option<AbortOnDropHandle<()>> {
    end_with(inputs, move || {
        for socket in &sockets {
            // It may be closed already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    })
}

/// Calls `end` once one of the hosts is lost that have inputs.
pub(super) fn end_with(
    inputs: &[Input],
    end: impl FnOnce() + Send + 'static,
) -> Option<AbortOnDropHandle<()>> {
    let hosts = by_host(inputs);
    if hosts.is_empty() {
        return None;
    }
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let sessions = hosts.values().map(|(session, _)| session.dead().boxed());
        futures::future::select_all(sessions).await;
        end();
    })))
}

/// The inputs on other hosts.
pub(super) fn by_host(inputs: &[Input]) -> ByHost {
    let mut hosts = ByHost::new();
    for input in inputs {
        if let Place::There(session) = &input.place {
            let entry = hosts.entry(session.name().clone());
            let (_, there) = entry.or_insert_with(|| (Arc::clone(session), Vec::new()));
            there.push(input.clone());
        }
    }
    hosts
}

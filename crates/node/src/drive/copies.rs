//! Outputs that several tasks read whole, such as the build side of a join: which host copies one
//! from which other host, and the copies on this host.
//!
//! The hosts that read an output form a binary tree in the order of their first tasks; the host that
//! has made it is its root. Hosts whose first tasks are asked for at the same time are all its
//! children.
//!
//! Invariant: a host is in a tree only once it has begun its copy, so its children find it there.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;

use super::places::{Input, Place};
use crate::remote::copies::{Copy, Source};
use crate::remote::messages::{OUTPUTS, ReadOutputs};
use crate::remote::outputs::Outputs;
use crate::remote::session::Session;
use crate::runner::QueryRunner;

/// The most hosts that copy an output from one host.
const CHILDREN: usize = 2;

/// The hosts that have copies of each output of a query, by the attempt that made it.
#[derive(Debug, Default)]
pub(super) struct CopyTrees {
    // In the order in which they began to copy.
    by_attempt: Mutex<HashMap<u64, Vec<Place>>>,
}

impl CopyTrees {
    /// The host from which another one copies an output; `None` is the host that has made it.
    pub fn parent(&self, attempt: u64, host: &Place) -> Option<Place> {
        let trees = self.lock();
        let hosts = trees.get(&attempt).map_or(&[][..], Vec::as_slice);
        let own = hosts.iter().position(|it| it.is(host)).unwrap_or(hosts.len());
        // Of a tree in an array: the root is at 0, and the hosts are behind it.
        let above = std::iter::successors(Some(own + 1), |at| Some((at - 1) / CHILDREN));
        let above = above.skip(1).take_while(|at| *at > 0);
        above.map(|at| &hosts[at - 1]).find(|place| !place.is_gone()).cloned()
    }

    /// A host has begun to copy an output.
    pub fn add(&self, attempt: u64, host: &Place) {
        let mut trees = self.lock();
        let hosts = trees.entry(attempt).or_default();
        if !hosts.iter().any(|it| it.is(host)) {
            hosts.push(host.clone());
        }
    }

    /// An output is not read any more. Gives the hosts that have copies of it.
    pub fn remove(&self, attempt: u64) -> Vec<Place> {
        self.lock().remove(&attempt).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Place>>> {
        self.by_attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The copies that a task on this host reads of outputs of other hosts, and its other inputs.
pub(super) async fn here(
    runner: &QueryRunner,
    trees: &CopyTrees,
    kept: Option<&Outputs>,
    inputs: &[Input],
) -> (Vec<(u32, OwnedFd)>, Vec<Input>) {
    let Some(kept) = kept else { return (Vec::new(), inputs.to_vec()) };
    for input in inputs.iter().filter(|input| input.is_shared) {
        let Place::There(origin) = &input.place else { continue };
        let parent = match trees.parent(input.attempt, &Place::Here) {
            Some(Place::There(parent)) => Some(source(&parent)),
            _ => None,
        };
        let sources = parent.into_iter().chain([source(origin)]).collect();
        let asked = ReadOutputs { query: runner.query.clone(), attempts: vec![input.attempt] };
        let begin = || Ok(Copy::begin(runner.node.output_file()?, asked, sources));
        kept.copy(input.attempt, begin);
        trees.add(input.attempt, &Place::Here);
    }
    let (mut copied, mut others) = (Vec::new(), Vec::new());
    for input in inputs {
        let is_copied = input.is_shared && matches!(input.place, Place::There(_));
        match if is_copied { kept.copied(input.attempt).await } else { None } {
            Some(file) => copied.push((input.task, OwnedFd::from(file))),
            None => others.push(input.clone()),
        }
    }
    (copied, others)
}

fn source(session: &Arc<Session>) -> Source {
    let peer = Arc::clone(session.peer());
    Box::new(move || async move { peer.connect(OUTPUTS).await }.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::fake::opened;

    #[tokio::test]
    async fn hosts_copy_from_those_before_them_and_from_none_that_is_lost() {
        let trees = CopyTrees::default();
        let (mut peers, mut hosts, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for name in ["a", "b", "c", "d", "e"] {
            let (peer, connections, session, control) = opened(name).await;
            peers.push(peer);
            hosts.push(Place::There(session));
            kept.push((connections, control));
        }
        let name = |place: Option<Place>| match place {
            Some(Place::There(session)) => session.name().as_str().to_owned(),
            Some(Place::Here) => "here".to_owned(),
            None => "origin".to_owned(),
        };
        let parent = |host: &Place| name(trees.parent(1, host));
        for (host, expected) in hosts.iter().zip(["origin", "origin", "a", "a", "b"]) {
            assert_eq!(parent(host), expected);
            trees.add(1, host);
            trees.add(1, host);
            assert_eq!(parent(host), expected, "it stays where it is");
        }
        assert_eq!(parent(&Place::Here), "b");
        trees.add(1, &Place::Here);
        let Place::There(lost) = &hosts[1] else { panic!() };
        peers[1].lost.cancel();
        lost.dead().await;
        assert_eq!((parent(&hosts[4]), parent(&Place::Here)), ("origin".into(), "origin".into()));
        assert_eq!(parent(&hosts[3]), "a");
        assert_eq!(name(trees.parent(2, &hosts[3])), "origin", "each output has its own tree");
        assert_eq!(trees.remove(1).len(), 6);
        assert!(trees.remove(1).is_empty());
    }
}

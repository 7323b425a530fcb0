//! Copies of outputs that several tasks read whole, such as the build side of a join: the host from
//! which each host copies, and the copies on this host.
//!
//! A host has its place in the tree of an output ([`CopyTree`]) as soon as it is asked to run a
//! task. The tasks of a stage are requested at the same time, so a tree of hosts that have answered
//! would come too late. A host whose parent does not begin a copy waits for it for a moment, and
//! then copies from the host that made the output.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use snowmelt_types::HostName;

use super::copy_tree::{CHILDREN, CopyHost, CopyTree, Spot};
use super::places::{Input, OutputPlace};
use crate::peers::copies::{Copy, CopySource};
use crate::peers::messages::OUTPUTS;
use crate::peers::outputs::Outputs;
use crate::remote::session::Session;
use crate::runner::QueryRunner;

/// A total of bytes: if all outputs of a task together are smaller, the host that made them sends
/// them to more than [`CHILDREN`] hosts, because they arrive before others could pass them on.
const PASSED_ON: u64 = 1 << 20;

/// The hosts that copy each output of a query, by the attempt that made it.
#[derive(Debug, Default)]
pub(in crate::driver_service) struct CopyTrees(Mutex<Trees>);

#[derive(Debug, Default)]
struct Trees {
    by_attempt: HashMap<u64, CopyTree<OutputPlace>>,
    // Of all trees, so that one which begins anew has no number again.
    last: u64,
}

/// The places of a host in the trees of a task's inputs, while the host is asked to run the task.
/// Dropping it gives the places up, unless the host has begun its copies.
#[derive(Debug)]
pub(in crate::driver_service) struct Asking<'t> {
    trees: &'t CopyTrees,
    made: InputBytes,
    // Attempt and number of each.
    asked: Vec<(u64, u64)>,
    has_begun: bool,
}

/// The bytes of the inputs that several tasks read whole: their sum, and the bytes that each host
/// has made.
#[derive(Debug, Default)]
struct InputBytes {
    all: u64,
    by_host: BTreeMap<Option<HostName>, u64>,
}

impl CopyHost for OutputPlace {
    fn is(&self, other: &Self) -> bool {
        OutputPlace::is(self, other)
    }

    fn is_gone(&self) -> bool {
        OutputPlace::is_gone(self)
    }
}

impl CopyTrees {
    /// Begins to ask a host for a task that reads these inputs.
    pub fn asking(&self, inputs: &[Input]) -> Asking<'_> {
        Asking { trees: self, made: InputBytes::of(inputs), asked: Vec::new(), has_begun: false }
    }

    /// Forgets an output that is not read any more. Returns the hosts that may have copies of it.
    pub fn remove(&self, attempt: u64) -> impl Iterator<Item = OutputPlace> + use<> {
        let removed = self.lock().by_attempt.remove(&attempt);
        removed.into_iter().flat_map(CopyTree::hosts)
    }

    fn lock(&self) -> MutexGuard<'_, Trees> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking<'_> {
    /// Returns the place of a host among those that copy one of the inputs.
    pub fn spot(&mut self, host: &OutputPlace, input: &Input) -> Spot<OutputPlace> {
        let mut trees = self.trees.lock();
        trees.last += 1;
        let number = trees.last;
        let tree = trees.by_attempt.entry(input.attempt).or_default();
        let spot = tree.ask(host, number, self.made.children_of(&input.place));
        self.asked.push((input.attempt, spot.number));
        spot
    }

    /// Notes that the host has answered, and whether it has begun its copies.
    pub fn answered(mut self, has_begun: bool) {
        self.has_begun = has_begun;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut trees = self.trees.lock();
        for (attempt, number) in &self.asked {
            if let Some(tree) = trees.by_attempt.get_mut(attempt) {
                tree.answered(*number, self.has_begun);
            }
        }
    }
}

impl InputBytes {
    fn of(inputs: &[Input]) -> Self {
        let mut made = Self::default();
        for input in inputs.iter().filter(|input| input.is_shared) {
            made.all += input.bytes;
            *made.by_host.entry(input.place.name().cloned()).or_default() += input.bytes;
        }
        made
    }

    /// Returns how many hosts copy from a host what it has made. If several hosts have made parts,
    /// each host sends about as much as one host would that had made all.
    fn children_of(&self, host: &OutputPlace) -> usize {
        let own = self.by_host.get(&host.name().cloned()).copied().unwrap_or(0);
        let share = self.all.max(PASSED_ON) / own.max(1);
        CHILDREN.saturating_mul(usize::try_from(share).unwrap_or(usize::MAX).max(1))
    }
}

/// Returns the copies that a task on this host reads of outputs of other hosts, and the task's
/// other inputs.
pub(in crate::driver_service) async fn here(
    runner: &QueryRunner,
    trees: &CopyTrees,
    kept: Option<&Outputs>,
    inputs: &[Input],
) -> (Vec<(u32, OwnedFd)>, Vec<Input>) {
    let Some(kept) = kept else { return (Vec::new(), inputs.to_vec()) };
    let mut asking = trees.asking(inputs);
    for input in inputs.iter().filter(|input| input.is_shared) {
        let OutputPlace::There(origin) = &input.place else { continue };
        let Spot { number, parent } = asking.spot(&OutputPlace::Here, input);
        let parent = match &parent {
            Some((OutputPlace::There(parent), copy)) => Some(source(parent, Some(*copy))),
            _ => None,
        };
        let sources = parent.into_iter().chain([source(origin, None)]).collect();
        let query = runner.query.clone();
        let attempt = input.attempt;
        let begin = || Ok(Copy::begin(runner.host.output_file()?, query, attempt, sources));
        kept.copy(attempt, number, begin);
    }
    asking.answered(true);
    let mut copied = Vec::new();
    let mut others = Vec::new();
    for input in inputs {
        let is_copied = input.is_shared && matches!(input.place, OutputPlace::There(_));
        match if is_copied { kept.copied(input.attempt).await } else { None } {
            Some(file) => copied.push((input.task, OwnedFd::from(file))),
            None => others.push(input.clone()),
        }
    }
    (copied, others)
}

fn source(session: &Arc<Session>, copy: Option<u64>) -> CopySource {
    let peer = Arc::clone(session.peer());
    let connect = move || async move { peer.connect(OUTPUTS).await }.boxed();
    CopySource { connect: Box::new(connect), copy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::fake::opened;

    const BYTES: u64 = 10 << 20;

    fn input(place: OutputPlace, bytes: u64) -> Input {
        Input { task: 1, attempt: 1, place, bytes, is_shared: true }
    }

    fn name(host: Option<OutputPlace>) -> String {
        match host {
            Some(OutputPlace::There(session)) => session.name().as_str().to_owned(),
            Some(OutputPlace::Here) => "here".to_owned(),
            None => "maker".to_owned(),
        }
    }

    /// Asks a host for a task that reads the output of the attempt 1. Returns the name of the host
    /// from which it copies the output, and the open question.
    fn asked<'t>(trees: &'t CopyTrees, host: &OutputPlace) -> (String, Asking<'t>) {
        let input = input(OutputPlace::Here, BYTES);
        let mut asking = trees.asking(std::slice::from_ref(&input));
        let Spot { parent, .. } = asking.spot(host, &input);
        (name(parent.map(|(host, _)| host)), asking)
    }

    #[tokio::test]
    async fn hosts_that_have_not_answered_yet_are_parents_unless_they_are_lost() {
        let trees = CopyTrees::default();
        let mut peers = vec![];
        let mut hosts = vec![];
        let mut kept = vec![];
        let mut asking = vec![];
        for (host, expected) in ["a", "b", "c", "d"].into_iter().zip(["maker", "maker", "a", "a"]) {
            let (peer, connections, session, control) = opened(host).await;
            peers.push(peer);
            kept.push((connections, control));
            hosts.push(OutputPlace::There(session));
            let (parent, asks) = asked(&trees, hosts.last().unwrap());
            assert_eq!(parent, expected);
            asking.push(asks);
        }
        assert_eq!(asked(&trees, &OutputPlace::Here).0, "b");
        // It has left since.
        let (parent, here) = asked(&trees, &OutputPlace::Here);
        assert_eq!(parent, "b");
        here.answered(true);
        let OutputPlace::There(lost) = &hosts[1] else { panic!() };
        peers[1].lost.cancel();
        lost.dead().await;
        assert_eq!(asked(&trees, &OutputPlace::Here).0, "maker");
        assert_eq!([2, 3].map(|host| asked(&trees, &hosts[host]).0), ["a", "a"]);
        assert_eq!(trees.remove(1).count(), 5, "all of them may have begun");
        assert_eq!(trees.remove(1).count(), 0);
        drop(asking);
        assert_eq!(trees.remove(1).count(), 0, "an output that was released has no tree again");
    }

    #[tokio::test]
    async fn a_host_that_begins_nothing_is_no_parent_any_more() {
        let trees = CopyTrees::default();
        let mut hosts = Vec::new();
        for host in ["a", "b", "c"] {
            hosts.push(opened(host).await);
        }
        let [a, b, c] = [0, 1, 2].map(|at| OutputPlace::There(Arc::clone(&hosts[at].2)));
        let first = asked(&trees, &a).1;
        let second = asked(&trees, &a).1;
        let _b = asked(&trees, &b).1;
        drop(first);
        assert_eq!(asked(&trees, &c).0, "a", "it may begin for its other task");
        drop(second);
        assert_eq!(asked(&trees, &c).0, "maker");
    }

    #[tokio::test]
    async fn hosts_that_have_made_a_part_send_it_to_more_others() {
        let mut hosts = Vec::new();
        for host in ["a", "b", "c"] {
            hosts.push(opened(host).await);
        }
        let mut places = vec![OutputPlace::Here];
        places.extend(hosts.iter().map(|host| OutputPlace::There(Arc::clone(&host.2))));
        let children = |parts: &[(usize, u64)], of: usize| {
            let part = |(host, bytes): &(usize, u64)| input(places[*host].clone(), *bytes);
            let inputs: Vec<_> = parts.iter().map(part).collect();
            InputBytes::of(&inputs).children_of(&places[of])
        };
        assert_eq!(children(&[(0, BYTES)], 0), CHILDREN);
        let equal = [(0, BYTES), (1, BYTES), (2, BYTES), (3, BYTES)];
        assert_eq!(children(&equal, 2), 4 * CHILDREN);
        let two = [(1, 2 * BYTES), (2, BYTES), (1, BYTES)];
        assert_eq!([children(&two, 1), children(&two, 2)], [CHILDREN, 4 * CHILDREN]);
        // What is small goes to all hosts at once.
        assert!(children(&[(1, 1000)], 1) > 1000 && children(&[(1, 0)], 1) > 1_000_000);
        let mut alone = input(OutputPlace::Here, BYTES);
        alone.is_shared = false;
        assert_eq!(InputBytes::of(&[alone, input(OutputPlace::Here, BYTES)]).all, BYTES);
    }
}

//! The other hosts of one query: their sessions, and which of them may run a task.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::{ErrorReport, HostName, micros};
use snowmelt_wire::TaskAsk;
use tokio::sync::OnceCell;

use super::placement::{Candidate, order};
use super::places::{Input, Place};
use crate::bound::UdfBinding;
use crate::remote::messages::{OpenQuery, UdfPart};
use crate::remote::peers::{Peer, Peers};
use crate::remote::session::Session;
use crate::runner::QueryRunner;

/// The hosts of one query.
#[derive(Debug)]
pub(super) struct Cluster {
    // None if the query runs on this host alone.
    peers: Option<Arc<dyn Peers>>,
    here: Arc<AtomicU32>,
    // Functions that only this host can run.
    own_udfs: BTreeSet<String>,
    hosts: Mutex<BTreeMap<HostName, Arc<HostState>>>,
}

/// What a query knows of another host.
#[derive(Debug, Default)]
struct HostState {
    // None if it could not be opened.
    session: OnceCell<Option<Arc<Session>>>,
    running: Arc<AtomicU32>,
    // It cannot reach another host, or another host cannot reach it.
    is_apart: AtomicBool,
    // Files that it does not have.
    missing: Mutex<BTreeSet<String>>,
}

/// A host that a task may run on.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// This one.
    Here,
    /// Another one.
    There(Arc<dyn Peer>),
}

/// Counts a task on its host for as long as it is there.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cluster {
    pub fn new(runner: &QueryRunner) -> Self {
        let own = runner.udfs.iter().filter(|(_, bound)| bound.udf.source.is_none());
        Self {
            peers: runner.peers.clone(),
            here: Arc::default(),
            own_udfs: own.map(|(name, _)| name.clone()).collect(),
            hosts: Mutex::default(),
        }
    }

    /// Whether there are other hosts.
    pub fn has_others(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| !peers.others().is_empty())
    }

    /// The name of this host; `None` if the query runs on it alone.
    pub fn own_name(&self) -> Option<HostName> {
        self.peers.as_ref().map(|peers| peers.own_name())
    }

    fn own_address(&self) -> Option<SocketAddr> {
        self.peers.as_ref().and_then(|peers| peers.own_address())
    }

    /// The hosts that may run a task, the best first. This host is always one of them.
    pub fn choices(&self, ask: &TaskAsk, inputs: &[Input]) -> Vec<Choice> {
        let is_portable = !ask.udfs.iter().any(|udf| self.own_udfs.contains(udf));
        let peers = self.peers.as_ref().filter(|_| is_portable);
        let others = peers.map(|peers| peers.others()).unwrap_or_default();
        let may_run = |peer: &Arc<dyn Peer>| {
            let state = self.state(&peer.name());
            state.may_run(ask) && (!self.is_apart(&peer.name()) || only_here(inputs, &peer.name()))
        };
        let reachable = !inputs.iter().any(|input| self.is_apart_input(input));
        let mut choices = vec![Choice::Here];
        choices.extend(
            others
                .into_iter()
                .filter(|peer| reachable || only_here(inputs, &peer.name()))
                .filter(may_run)
                .map(Choice::There),
        );
        let candidates: Vec<_> = choices.iter().map(|it| self.candidate(it, inputs)).collect();
        order(&candidates).into_iter().map(|place| choices[place].clone()).collect()
    }

    fn candidate(&self, choice: &Choice, inputs: &[Input]) -> Candidate {
        let (cores, running) = match choice {
            Choice::Here => (own_cores(), self.here.load(Ordering::Relaxed)),
            Choice::There(peer) => {
                (peer.cores(), self.state(&peer.name()).running.load(Ordering::Relaxed))
            }
        };
        let is_there = |input: &&Input| match (&input.place, choice) {
            (Place::Here, Choice::Here) => true,
            (Place::There(session), Choice::There(peer)) => *session.name() == peer.name(),
            _ => false,
        };
        let input_bytes = inputs.iter().filter(is_there).map(|input| input.bytes).sum();
        Candidate { cores, running, input_bytes }
    }

    /// Counts a task on a host.
    pub fn count(&self, choice: &Choice) -> Counted {
        let running = match choice {
            Choice::Here => Arc::clone(&self.here),
            Choice::There(peer) => Arc::clone(&self.state(&peer.name()).running),
        };
        running.fetch_add(1, Ordering::Relaxed);
        Counted(running)
    }

    /// The session of the query on a host, which is opened for its first task there; `None` if it
    /// cannot be opened, or has ended.
    pub async fn session(
        &self,
        peer: &Arc<dyn Peer>,
        runner: &QueryRunner,
    ) -> Option<Arc<Session>> {
        let state = self.state(&peer.name());
        let open = || async {
            let order = self.order(runner);
            match Session::open(Arc::clone(peer), &order).await {
                Ok(session) => Some(Arc::new(session)),
                Err(error) => {
                    let host = peer.name();
                    tracing::warn!(%host, %error, "a query cannot use a host");
                    None
                }
            }
        };
        let session = state.session.get_or_init(open).await.clone();
        session.filter(|session| !session.is_dead())
    }

    fn order(&self, runner: &QueryRunner) -> OpenQuery {
        let udfs = runner.udfs.values().filter_map(|bound| udf_part(&bound.udf));
        OpenQuery {
            query: runner.query.clone(),
            tenant: runner.tenant.clone(),
            memory: runner.limits.memory,
            cpu: runner.limits.cpu,
            elapsed_us: micros(runner.accepted.elapsed()),
            udfs: udfs.collect(),
            control: self.own_address(),
        }
    }

    /// A host does not have a file: tasks that read it run elsewhere.
    pub fn lacks(&self, host: &HostName, path: String) {
        let state = self.state(host);
        state.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
    }

    /// A host and others cannot reach each other, though control reaches all: from now on what these
    /// have is read by control's own host.
    pub fn set_apart<'h>(&self, hosts: impl Iterator<Item = &'h HostName>) {
        for host in hosts {
            self.state(host).is_apart.store(true, Ordering::Relaxed);
        }
    }

    fn is_apart(&self, host: &HostName) -> bool {
        self.state(host).is_apart.load(Ordering::Relaxed)
    }

    fn is_apart_input(&self, input: &Input) -> bool {
        matches!(&input.place, Place::There(session) if self.is_apart(session.name()))
    }

    fn state(&self, host: &HostName) -> Arc<HostState> {
        Arc::clone(self.lock().entry(host.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostName, Arc<HostState>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostState {
    fn may_run(&self, ask: &TaskAsk) -> bool {
        match self.session.get() {
            Some(None) => return false,
            Some(Some(session)) if session.is_dead() => return false,
            Some(Some(session)) if ask.udfs.iter().any(|udf| session.refused(udf).is_some()) => {
                return false;
            }
            _ => {}
        }
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.is_empty() || !ask.files.iter().any(|file| missing.contains(&file.path))
    }
}

/// Whether a task on this host reads nothing of others.
fn only_here(inputs: &[Input], host: &HostName) -> bool {
    inputs.iter().all(|input| match &input.place {
        Place::Here => false,
        Place::There(session) => session.name() == host,
    })
}

fn udf_part(udf: &UdfBinding) -> Option<UdfPart> {
    let source = udf.source.as_ref()?;
    Some(UdfPart {
        name: udf.name.clone(),
        code: source.code.clone(),
        packages: source.packages.clone(),
        imports: source.imports.clone(),
        limits: (*udf.limits).clone(),
        load: udf.load.clone(),
        timeout_ms: u64::try_from(udf.timeout.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Why a host cannot run a UDF of a task.
pub(super) fn refused_udf<'s>(
    session: &'s Session,
    ask: &TaskAsk,
) -> Option<(String, &'s ErrorReport)> {
    ask.udfs.iter().find_map(|udf| Some((udf.clone(), session.refused(udf)?)))
}

fn own_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

//! The hosts of a cluster as one query sees them: their sessions, and which of them may run a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_types::{ErrorReport, HostName, Tenant, micros};
use snowmelt_wire::{GangTask, TaskAsk};
use tokio::sync::Notify;

use super::function_files::SentFiles;
use super::opening::{Opening, SessionOpening};
use super::order::{self, HostCandidate};
use crate::driver_service::outputs::{Input, OutputPlace};
use crate::peers::messages::{ImagePart, OpenQuery, UdfPart};
use crate::peers::{Peer, Peers, TaskPlace};
use crate::remote::session::{NotOpened, Session};
use crate::runner::{QueryRunner, UdfBinding, UdfImage};

/// How long tasks wait for a host that opens its session, if all others run as many tasks as they
/// have cores. Without packages to install, a session is open after a round trip.
const EXPECTED_HOST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a host may take to open its session: it may have to read large files and to install
/// large packages.
const OPEN_TIMEOUT: Duration = Duration::from_secs(600);

/// The hosts of one query.
#[derive(Debug)]
pub(in crate::driver_service) struct QueryCluster {
    // `None` if the query runs on this host alone.
    peers: Option<Arc<dyn Peers>>,
    here: Arc<AtomicU32>,
    // Functions that only this host can run.
    own_udfs: BTreeSet<String>,
    hosts: Mutex<BTreeMap<HostName, Arc<HostState>>>,
    // The request that opens a session; `elapsed_us` is set when it is sent.
    order: OpenQuery,
    // The files of its functions.
    files: Option<Arc<SentFiles>>,
    accepted: Instant,
    // Notified when a session is open.
    changed: Arc<Notify>,
    expected_within: Duration,
}

/// The state of another host, as one query knows it.
#[derive(Debug, Default)]
struct HostState {
    session: Opening,
    running: Arc<AtomicU32>,
    // True if the host cannot reach another host, or another host cannot reach it.
    is_apart: AtomicBool,
    // Files that the host does not have.
    missing: Mutex<BTreeSet<String>>,
    // Registers that the query uses this host, because it may have outputs there. The option is
    // empty if the cluster does not count uses.
    used: OnceLock<Option<Box<dyn TaskPlace>>>,
}

/// A host that a task may run on.
#[derive(Clone, Debug)]
pub(in crate::driver_service) enum HostChoice {
    /// Control's own host, on which the query's driver runs.
    Here,
    /// Another host of the cluster.
    There(Arc<dyn Peer>),
}

/// A count of a task on its host, which ends when this is dropped.
#[derive(Debug)]
pub(in crate::driver_service) struct TaskCount {
    running: Arc<AtomicU32>,
    // `None` if the task runs in room that the query has reserved, or if the cluster places no
    // tasks.
    place: Option<Box<dyn TaskPlace>>,
}

impl TaskCount {
    /// Adds the task's place among all work of the cluster.
    pub fn at(self, place: Option<Box<dyn TaskPlace>>) -> Self {
        let mut counted = self;
        counted.place = place;
        counted
    }
}

impl Drop for TaskCount {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueryCluster {
    /// Returns the hosts of a query. `changed` is notified when one more host can be used.
    pub fn new(runner: &QueryRunner, changed: &Arc<Notify>) -> Self {
        let own = runner.udfs.iter().filter(|(_, bound)| bound.udf.source.is_none());
        let own_udfs = own.map(|(name, _)| name.clone()).collect();
        let order = order(runner);
        let cluster = Self::of(runner.peers.clone(), order, changed, EXPECTED_HOST_TIMEOUT);
        let files = SentFiles::of(&runner.host.node, &cluster.order).map(Arc::new);
        Self { own_udfs, accepted: runner.accepted, files, ..cluster }
    }

    pub fn of(
        peers: Option<Arc<dyn Peers>>,
        order: OpenQuery,
        changed: &Arc<Notify>,
        expected_within: Duration,
    ) -> Self {
        Self {
            peers,
            here: Arc::default(),
            own_udfs: BTreeSet::new(),
            hosts: Mutex::default(),
            order,
            files: None,
            accepted: Instant::now(),
            changed: Arc::clone(changed),
            expected_within,
        }
    }

    /// Returns whether there are other hosts.
    pub fn has_others(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| !peers.others().is_empty())
    }

    /// Returns access to the other hosts; `None` if the query runs on this host alone.
    pub fn peers(&self) -> Option<&Arc<dyn Peers>> {
        self.peers.as_ref()
    }

    /// Returns whether the cluster decides where tasks run.
    pub fn places_tasks(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.places_tasks())
    }

    /// Returns whether no other host can run a task with these UDFs.
    pub fn is_here_only(&self, udfs: &[String]) -> bool {
        udfs.iter().any(|udf| self.own_udfs.contains(udf))
    }

    /// Returns the name of this host; `None` if the query runs on it alone.
    pub fn own_name(&self) -> Option<HostName> {
        self.peers.as_ref().map(|peers| peers.own_name())
    }

    /// Returns the hosts that may run a task, the best first, each with the number of rounds of
    /// tasks that it runs. This host is among them in any case.
    pub fn choices(&self, ask: &TaskAsk, inputs: &[Input]) -> Vec<(u32, HostChoice)> {
        let peers = self.peers.as_ref().filter(|_| !self.is_here_only(&ask.udfs));
        let others = peers.map(|peers| peers.others()).unwrap_or_default();
        let may_run = |peer: &Arc<dyn Peer>| {
            let state = self.state(&peer.name());
            state.may_run(ask) && (!self.is_apart(&peer.name()) || only_here(inputs, &peer.name()))
        };
        let reachable = !inputs.iter().any(|input| self.is_apart_input(input));
        let mut choices = vec![HostChoice::Here];
        choices.extend(
            others
                .into_iter()
                .filter(|peer| peer.takes_work())
                .filter(|peer| reachable || only_here(inputs, &peer.name()))
                .filter(may_run)
                .map(HostChoice::There),
        );
        let candidates: Vec<_> =
            choices.iter().map(|choice| self.candidate(choice, inputs)).collect();
        let best = order::order(&candidates).into_iter();
        best.map(|place| (candidates[place].round(), choices[place].clone())).collect()
    }

    /// Returns the hosts that may run a task of a gang, the best first. All of them reach each
    /// other, as far as that is known.
    pub fn gang_choices(&self, task: &GangTask) -> Vec<HostChoice> {
        let GangTask { task, udfs, files, .. } = task.clone();
        let ask = TaskAsk { task, udfs, files, ..TaskAsk::default() };
        let may_stream = |choice: &HostChoice| match choice {
            HostChoice::Here => true,
            HostChoice::There(peer) => peer.address().is_some() && !self.is_apart(&peer.name()),
        };
        self.choices(&ask, &[]).into_iter().map(|(_, choice)| choice).filter(may_stream).collect()
    }

    /// Returns the notification that one more host can be used.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    fn candidate(&self, choice: &HostChoice, inputs: &[Input]) -> HostCandidate {
        let (cores, running) = match choice {
            HostChoice::Here => (own_cores(), self.here.load(Ordering::Relaxed)),
            HostChoice::There(peer) => {
                (peer.cores(), self.state(&peer.name()).running.load(Ordering::Relaxed))
            }
        };
        let is_there = |input: &&Input| match (&input.place, choice) {
            (OutputPlace::Here, HostChoice::Here) => true,
            (OutputPlace::There(session), HostChoice::There(peer)) => {
                *session.name() == peer.name()
            }
            _ => false,
        };
        let input_bytes = inputs.iter().filter(is_there).map(|input| input.bytes).sum();
        HostCandidate { cores, running, input_bytes }
    }

    /// Counts a task on a host.
    pub fn count(&self, choice: &HostChoice) -> TaskCount {
        let running = match choice {
            HostChoice::Here => Arc::clone(&self.here),
            HostChoice::There(peer) => Arc::clone(&self.state(&peer.name()).running),
        };
        running.fetch_add(1, Ordering::Relaxed);
        TaskCount { running, place: None }
    }

    /// Notes that a task of the query is on another host.
    pub fn uses(&self, tenant: &Tenant, host: &HostName) {
        let uses = || self.peers.as_ref().and_then(|peers| peers.uses(tenant, host));
        self.state(host).used.get_or_init(uses);
    }

    /// Returns the session of the query on a host. The first call begins to open the session.
    pub fn session(&self, peer: &Arc<dyn Peer>) -> SessionOpening {
        let session = &self.state(&peer.name()).session;
        let open = || {
            let order = self.order(&peer.name());
            let sent = self.files.clone().zip(self.peers.clone());
            let peer = Arc::clone(peer);
            async move {
                let files = match sent {
                    Some((files, peers)) => files.places(&*peers, &peer.name()).await,
                    None => Vec::new(),
                };
                Session::open(peer, &OpenQuery { files, ..order }, OPEN_TIMEOUT).await
            }
        };
        session.begin(open, &self.changed);
        session.now(self.expected_within)
    }

    /// Returns why hosts run no tasks of the query any more; each reason is returned once.
    pub fn take_failures(&self) -> Vec<NotOpened> {
        self.lock().values().filter_map(|state| state.session.take_failure()).collect()
    }

    /// Ends the session on a host if the host does not answer, or only with damaged data.
    pub async fn confirm(&self, host: &HostName) {
        if let SessionOpening::Session(session) = self.state(host).session.now(Duration::ZERO) {
            session.confirm().await;
        }
    }

    fn order(&self, host: &HostName) -> OpenQuery {
        let mut order = OpenQuery {
            elapsed_us: micros(self.accepted.elapsed()),
            control: self.peers.as_ref().and_then(|peers| peers.own_address()),
            ..self.order.clone()
        };
        let images = order.udfs.iter_mut().filter_map(|udf| udf.image.as_mut());
        if let Some(peers) = &self.peers {
            images.for_each(|image| image.place = peers.tree_place(&image.tree, host));
        }
        order
    }

    /// Notes that a host does not have a file: tasks that read the file run elsewhere.
    pub fn lacks(&self, host: &HostName, path: String) {
        let state = self.state(host);
        state.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
    }

    /// Notes that hosts cannot reach each other, though control reaches all of them. From now on
    /// control's own host reads the outputs that these hosts have.
    pub fn set_apart<'h>(&self, hosts: impl Iterator<Item = &'h HostName>) {
        for host in hosts {
            self.state(host).is_apart.store(true, Ordering::Relaxed);
        }
    }

    fn is_apart(&self, host: &HostName) -> bool {
        self.state(host).is_apart.load(Ordering::Relaxed)
    }

    fn is_apart_input(&self, input: &Input) -> bool {
        matches!(&input.place, OutputPlace::There(session) if self.is_apart(session.name()))
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
        match self.session.now(Duration::ZERO) {
            SessionOpening::Never => return false,
            SessionOpening::Session(session) if refused_udf(&session, ask).is_some() => {
                return false;
            }
            _ => {}
        }
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.is_empty() || !ask.files.iter().any(|file| missing.contains(&file.path))
    }
}

/// Returns whether all inputs of a task are on `host`.
fn only_here(inputs: &[Input], host: &HostName) -> bool {
    inputs.iter().all(|input| match &input.place {
        OutputPlace::Here => false,
        OutputPlace::There(session) => session.name() == host,
    })
}

/// Returns the request that tells a host all that it must know to run tasks of a query.
fn order(runner: &QueryRunner) -> OpenQuery {
    let udfs = runner.udfs.values().filter(|_| runner.peers.is_some());
    OpenQuery {
        query: runner.query.clone(),
        tenant: runner.tenant.clone(),
        rights: runner.files.rights().clone(),
        memory: runner.limits.memory,
        cpu: runner.limits.cpu,
        elapsed_us: 0,
        udfs: udfs.filter_map(|bound| udf_part(&bound.udf)).collect(),
        files: Vec::new(),
        control: None,
    }
}

fn udf_part(udf: &UdfBinding) -> Option<UdfPart> {
    let source = udf.source.as_ref()?;
    Some(UdfPart {
        name: udf.name.clone(),
        code: source.code.clone(),
        packages: source.packages.clone(),
        imports: source.imports.clone(),
        image: source.image.clone().map(image_part),
        files: source.files.clone(),
        secrets: source.secrets.clone(),
        limits: (*udf.limits).clone(),
        load: udf.load.clone(),
        timeout_ms: u64::try_from(udf.timeout.as_millis()).unwrap_or(u64::MAX),
    })
}

fn image_part(UdfImage { name, tree, .. }: UdfImage) -> ImagePart {
    ImagePart { name, tree, place: None }
}

/// Returns the first UDF of a task that a host cannot run, and the reason.
pub(in crate::driver_service) fn refused_udf<'s>(
    session: &'s Session,
    ask: &TaskAsk,
) -> Option<(String, &'s ErrorReport)> {
    ask.udfs.iter().find_map(|udf| Some((udf.clone(), session.refused(udf)?)))
}

fn own_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::remote::fake::{FakePeer, FakePeers, open, order};

    fn ask() -> TaskAsk {
        TaskAsk { task: 1, partitions: vec![0], batch_rows: 1, ..TaskAsk::default() }
    }

    #[tokio::test]
    async fn a_host_that_prepares_itself_keeps_no_task_from_another_one() {
        let (slow, _installs) = FakePeer::new("a-slow").await;
        let (quick, mut connections) = FakePeer::new("quick").await;
        let changed = Arc::new(Notify::new());
        let peers = Arc::new(FakePeers(vec![slow, quick]));
        let cluster = QueryCluster::of(Some(peers), order(), &changed, Duration::ZERO);
        // This host has all the tasks that its cores can run.
        let _here: Vec<_> = (0..own_cores()).map(|_| cluster.count(&HostChoice::Here)).collect();
        let notified = changed.notified();
        let there = |choices: Vec<(u32, HostChoice)>| -> Vec<SessionOpening> {
            let peers = choices.into_iter().filter_map(|(_, choice)| match choice {
                HostChoice::There(peer) => Some(peer),
                HostChoice::Here => None,
            });
            peers.map(|peer| cluster.session(&peer)).collect()
        };
        let rounds: Vec<u32> = cluster.choices(&ask(), &[]).iter().map(|(it, _)| *it).collect();
        assert_eq!(rounds, [0, 0, 1], "other hosts are better, as soon as they can be used");
        let found = there(cluster.choices(&ask(), &[]));
        assert!(found.iter().all(|found| matches!(found, SessionOpening::Later)), "{found:?}");
        let _session = open(&mut connections).await;
        notified.await;
        let found = there(cluster.choices(&ask(), &[]));
        assert!(
            matches!(&found[..], [SessionOpening::Later, SessionOpening::Session(_)]),
            "{found:?}"
        );
    }
}

//! The life of a lab, from creation to removal.
//!
//! Order of creation: namespaces, bridge and links, addresses and shapes, processes, and last the
//! plan, which marks the lab as complete. Removal is in the reverse order.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use snowmelt_network::netlink::Batch;
use snowmelt_types::{ByteSize, HostName};

use crate::device::{self, ETH0, port};
use crate::fault::{self, Fault};
use crate::folder::{self, Folder, Roots};
use crate::host::{Host, PREFIX, Program};
use crate::namespace::{self, Namespace};
use crate::process::{self, Process};
use crate::rate::Link;
use crate::{Error, Result, shape};

/// The maximum number of hosts, bounded by the addresses of their network.
pub const MAX_HOSTS: u32 = 250;
/// How long to wait for hosts to end before they are killed, and again after it.
const TIMEOUT: Duration = Duration::from_secs(15);
const BRIDGE: &str = "bridge";
/// The number of log lines that are reported when a process ended.
const TAIL: usize = 10;

/// The parameters of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The number of hosts, including control.
    pub hosts: u32,
    /// The link of each host.
    pub link: Link,
    /// The limit of memory for functions on each host.
    pub memory: ByteSize,
    /// Whether the first host is control alone, and runs no functions.
    #[serde(default)]
    pub control_only: bool,
}

/// The current state of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// The host.
    #[serde(flatten)]
    pub host: Host,
    /// The pid of the process that was started last for it.
    pub pid: Option<i32>,
    /// Whether that process runs.
    pub runs: bool,
    /// Its faults that are not healed.
    pub faults: Vec<Fault>,
}

/// A complete lab.
#[derive(Debug)]
pub struct Lab {
    name: HostName,
    roots: Roots,
    pub(crate) folder: Folder,
    pub(crate) plan: Plan,
}

impl Lab {
    /// Creates a lab and starts its hosts; first removes an incomplete lab of that name. After an
    /// error everything is removed again.
    ///
    /// # Errors
    /// A lab of that name is running, or the kernel refuses a step.
    pub fn up(roots: &Roots, name: &HostName, plan: Plan, program: &impl Program) -> Result<Self> {
        check(plan.hosts)?;
        let _lock = folder::lock(roots)?;
        let folder = Folder::of(roots, name);
        if folder.exists() {
            if folder.plan::<Plan>()?.is_some() && runs(&folder) {
                return Err(Error::Runs { name: name.clone() });
            }
            clear(&folder)?;
        }
        let lab = Self { name: name.clone(), roots: roots.clone(), folder, plan };
        let made = lab.make(program);
        if made.is_err() {
            clear(&lab.folder)?;
        }
        made.map(|()| lab)
    }

    /// A running lab.
    ///
    /// # Errors
    /// There is no lab of that name.
    pub fn open(roots: &Roots, name: &HostName) -> Result<Self> {
        let folder = Folder::of(roots, name);
        let plan = folder.plan()?.ok_or_else(|| Error::NoLab { name: name.clone() })?;
        Ok(Self { name: name.clone(), roots: roots.clone(), folder, plan })
    }

    /// All running labs.
    ///
    /// # Errors
    /// A plan cannot be read.
    pub fn all(roots: &Roots) -> Result<Vec<Self>> {
        let opened = folder::names(roots).into_iter().map(|name| Self::open(roots, &name));
        opened.filter(|lab| !matches!(lab, Err(Error::NoLab { .. }))).collect()
    }

    /// Ends all processes of a lab, complete or not, and removes it.
    ///
    /// # Errors
    /// There is no such lab, or a part of it cannot be removed.
    pub fn down(roots: &Roots, name: &HostName) -> Result<()> {
        let _lock = folder::lock(roots)?;
        let folder = Folder::of(roots, name);
        if !folder.exists() {
            return Err(Error::NoLab { name: name.clone() });
        }
        clear(&folder)
    }

    /// Adds hosts to a running lab.
    ///
    /// # Errors
    /// As for [`Lab::up`]; the hosts added before the error stay until [`Lab::down`].
    pub fn add(&mut self, hosts: u32, program: &impl Program) -> Result<Vec<Host>> {
        let _lock = folder::lock(&self.roots)?;
        // Another process may have added hosts.
        self.plan = Self::open(&self.roots, &self.name)?.plan;
        let (first, last) = (self.plan.hosts + 1, self.plan.hosts.saturating_add(hosts));
        check(last)?;
        let mut bridge = namespace::open(&self.folder.namespace(BRIDGE))?;
        let added: Vec<Host> = (first..=last).map(|number| self.host(number)).collect();
        self.connect(&mut bridge, &added, program)?;
        self.plan.hosts = last;
        self.folder.write_plan(&self.plan)?;
        fault::partition_new_hosts(self)?;
        Ok(added)
    }

    /// Its name.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// Its parameters.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its hosts.
    pub fn hosts(&self) -> Vec<Host> {
        (1..=self.plan.hosts).map(|number| self.host(number)).collect()
    }

    /// The current states of its hosts.
    ///
    /// # Errors
    /// A file of the lab cannot be read.
    pub fn states(&self) -> Result<Vec<State>> {
        self.hosts().into_iter().map(state).collect()
    }

    /// A host by its name.
    ///
    /// # Errors
    /// There is no host of that name.
    pub fn host_named(&self, name: &str) -> Result<Host> {
        let hosts = self.hosts();
        let known = hosts.iter().map(|host| host.name.clone()).collect();
        let (lab, host) = (self.name.clone(), name.to_owned());
        let found = hosts.into_iter().find(|host| host.name == name);
        found.ok_or(Error::NoHost { lab, host, hosts: known })
    }

    /// Moves the calling thread into a host's network namespace.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn enter(&self, host: &Host) -> Result<()> {
        let namespace = namespace::open(&host.namespace)?;
        snowmelt_kernel::namespace::join(&namespace, snowmelt_kernel::namespace::flags::NETWORK)
            .map_err(Error::step("enter a host's network namespace"))
    }

    /// Fails if the program of a host has ended, with the end of the first such host's log.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check_running(&self) -> Result<()> {
        let Some(ended) = self.states()?.into_iter().find(|state| !state.runs) else {
            return Ok(());
        };
        let text = fs::read(&ended.host.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let log = lines[lines.len().saturating_sub(TAIL)..].to_vec();
        Err(Error::Ended { host: ended.host.name, log, file: ended.host.log })
    }

    pub(crate) fn host(&self, number: u32) -> Host {
        let host = Host::new(&self.folder, number, self.plan.memory);
        match self.plan.control_only && host.is_control() {
            true => Host { memory: ByteSize(0), ..host },
            false => host,
        }
    }

    /// The namespace of the bridge.
    pub(crate) fn bridge(&self) -> Result<Namespace> {
        namespace::open(&self.folder.namespace(BRIDGE))
    }

    /// The lock that changes of labs hold.
    pub(crate) fn lock(&self) -> Result<snowmelt_kernel::lock::Lock> {
        folder::lock(&self.roots)
    }

    fn make(&self, program: &impl Program) -> Result<()> {
        self.folder.create()?;
        self.folder.write_token()?;
        let mut bridge = namespace::make(vec![self.folder.namespace(BRIDGE)])?;
        let [bridge] = bridge.as_mut_slice() else { return Err(Error::Root) };
        let mut batch = Batch::new();
        device::add_bridge(&mut batch);
        bridge.route.run(batch)?;
        self.connect(bridge, &self.hosts(), program)?;
        self.folder.write_plan(&self.plan)
    }

    /// Creates namespaces and links of hosts, configures and shapes them, and starts the processes.
    fn connect(
        &self,
        bridge: &mut Namespace,
        hosts: &[Host],
        program: &impl Program,
    ) -> Result<()> {
        let files = hosts.iter().map(|host| host.namespace.clone()).collect();
        let mut namespaces = namespace::make(files)?;
        let mut batch = Batch::new();
        for (host, namespace) in hosts.iter().zip(&namespaces) {
            device::add_link(
                &mut batch,
                host.number,
                &host.name,
                std::os::fd::AsFd::as_fd(namespace),
            );
        }
        bridge.route.run(batch)?;
        for (host, namespace) in hosts.iter().zip(&mut namespaces) {
            let mut batch = Batch::new();
            device::configure(&mut batch, host.ip(), PREFIX);
            namespace.route.run(batch)?;
            set_shape(bridge, namespace, host, self.plan.link)?;
        }
        self.add_neighbours(hosts, &mut namespaces)?;
        for (host, namespace) in hosts.iter().zip(&namespaces) {
            start(host, namespace, program)?;
        }
        Ok(())
    }

    /// Adds neighbour entries of all hosts to new hosts, and of the new hosts to earlier ones.
    fn add_neighbours(&self, new: &[Host], namespaces: &mut [Namespace]) -> Result<()> {
        let first = new.first().map_or(1, |host| host.number);
        let before: Vec<Host> = (1..first).map(|number| self.host(number)).collect();
        for (host, namespace) in new.iter().zip(namespaces) {
            let others = before.iter().chain(new).filter(|other| other.number != host.number);
            let mut batch = Batch::new();
            device::add_neighbours(&mut batch, others);
            namespace.route.run(batch)?;
        }
        for host in &before {
            let mut batch = Batch::new();
            device::add_neighbours(&mut batch, new);
            namespace::open(&host.namespace)?.route.run(batch)?;
        }
        Ok(())
    }
}

/// Shapes both ends of a host's link.
pub(crate) fn set_shape(
    bridge: &mut Namespace,
    namespace: &mut Namespace,
    host: &Host,
    link: Link,
) -> Result<()> {
    shape::add(&mut namespace.route, ETH0, link)?;
    shape::add(&mut bridge.route, port(host.number), Link { delay: None, ..link })
}

/// Starts the program of a host.
pub(crate) fn start(host: &Host, namespace: &Namespace, program: &impl Program) -> Result<()> {
    folder::make(&host.folder, 0o711)?;
    let process = process::start(program.command(host), namespace, &host.log)?;
    folder::write(&host.process_file(), &process)
}

/// The process that was started for a host.
pub(crate) fn process_of(host: &Host) -> Result<Option<Process>> {
    folder::read(&host.process_file())
}

fn state(host: Host) -> Result<State> {
    let process = process_of(&host)?;
    let (pid, runs) = (process.map(|process| process.pid), process.is_some_and(Process::is_alive));
    let faults = fault::of(&host)?;
    Ok(State { host, pid, runs, faults })
}

fn check(hosts: u32) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Root);
    }
    match hosts {
        1..=MAX_HOSTS => Ok(()),
        asked => Err(Error::Hosts { most: MAX_HOSTS, asked }),
    }
}

fn namespaces_of(folder: &Folder) -> HashSet<(u64, u64)> {
    process::identities(&folder.namespaces())
}

fn runs(folder: &Folder) -> bool {
    process::any_in(&namespaces_of(folder))
}

/// Ends the processes of a lab and removes it. Each step may have been done before.
fn clear(folder: &Folder) -> Result<()> {
    folder.remove_plan()?;
    process::end_all_in(&namespaces_of(folder), TIMEOUT)?;
    for file in folder.namespaces() {
        sweep(folder, &file)?;
        namespace::remove(&file)?;
    }
    folder.remove()
}

/// Removes the control groups and folders of sandboxes, and waits for a spawner that still removes
/// some: it is in a network namespace of its own, and ends with its host.
fn sweep(folder: &Folder, namespace: &std::path::Path) -> Result<()> {
    let host = namespace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let run = folder.run.join(&host).join("run");
    let deadline = Instant::now() + TIMEOUT;
    while fs::read_dir(&run).is_ok_and(|mut left| left.next().is_some()) {
        snowmelt_sandbox::sweep(&run)
            .map_err(|source| Error::Sweep { host: host.clone(), source: Box::new(source) })?;
        if Instant::now() > deadline {
            let late = std::io::ErrorKind::TimedOut.into();
            return Err(Error::step(format!("end the sandboxes of {host}"))(late));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

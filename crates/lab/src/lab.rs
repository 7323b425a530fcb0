//! A running lab: its members and their states.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use snowmelt_types::HostName;

use crate::folder::{self, Folder, Roots};
use crate::members::{Fault, LabHost, LabMember, Machine, Service, fault_kinds, process_of};
use crate::namespace::{self, Namespace};
use crate::parameters::LabPlan;
use crate::process::Process;
use crate::{Error, Result};

pub(crate) const BRIDGE: &str = "bridge";
/// The number of log lines that are reported when a process ended.
const TAIL: usize = 10;
/// The limit on the time until services can be used.
const SERVE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The current state of a host or service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct State<T> {
    /// The host or service.
    #[serde(flatten)]
    pub of: T,
    /// The pid of the process that was started last for the member.
    pub pid: Option<i32>,
    /// Whether that process runs.
    pub runs: bool,
    /// The faults that are not healed.
    pub faults: Vec<Fault>,
}

/// A complete lab.
#[derive(Debug)]
pub struct Lab {
    name: HostName,
    pub(crate) roots: Roots,
    pub(crate) folder: Folder,
    pub(crate) plan: LabPlan,
}

impl Lab {
    /// A lab that may not exist yet.
    pub(crate) fn of(roots: &Roots, name: &HostName, plan: LabPlan) -> Self {
        let folder = Folder::of(roots, name);
        Self { name: name.clone(), roots: roots.clone(), folder, plan }
    }

    /// A running lab.
    ///
    /// # Errors
    /// Fails if no lab has that name.
    pub fn open(roots: &Roots, name: &HostName) -> Result<Self> {
        let plan = Folder::of(roots, name).plan()?;
        Ok(Self::of(roots, name, plan.ok_or_else(|| Error::NoLab { name: name.clone() })?))
    }

    /// All running labs.
    ///
    /// # Errors
    /// A plan cannot be read.
    pub fn all(roots: &Roots) -> Result<Vec<Self>> {
        let opened = folder::names(roots).into_iter().map(|name| Self::open(roots, &name));
        opened.filter(|lab| !matches!(lab, Err(Error::NoLab { .. }))).collect()
    }

    /// The name of the lab.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The parameters of the lab.
    pub fn plan(&self) -> &LabPlan {
        &self.plan
    }

    /// The hosts of the lab.
    pub fn hosts(&self) -> Vec<LabHost> {
        (1..=self.plan.hosts).map(|number| self.host(number)).collect()
    }

    /// The services of the lab.
    pub fn services(&self) -> Vec<Service> {
        let services = self.plan.services();
        services.map(|(kind, plan)| Service::new(&self.folder, kind, plan)).collect()
    }

    /// The services and hosts of the lab, in the order in which they are started.
    pub fn members(&self) -> Vec<LabMember> {
        let services = self.services().into_iter().map(LabMember::Service);
        services.chain(self.hosts().into_iter().map(LabMember::Host)).collect()
    }

    /// Reads the current states of the lab's hosts.
    ///
    /// # Errors
    /// A file of the lab cannot be read.
    pub fn states(&self) -> Result<Vec<State<LabHost>>> {
        self.hosts().into_iter().map(|host| state(host.machine.clone(), host)).collect()
    }

    /// Reads the current states of the lab's services.
    ///
    /// # Errors
    /// A file of the lab cannot be read.
    pub fn service_states(&self) -> Result<Vec<State<Service>>> {
        self.services().into_iter().map(|service| state(service.machine.clone(), service)).collect()
    }

    /// A host or service by its name.
    ///
    /// # Errors
    /// Fails if no host or service has that name.
    pub fn member_named(&self, name: &str) -> Result<LabMember> {
        let mut members = self.members();
        if let Some(at) = members.iter().position(|member| member.machine().name == name) {
            return Ok(members.swap_remove(at));
        }
        let known = members.iter().map(|member| member.machine().name.clone()).collect();
        Err(Error::NoHost { lab: self.name.clone(), host: name.to_owned(), hosts: known })
    }

    /// The host with the gateway.
    pub fn control(&self) -> LabHost {
        self.host(1)
    }

    /// Moves the calling thread into the network namespace of a host or service.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn enter(&self, machine: &Machine) -> Result<()> {
        let namespace = namespace::open(&machine.namespace)?;
        snowmelt_kernel::namespace::join(&namespace, snowmelt_kernel::namespace::flags::NETWORK)
            .map_err(Error::step("enter a host's network namespace"))
    }

    /// Checks that all programs run that should. The error has the last lines of the first ended
    /// program's log.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check_running(&self) -> Result<()> {
        for member in self.members().iter().filter(|member| self.is_to_start(member)) {
            let machine = member.machine();
            if !process_of(machine)?.is_some_and(Process::is_alive) {
                return Err(ended(machine));
            }
        }
        Ok(())
    }

    /// Waits until all services can be used.
    ///
    /// # Errors
    /// The program of a service ends, or a service does not answer in time.
    pub fn wait_for_services(&self) -> Result<()> {
        for service in self.services() {
            let deadline = Instant::now() + SERVE_TIMEOUT;
            while !self.within(&service.machine, || service.is_ready())? {
                self.check_running()?;
                if Instant::now() > deadline {
                    let step = format!("wait for the {} of the lab", service.machine.name);
                    return Err(Error::step(step)(std::io::ErrorKind::TimedOut.into()));
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    pub(crate) fn host(&self, number: u32) -> LabHost {
        LabHost::new(&self.folder, number, &self.plan)
    }

    /// The namespace of the bridge.
    pub(crate) fn bridge(&self) -> Result<Namespace> {
        namespace::open(&self.folder.namespace(BRIDGE))
    }

    /// The lock that changes of labs hold.
    pub(crate) fn lock(&self) -> Result<snowmelt_kernel::lock::Lock> {
        folder::lock(&self.roots)
    }

    /// Runs work in the network namespace of a machine, in a thread that never leaves that
    /// namespace.
    fn within<T: Send>(&self, machine: &Machine, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let visitor = scope.spawn(|| self.enter(machine).map(|()| work()));
            let lost = || Error::step("enter a namespace")(std::io::ErrorKind::Other.into());
            visitor.join().unwrap_or_else(|_| Err(lost()))
        })
    }
}

fn state<T>(machine: Machine, of: T) -> Result<State<T>> {
    let process = process_of(&machine)?;
    let pid = process.map(|process| process.pid);
    let runs = process.is_some_and(Process::is_alive);
    let faults = fault_kinds::of(&machine)?;
    Ok(State { of, pid, runs, faults })
}

fn ended(machine: &Machine) -> Error {
    let text = fs::read(&machine.log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let log = lines[lines.len().saturating_sub(TAIL)..].to_vec();
    Error::Ended { host: machine.name.clone(), log, file: machine.log.clone() }
}

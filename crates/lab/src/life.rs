//! The life of a lab, from creation to removal.
//!
//! Order of creation: namespaces, bridge and links, addresses and shapes, processes, and last the
//! plan, which marks the lab as complete. Removal is in the reverse order.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use snowmelt_types::HostName;

use crate::faults::partition_new_hosts;
use crate::folder::{self, Folder, Roots};
use crate::lab::Lab;
use crate::members::{LabHost, LabMember, LabProgram, disk, service};
use crate::network::wiring;
use crate::parameters::{LabPlan, MAX_HOSTS, ServiceKind};
use crate::process::{self, Process};
use crate::{Error, Result, namespace};

/// The limit on the wait for hosts to end before they are killed, and again after that.
const TIMEOUT: Duration = Duration::from_secs(15);

impl Lab {
    /// Creates a lab and starts its services and hosts; first removes an incomplete lab of that
    /// name. After an error everything is removed again.
    ///
    /// # Errors
    /// A lab of that name is running, the program of a service is missing, or the kernel refuses a
    /// step.
    pub fn up(
        roots: &Roots,
        name: &HostName,
        plan: LabPlan,
        program: &impl LabProgram,
    ) -> Result<Self> {
        check(plan.hosts)?;
        let _lock = folder::lock(roots)?;
        let lab = Self::of(roots, name, with_programs(plan)?);
        if lab.folder.exists() {
            if lab.folder.plan::<LabPlan>()?.is_some() && runs(&lab.folder) {
                return Err(Error::Runs { name: name.clone() });
            }
            clear(&lab.folder)?;
        }
        let made = make(&lab, program);
        if made.is_err() {
            clear(&lab.folder)?;
        }
        made.map(|()| lab)
    }

    /// Ends all processes of a lab, complete or not, and removes it.
    ///
    /// # Errors
    /// Fails if no lab has that name, or a part of it cannot be removed.
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
    /// Fails as [`Lab::up`]; the hosts added before the error stay until [`Lab::down`].
    pub fn add(&mut self, hosts: u32, program: &impl LabProgram) -> Result<Vec<LabHost>> {
        let _lock = self.lock()?;
        // Another process may have added hosts.
        self.plan = Self::open(&self.roots, self.name())?.plan;
        let first = self.plan.hosts + 1;
        let last = self.plan.hosts.saturating_add(hosts);
        check(last)?;
        let added: Vec<LabHost> = (first..=last).map(|number| self.host(number)).collect();
        let new: Vec<LabMember> = added.iter().cloned().map(LabMember::Host).collect();
        wiring::connect(&mut self.bridge()?, &self.members(), &new, |_: &LabMember| true, program)?;
        self.plan.hosts = last;
        self.folder.write_plan(&self.plan)?;
        partition_new_hosts(self)?;
        Ok(added)
    }
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

/// Returns the plan with the paths of the services' programs, which are started again later.
fn with_programs(mut plan: LabPlan) -> Result<LabPlan> {
    let registry = &mut plan.registry;
    let store = &mut plan.store;
    for (kind, planned) in [(ServiceKind::Registry, registry), (ServiceKind::Store, store)] {
        if let Some(planned) = planned {
            planned.program = service::find(kind, &planned.program)?;
        }
    }
    Ok(plan)
}

fn make(lab: &Lab, program: &impl LabProgram) -> Result<()> {
    lab.folder.create()?;
    if let Some(pool) = &lab.plan.pool {
        lab.folder.write_provider(&pool.program)?;
    }
    let mut bridge = wiring::add_bridge(lab)?;
    let starts = |member: &LabMember| lab.is_to_start(member);
    wiring::connect(&mut bridge, &[], &lab.members(), starts, program)?;
    lab.folder.write_plan(&lab.plan)
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
    make_ready_to_end(folder)?;
    process::end_all_in(&namespaces_of(folder), TIMEOUT)?;
    for file in folder.namespaces() {
        sweep(folder, &file)?;
        namespace::remove(&file)?;
        disk::remove(&folder.state.join(file.file_name().unwrap_or_default()));
    }
    folder.remove()
}

/// Kills the services and thaws the hosts of a lab. A frozen process cannot clean up after itself.
/// Services have nothing to clean up, and the store takes long to end.
fn make_ready_to_end(folder: &Folder) -> Result<()> {
    for file in folder.namespaces() {
        let name = file.file_name().unwrap_or_default();
        let process = folder::read::<Process>(&folder.run.join(name).join("process"))?;
        match process {
            Some(process) if service::is_name(name) => process.kill()?,
            Some(process) => process::thaw(&process.with_below())?,
            None => {}
        }
    }
    Ok(())
}

/// Removes the control groups and folders of sandboxes, and waits for a spawner that still removes
/// some: it is in a network namespace of its own, and ends with its host.
fn sweep(folder: &Folder, namespace: &Path) -> Result<()> {
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

//! Address enforcement by control groups: the kernel runs our BPF programs whenever a function
//! creates, binds or connects a socket, whatever library or language it is written in.
//!
//! Invariant: in the namespace of a job only functions whose group is registered can use internet
//! sockets; in other namespaces the programs change nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use snowmelt_kernel::bpf::{Map, ProgramLink};

use super::layout::VALUE;
use super::programs;
use crate::devices::lock;
use crate::{Address, Error, Result};

/// The maximum numbers of functions and of jobs on a host at a time.
const MAX_FUNCTIONS: u32 = 1 << 17;
const MAX_JOBS: u32 = 1 << 13;

/// The attached programs, and the BPF maps that they read.
#[derive(Debug)]
pub struct Cgroups {
    /// The addresses of each function and the cookie of its namespace, by the id of the control
    /// group.
    functions: Map,
    /// The cookies of the namespaces of jobs.
    jobs: Map,
    _links: Vec<ProgramLink>,
    /// The registered groups of each namespace, to be removed when its job ends.
    registered: Mutex<BTreeMap<u64, Vec<u64>>>,
}

impl Cgroups {
    /// Attaches the programs to a control group (version 2) above those of all functions.
    pub fn attach(above: &Path) -> Result<Self> {
        let functions = step("make a map", Map::hash(8, VALUE, MAX_FUNCTIONS))?;
        let jobs = step("make a map", Map::hash(8, 1, MAX_JOBS))?;
        let folder = step("open the control group", File::open(above))?;
        let loaded = programs::load(functions.as_fd(), jobs.as_fd());
        let mut links = Vec::new();
        for program in step("load a program", loaded)? {
            // A link and not an attachment: the kernel detaches the programs when this process
            // ends, however it ends.
            links.push(step("attach a program", program.attach(folder.as_fd()))?);
        }
        Ok(Self { functions, jobs, _links: links, registered: Mutex::default() })
    }

    /// Registers a job: from now on only registered functions can use internet sockets in its
    /// namespace.
    pub fn add_job(&self, namespace: u64) -> Result<()> {
        // In the kernel first: an entry here without one there would say that a job is closed off
        // which is not.
        step("register a job", self.jobs.set(&namespace.to_ne_bytes(), &[1]))?;
        lock(&self.registered).entry(namespace).or_default();
        Ok(())
    }

    /// Registers a function: the processes in this control group use these addresses.
    pub fn add(&self, namespace: u64, group: &Path, address: Address) -> Result<()> {
        let group = step("inspect the control group", fs::metadata(group))?.ino();
        let value = Self::entry(namespace, address);
        step("register a function", self.functions.set(&group.to_ne_bytes(), &value))?;
        lock(&self.registered).entry(namespace).or_default().push(group);
        Ok(())
    }

    /// The entry of a function in [`Self::table`].
    pub fn entry(namespace: u64, address: Address) -> Vec<u8> {
        let mut value = namespace.to_ne_bytes().to_vec();
        value.extend(address.v4.octets());
        value.extend([0; 4]);
        value.extend(address.v6.octets());
        value
    }

    /// The functions by the number of their control group, in the machine's order of bytes.
    pub fn table(&self) -> BorrowedFd<'_> {
        self.functions.as_fd()
    }

    /// Removes a function. Its group may be registered again afterwards.
    pub fn remove(&self, namespace: u64, group: &Path) -> Result<()> {
        let group = step("inspect the control group", fs::metadata(group))?.ino();
        if let Some(groups) = lock(&self.registered).get_mut(&namespace) {
            groups.retain(|registered| *registered != group);
        }
        step("remove a function", absent(self.functions.remove(&group.to_ne_bytes())))
    }

    /// Removes all functions of a job. Its namespace stays closed to other processes.
    pub fn remove_functions(&self, namespace: u64) {
        // The job stays registered, so processes that are left in its namespace have no sockets.
        let groups = lock(&self.registered).insert(namespace, Vec::new());
        for group in groups.into_iter().flatten() {
            // It may be removed already: the same group was registered twice.
            drop(self.functions.remove(&group.to_ne_bytes()));
        }
    }

    /// Removes a job whose namespace is gone.
    pub fn remove_job(&self, namespace: u64) {
        self.remove_functions(namespace);
        lock(&self.registered).remove(&namespace);
        drop(self.jobs.remove(&namespace.to_ne_bytes()));
    }
}

/// Has the kernel verify all programs, and unloads them.
pub fn verify_programs() -> io::Result<()> {
    let functions = Map::hash(8, VALUE, 1)?;
    let jobs = Map::hash(8, 1, 1)?;
    programs::load(functions.as_fd(), jobs.as_fd()).map(drop)
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn step<T>(name: &str, done: io::Result<T>) -> Result<T> {
    done.map_err(|source| Error::Enforcement { step: name.to_owned(), source })
}

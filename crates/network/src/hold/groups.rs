//! Functions by their control groups: the kernel runs our programs whenever one of them opens,
//! binds or connects a socket, whatever library or language it is written in.
//!
//! Invariant: in the namespace of a job nothing but a function whose group is known may use the
//! internet; elsewhere the programs change nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use snowmelt_kernel::bpf::{Link, Map};

use super::programs::{self, VALUE};
use crate::host::lock;
use crate::{Address, Error, Result};

/// The most functions and the most jobs on one host at a time.
const MOST_FUNCTIONS: u32 = 1 << 17;
const MOST_JOBS: u32 = 1 << 13;

/// The programs at their place, and the tables that they read.
#[derive(Debug)]
pub struct Groups {
    /// Addresses and the namespace's number, by the number of the control group.
    functions: Map,
    /// The numbers of the namespaces of jobs.
    jobs: Map,
    _links: Vec<Link>,
    /// Which groups each namespace has: what is to be removed when its job ends.
    known: Mutex<BTreeMap<u64, Vec<u64>>>,
}

impl Groups {
    /// Attaches the programs to a control group of version 2 that is above all functions'.
    pub fn attach(above: &Path) -> Result<Self> {
        let functions = hold("make a map", Map::hash(8, VALUE, MOST_FUNCTIONS))?;
        let jobs = hold("make a map", Map::hash(8, 1, MOST_JOBS))?;
        let folder = hold("open the control group", File::open(above))?;
        let loaded = programs::load(functions.as_fd(), jobs.as_fd());
        let mut links = Vec::new();
        for program in hold("load a program", loaded)? {
            links.push(hold("attach a program", program.attach(folder.as_fd()))?);
        }
        Ok(Self { functions, jobs, _links: links, known: Mutex::default() })
    }

    /// From now on only functions that are named use the internet in this namespace.
    pub fn add_job(&self, namespace: u64) -> Result<()> {
        hold("note a job", self.jobs.set(&namespace.to_ne_bytes(), &[1]))?;
        lock(&self.known).entry(namespace).or_default();
        Ok(())
    }

    /// Names a function: what is in this control group has these addresses.
    pub fn add(&self, namespace: u64, group: &Path, address: Address) -> Result<()> {
        let group = hold("look at the control group", fs::metadata(group))?.ino();
        let mut value = namespace.to_ne_bytes().to_vec();
        value.extend(address.v4.octets());
        value.extend([0; 4]);
        value.extend(address.v6.octets());
        hold("note a function", self.functions.set(&group.to_ne_bytes(), &value))?;
        lock(&self.known).entry(namespace).or_default().push(group);
        Ok(())
    }

    /// Forgets a function. Its group may have another one afterwards.
    pub fn remove(&self, namespace: u64, group: &Path) -> Result<()> {
        let group = hold("look at the control group", fs::metadata(group))?.ino();
        if let Some(groups) = lock(&self.known).get_mut(&namespace) {
            groups.retain(|known| *known != group);
        }
        hold("forget a function", absent(self.functions.remove(&group.to_ne_bytes())))
    }

    /// Forgets all functions of a job. Its namespace stays closed to others.
    pub fn remove_functions(&self, namespace: u64) {
        let groups = lock(&self.known).insert(namespace, Vec::new());
        for group in groups.into_iter().flatten() {
            // Removed already: the same group was named twice.
            drop(self.functions.remove(&group.to_ne_bytes()));
        }
    }

    /// Forgets a job whose namespace is gone.
    pub fn remove_job(&self, namespace: u64) {
        self.remove_functions(namespace);
        lock(&self.known).remove(&namespace);
        drop(self.jobs.remove(&namespace.to_ne_bytes()));
    }
}

/// Has the kernel verify all programs, and lets them go.
pub fn try_programs() -> io::Result<()> {
    let (functions, jobs) = (Map::hash(8, VALUE, 1)?, Map::hash(8, 1, 1)?);
    programs::load(functions.as_fd(), jobs.as_fd()).map(drop)
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn hold<T>(step: &str, done: io::Result<T>) -> Result<T> {
    done.map_err(|source| Error::Hold { step: step.to_owned(), source })
}

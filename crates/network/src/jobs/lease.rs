//! Leases: which overlay and addresses a job has on this host, in files that outlive the node.
//!
//! Invariant: a lease is written before its network is created and removed only when no part of the
//! network is left: when its device in the host's namespace is gone. That device vanishes when the
//! kernel has removed the namespace with all connections, routes and neighbours in it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::Tenant;

use crate::{Error, JobSpec, Range, Result};

/// A job's claim on an overlay and addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The job's name.
    pub job: String,
    /// The job's tenant.
    pub tenant: Tenant,
    /// The VXLAN network identifier (VNI) of the overlay.
    pub vni: u32,
    /// The part of the job's IPv4 addresses that this host owns.
    pub own4: Range,
    /// The part of the job's IPv6 addresses that this host owns.
    pub own6: Range,
    /// The device in the host's namespace that exists as long as any part of the network does.
    pub device: String,
    /// Whether the job has ended and the kernel has yet to remove its network.
    #[serde(default)]
    pub ending: bool,
}

impl Lease {
    /// The lease of a job that is about to get this device.
    pub fn new(spec: &JobSpec, device: &str) -> Self {
        Self {
            job: spec.job.clone(),
            tenant: spec.tenant.clone(),
            vni: spec.vni,
            own4: spec.own4,
            own6: spec.own6,
            device: device.to_owned(),
            ending: false,
        }
    }
}

/// The folder with a file for each lease, named by its VNI.
#[derive(Clone, Debug)]
pub struct LeaseFolder {
    folder: PathBuf,
}

impl LeaseFolder {
    /// Creates the folder if it does not exist.
    pub fn open(state: &Path) -> Result<Self> {
        let folder = state.join("networks");
        fs::create_dir_all(&folder).map_err(|source| at(&folder, source))?;
        Ok(Self { folder })
    }

    /// All leases. A file that a crash left half written belongs to a network that was never
    /// created: it is removed.
    pub fn all(&self) -> Result<Vec<Lease>> {
        let entries = fs::read_dir(&self.folder).map_err(|source| at(&self.folder, source))?;
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| at(&self.folder, source))?.path();
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.map_err(|source| at(&path, source))?,
            };
            match serde_json::from_str(&text) {
                Ok(lease) => all.push(lease),
                Err(_) => remove(&path)?,
            }
        }
        all.sort_by_key(|lease: &Lease| lease.vni);
        Ok(all)
    }

    /// Writes a lease atomically.
    pub fn write(&self, lease: &Lease) -> Result<()> {
        let path = self.path(lease.vni);
        let draft = path.with_extension("draft");
        let text = serde_json::to_vec_pretty(lease).map_err(|error| at(&path, error.into()))?;
        let write = || {
            let mut file = fs::File::create(&draft)?;
            file.write_all(&text)?;
            // A reader sees the old lease or the new one; the content need not survive a power
            // failure, after which no network is left.
            fs::rename(&draft, &path)
        };
        write().map_err(|source| at(&path, source))
    }

    /// Removes the lease of an overlay, if it exists.
    pub fn remove(&self, vni: u32) -> Result<()> {
        remove(&self.path(vni))
    }

    fn path(&self, vni: u32) -> PathBuf {
        self.folder.join(format!("{vni}.json"))
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, error)),
        _ => Ok(()),
    }
}

fn at(path: &Path, source: io::Error) -> Error {
    Error::Lease { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(vni: u32) -> Lease {
        Lease {
            job: format!("job-{vni}"),
            tenant: Tenant::default(),
            vni,
            own4: "10.0.0.0/24".parse().unwrap(),
            own6: "fd00::/120".parse().unwrap(),
            device: "snm0".into(),
            ending: false,
        }
    }

    #[test]
    fn leases_outlive_the_process_and_half_written_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let leases = LeaseFolder::open(folder.path()).unwrap();
        leases.write(&lease(9)).unwrap();
        leases.write(&lease(3)).unwrap();
        fs::write(leases.path(5).with_extension("draft"), "{\"job").unwrap();
        let again = LeaseFolder::open(folder.path()).unwrap();
        assert_eq!(again.all().unwrap(), [lease(3), lease(9)]);
        again.remove(3).unwrap();
        again.remove(3).unwrap();
        assert_eq!(again.all().unwrap(), [lease(9)]);
        assert_eq!(fs::read_dir(&leases.folder).unwrap().count(), 1);
    }
}

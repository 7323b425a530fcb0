//! Roots: what a sandbox sees, put together once for equal specs and copied for each sandbox.
//!
//! A template is a mount of its own in the spawner's private mount namespace, so no mount shows on
//! the host and all vanish with the spawner. Every mount in it is read-only and nosuid, and nodev
//! but for the five devices.

mod base;
mod skeleton;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use snowmelt_kernel::mount::{self, Attributes};

use crate::spec::{Network, Root};
use skeleton::Skeleton;

/// How many templates are kept; the one used longest ago goes first.
const MOST_TEMPLATES: usize = 32;

/// A step that failed, as a verb phrase, and what the kernel said.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What was being done.
    pub step: String,
    /// What the kernel said.
    pub source: io::Error,
}

/// Names the step of a call that may fail.
pub(crate) fn doing<T>(step: impl Into<String>, result: io::Result<T>) -> Result<T, Fault> {
    result.map_err(|source| Fault { step: step.into(), source })
}

/// The templates of one spawner.
pub(crate) struct Roots {
    folder: PathBuf,
    /// The one used last is last.
    templates: Vec<Template>,
    made: u64,
}

struct Template {
    root: Root,
    network: Network,
    path: PathBuf,
    top: OwnedFd,
}

impl Roots {
    /// Keeps templates under `folder`, an empty folder in a private mount namespace.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, templates: Vec::new(), made: 0 }
    }

    /// A detached copy of the template for this root.
    pub fn copy(&mut self, root: &Root, network: Network) -> Result<OwnedFd, Fault> {
        let known = self.templates.iter().position(|template| template.is_for(root, network));
        let template = match known {
            Some(index) => self.templates.remove(index),
            None => self.assemble(root, network)?,
        };
        let copied = mount::copy_at(&template.top, Path::new(""));
        self.templates.push(template);
        if self.templates.len() > MOST_TEMPLATES {
            self.templates.remove(0);
        }
        doing("copy the root", copied)
    }

    fn assemble(&mut self, root: &Root, network: Network) -> Result<Template, Fault> {
        let path = self.folder.join(self.made.to_string());
        self.made += 1;
        doing("make a folder for the root", std::fs::create_dir(&path))?;
        let options = [("size", "4m"), ("mode", "755")];
        let fresh = mount::fresh("tmpfs", &options, Attributes::empty());
        let top = doing("make the root's file system", fresh)?;
        doing("attach the root's file system", mount::attach_at(&top, rustix::fs::CWD, &path))?;
        // From here on, dropping the template takes the mount away again.
        let template = Template { root: root.clone(), network, path, top };
        let skeleton = Skeleton::new(template.top.as_fd());
        base::assemble(&skeleton, network)?;
        for bind in &root.binds {
            skeleton.bind(&bind.source, &bind.target)?;
        }
        doing("make the root read-only", mount::set_attributes_of(&template.top, mount::inert()))?;
        Ok(template)
    }
}

impl Template {
    fn is_for(&self, root: &Root, network: Network) -> bool {
        self.network == network && self.root == *root
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // Copies of it live on; what cannot be removed goes with the run directory.
        if mount::detach(&self.path).is_ok() {
            drop(std::fs::remove_dir(&self.path));
        }
    }
}

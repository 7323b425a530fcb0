//! The folder of a tenant's images, and the logins with which the tenant's registries are read.
//!
//! Invariant: images, cached blocks and raw files of one tenant are in no folder of another's, and
//! no login of another is used for it. So what a tenant reads, it has sent or read itself.

use std::path::{Path, PathBuf};

use snowmelt_image::source::Access;
use snowmelt_image::{Error, Result};
use snowmelt_types::Tenant;

/// The folder, in the state folder, with a folder for each tenant but `default`, which has the state
/// folder itself.
const TENANTS: &str = "tenants";
/// The folder of images that were converted or pulled on this machine.
const LOCAL: &str = "images";
/// The logins of a tenant for registries, as `docker login` writes them.
const LOGINS: &str = "registries.json";

/// A file in the folder of tenants that says that each has its own images. No tenant has this name.
const DIVIDED: &str = ".divided";

/// The images of one tenant on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantImages {
    tenant: Tenant,
    folder: PathBuf,
}

impl TenantImages {
    /// Names the images of a tenant in the state folder `state`; opens nothing.
    pub fn new(state: &Path, tenant: &Tenant) -> Self {
        let folder = if *tenant == Tenant::default() {
            state.to_owned()
        } else {
            state.join(TENANTS).join(tenant.as_str())
        };
        Self { tenant: tenant.clone(), folder }
    }

    /// Returns the images of all tenants that have a folder, those of `default` first.
    pub fn all(state: &Path) -> Vec<Self> {
        let found = std::fs::read_dir(state.join(TENANTS)).into_iter().flatten().flatten();
        let names = found.filter_map(|entry| entry.file_name().into_string().ok());
        let mut tenants: Vec<Tenant> = names.filter_map(|name| name.parse().ok()).collect();
        tenants.sort();
        std::iter::once(Tenant::default())
            .chain(tenants)
            .map(|one| Self::new(state, &one))
            .collect()
    }

    /// Returns whether tenants have folders of their own in this state folder: earlier versions
    /// kept all images in one.
    pub fn are_divided(state: &Path) -> bool {
        state.join(TENANTS).join(DIVIDED).exists()
    }

    /// Remembers that tenants have folders of their own.
    pub fn set_divided(state: &Path) -> Result<()> {
        let path = state.join(TENANTS).join(DIVIDED);
        let made = std::fs::create_dir_all(state.join(TENANTS));
        let made = made.and_then(|()| std::fs::write(&path, ""));
        made.map_err(|source| Error::Io { action: "write", path, source })
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the folder with all that the tenant has of images.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the images that were converted or pulled on this machine.
    pub fn layout_folder(&self) -> PathBuf {
        self.folder.join(LOCAL)
    }

    /// Returns the logins with which functions of the tenant read from registries: for `default`,
    /// which operators act for, those of this process.
    pub fn access(&self) -> Access {
        if self.tenant == Tenant::default() {
            Access::own()
        } else {
            Access::stored(&self.folder.join(LOGINS))
        }
    }
}

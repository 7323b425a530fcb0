//! Code packages of a node.

use snowmelt_types::Tenant;

use crate::{Node, PackageAt, Result, TreePlace, Unit};

impl Node {
    /// Finds a package by its name and checks that it fits; gives what pins it, and its handler.
    pub async fn find_package(&self, name: &str) -> Result<(PackageAt, String)> {
        self.inner.preparation.find_package(name).await
    }

    /// Mounts a package; no block of it need be here. It is read from the host
    /// that `place` names, if it is known.
    pub async fn prepare_package(
        &self,
        tenant: &Tenant,
        at: &PackageAt,
        place: Option<&TreePlace>,
    ) -> Result<Unit> {
        self.inner.preparation.prepare_package(tenant, at, place).await
    }
}

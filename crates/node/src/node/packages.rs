//! The packages of a node: code packages, and the installed packages that stay.

use snowmelt_package::{EnvironmentLease, Reclaimed};
use snowmelt_types::{Code, ErrorReport, Tenant};

use crate::{Error, Node, PackageAt, Result, TreePlace, Unit};

impl Node {
    /// Finds a code package by its name and checks that it fits this host; returns what pins the
    /// package, and the name of its handler.
    pub async fn find_package(&self, name: &str) -> Result<(PackageAt, String)> {
        self.inner.preparation.find_package(name).await
    }

    /// Mounts a code package as a unit; its blocks need not be on this host yet. They are read from
    /// the host that `place` names, if there is one.
    pub async fn prepare_package(
        &self,
        tenant: &Tenant,
        at: &PackageAt,
        place: Option<&TreePlace>,
    ) -> Result<Unit> {
        self.inner.preparation.prepare_package(tenant, at, place).await
    }

    /// Holds the packages of some requirements against removal, if they are installed; `None` if
    /// they are not.
    pub async fn hold_packages(&self, requirements: &[String]) -> Result<Option<EnvironmentLease>> {
        let interpreters = &self.inner.preparation.interpreters;
        let (interpreter, packages) = interpreters.of(requirements).await?;
        blocking(move || Ok(interpreter.installer.hold(&packages)?)).await
    }

    /// Removes the installed packages that nothing holds; with `dry`, only counts them.
    pub async fn prune_packages(&self, dry: bool) -> Result<Reclaimed> {
        let interpreter = self.inner.preparation.interpreters.default().await?;
        blocking(move || Ok(interpreter.installer.prune(dry)?)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let report = ErrorReport::new(Code::INTERNAL, error.to_string());
        Err(Error::Report(Box::new(report)))
    })
}

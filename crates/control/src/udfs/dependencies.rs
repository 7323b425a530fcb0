//! Finds the packages and images that registered functions need, so that the rest can go, and
//! removes versions that nothing needs.

use std::collections::BTreeSet;

use snowmelt_api::UdfSource;
use snowmelt_types::{ErrorReport, Tenant};

use super::{UdfCatalog, UdfRegistry, register};
use crate::functions::declarations::declared;
use crate::state::records::Superseded;

impl UdfRegistry {
    /// Returns the packages of all versions of all registered functions, as they are installed.
    pub async fn requirements(&self) -> Result<BTreeSet<Vec<String>>, ErrorReport> {
        let mut all = BTreeSet::new();
        for record in self.records.all_udfs().await? {
            all.extend(self.catalog.requirements(&record.source()).await?);
        }
        Ok(all)
    }

    /// Returns the name of a registered function that runs in an image, if there is one.
    pub async fn uses_images(&self) -> Result<Option<String>, ErrorReport> {
        let all = self.records.all_udfs().await?.into_iter();
        let mut in_images = all.filter(|record| record.source.image.is_some());
        Ok(in_images.next().map(|record| record.signature.name))
    }

    /// Removes the versions that newer ones have followed and that no engine uses, with their
    /// files; with `dry`, only counts them. Returns their number, and their bytes.
    pub async fn prune_versions(
        &self,
        of: Option<&Tenant>,
        dry: bool,
    ) -> Result<(u64, u64), ErrorReport> {
        let gone = self.records.superseded(of, crate::now_ms()).await?;
        if !dry {
            let tenants: BTreeSet<&Tenant> = gone.iter().map(|one| &one.tenant).collect();
            for tenant in tenants {
                let before = self.referred(tenant).await?;
                let own: Vec<Superseded> =
                    gone.iter().filter(|one| one.tenant == *tenant).cloned().collect();
                self.records.remove_superseded(&own).await?;
                self.free(tenant, &before).await?;
            }
        }
        Ok((gone.len() as u64, gone.iter().map(|one| one.bytes).sum()))
    }
}

impl UdfCatalog {
    /// Returns the packages with which instances of some code are made: of all functions together,
    /// and of each one alone, because either may be installed. None for code in an image.
    async fn requirements(&self, source: &UdfSource) -> Result<Vec<Vec<String>>, ErrorReport> {
        if source.image.is_some() {
            return Ok(Vec::new());
        }
        let declared =
            declared(self.host.node(), &self.analysis, &source.code, &source.packages).await?;
        let signatures = source.signatures.clone().unwrap_or_default();
        let mut all = Vec::new();
        for one in &signatures {
            let alone = declared.alone(&one.packages);
            all.push(register(&source.code, &alone, vec![one.clone()])?.packages);
        }
        all.push(register(&source.code, &declared.packages, signatures)?.packages);
        Ok(all)
    }
}

//! Gives tenants the images that an earlier version kept in one folder for all of them.
//!
//! Invariants: an image is given to a tenant only if the tenant has named it or runs in it, and the
//! folder of `default` keeps what it has. It happens once for a state folder: what is named later is
//! of the tenant that has named it. One that is ended half-way begins again, and nothing is twice.

use std::collections::BTreeSet;
use std::path::Path;

use snowmelt_image::exchange;
use snowmelt_image::manifest::Descriptor;
use snowmelt_image::source::{OciLayout, Reference};
use snowmelt_node::TenantImages;
use snowmelt_types::{ErrorReport, Tenant};

use super::{Images, reported};
use crate::state::records::Records;

/// The names of images that are used, each with its tenant.
type ImageUses = BTreeSet<(Tenant, String)>;

impl Images {
    /// Gives each tenant the images that it has named or uses.
    pub async fn divide(&self, records: &Records) -> Result<(), ErrorReport> {
        if TenantImages::are_divided(&self.state_dir) {
            return Ok(());
        }
        let mut uses = records.udf_images().await?;
        for function in records.all_functions().await? {
            let packed = function.packed.map(|at| at.name);
            let named = function.spec.image.into_iter().chain(packed);
            uses.extend(named.map(|image| (function.tenant.clone(), image)));
        }
        let state = self.state_dir.clone();
        let dividing = tokio::task::spawn_blocking(move || divide(&state, &uses));
        dividing.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "images of earlier versions are not given to tenants");
            Ok(())
        })
    }
}

fn divide(state: &Path, uses: &ImageUses) -> Result<(), ErrorReport> {
    let all = TenantImages::new(state, &Tenant::default()).layout_folder();
    if let Ok(all) = OciLayout::open(&all) {
        for (name, manifest) in all.list().map_err(reported)? {
            let Some(name) = name else { continue };
            let user = OciLayout::user_of(&manifest);
            let by_user = user.and_then(|user| format!("uid-{user}").parse::<Tenant>().ok());
            let is_of =
                |image: &str| image.parse::<Reference>().is_ok_and(|one| one.to_string() == name);
            let users =
                uses.iter().filter(|(_, image)| is_of(image)).map(|(tenant, _)| tenant.clone());
            let tenants: BTreeSet<Tenant> = by_user.into_iter().chain(users).collect();
            for tenant in tenants.iter().filter(|tenant| **tenant != Tenant::default()) {
                let own = TenantImages::new(state, tenant).layout_folder();
                if let Err(error) = give(&all, &name, &manifest, &own) {
                    // The others get theirs.
                    tracing::warn!(%name, %tenant, %error, "an image is not given to its tenant");
                }
            }
        }
    }
    TenantImages::set_divided(state).map_err(reported)
}

/// Gives a tenant an image, unless the tenant has one of that name already.
fn give(
    all: &OciLayout,
    name: &str,
    manifest: &Descriptor,
    own: &Path,
) -> Result<(), snowmelt_image::Error> {
    let own = OciLayout::create(own)?;
    if own.list()?.iter().any(|found| found.0.as_deref() == Some(name)) {
        return Ok(());
    }
    exchange::share(all, manifest, &own)?;
    own.tag(name, manifest)
}

#[cfg(test)]
mod tests {
    use snowmelt_image::source::FolderOrigin;

    use super::*;

    #[test]
    fn a_tenant_gets_what_it_has_named_or_uses_and_nothing_else() {
        let state = tempfile::tempdir().unwrap();
        let of = |tenant: &str| TenantImages::new(state.path(), &tenant.parse().unwrap());
        let all = OciLayout::create(&of("default").layout_folder()).unwrap();
        let make = |text: &str, name: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("file"), text).unwrap();
            let origin = FolderOrigin::open(folder.path()).unwrap();
            let options = snowmelt_image::Options::default();
            let made = snowmelt_image::convert(&origin, &all, options).unwrap();
            all.tag(name, &made.manifest).unwrap();
            made.manifest
        };
        let used = make("used", "docker.io/library/used:v1");
        let own = make("own", "docker.io/library/own:v1");
        make("other", "docker.io/library/other:v1");
        // As an earlier version has written it.
        let index = of("default").layout_folder().join("index.json");
        let text = std::fs::read_to_string(&index).unwrap();
        let named = "\"org.opencontainers.image.ref.name\":\"own:v1\"";
        assert!(text.contains(named), "{text}");
        std::fs::write(
            &index,
            text.replace(named, &format!("{named},\"dev.snowmelt.user\":\"1234\"")),
        )
        .unwrap();
        let uses = ImageUses::from([("acme".parse().unwrap(), "used:v1".to_owned())]);
        assert!(!TenantImages::are_divided(state.path()));
        divide(state.path(), &uses).unwrap();
        let names = |tenant: &str| {
            let listed = OciLayout::open(&of(tenant).layout_folder()).unwrap().list().unwrap();
            listed
                .into_iter()
                .map(|(name, found)| (name.unwrap(), found.digest))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("acme"), [("docker.io/library/used:v1".to_owned(), used.digest.clone())]);
        assert_eq!(names("uid-1234"), [("docker.io/library/own:v1".to_owned(), own.digest)]);
        assert_eq!(names("default").len(), 3);
        assert!(TenantImages::are_divided(state.path()));
        // What each has stays whole when the others remove theirs.
        let acme = OciLayout::open(&of("acme").layout_folder()).unwrap();
        all.untag("docker.io/library/used:v1").unwrap();
        assert!(snowmelt_image::collect(&all, false).unwrap().blobs > 0);
        let image = exchange::read(&acme, &used).unwrap();
        assert!(image.blobs().all(|blob| acme.blob_path(&blob.digest).is_file()));
    }
}

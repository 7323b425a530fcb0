//! The images that names in registries led to before: a host that has an image goes on with it
//! while its registry does not answer.
//!
//! Invariant: a registry that answers is believed, so a name that leads elsewhere counts at once;
//! the content that a digest names never changes, and is asked for once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use snowmelt_image::Result;
use snowmelt_image::block::OciDigest;
use snowmelt_types::Tenant;
use tokio::time::timeout;

use super::locked;
use super::resolution::{ImageOrigin, ResolvedImage, find_image, find_pinned};
use super::tenant_images::TenantImages;

/// How long a registry may take to answer for an image that was found before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a registry that did not answer is not asked again for the same name.
const RESTS: Duration = Duration::from_secs(30);
/// The number of entries of a map at which all of its entries are forgotten.
const MOST: usize = 1000;

/// Images that were found in registries, with their configurations.
#[derive(Debug)]
pub(crate) struct ImageHistory {
    answers_within: Duration,
    kept: Mutex<HistoryState>,
}

#[derive(Debug, Default)]
struct HistoryState {
    /// The image that each tenant has found by a name.
    names: HashMap<(Tenant, String), NameRecord>,
    pinned: HashMap<(Tenant, String, OciDigest), ResolvedImage>,
    /// The configurations of images, by the digests of their manifests.
    configs: HashMap<OciDigest, Vec<u8>>,
}

#[derive(Clone, Debug)]
struct NameRecord {
    found: ResolvedImage,
    silent_until: Option<Instant>,
}

impl Default for ImageHistory {
    fn default() -> Self {
        Self { answers_within: ANSWER_TIMEOUT, kept: Mutex::default() }
    }
}

impl ImageHistory {
    /// Finds an image as [`find_image`] does, or returns the image that the name led to last if its
    /// registry does not answer.
    pub async fn find(&self, of: &TenantImages, name: &str) -> Result<ResolvedImage> {
        let access = of.access();
        let asked = find_image(of, name, &access);
        let key = (of.tenant().clone(), name.to_owned());
        let known = self.kept().names.get(&key).cloned();
        let Some(NameRecord { found: known, silent_until }) = known else {
            return asked.await.inspect(|found| self.keep(key, found));
        };
        if silent_until.is_some_and(|until| until > Instant::now()) {
            return Ok(known);
        }
        match timeout(self.answers_within, asked).await {
            Ok(Ok(found)) => {
                self.keep(key, &found);
                Ok(found)
            }
            Ok(Err(error)) if !error.is_transient() => Err(error),
            _ => {
                let manifest = &known.manifest;
                tracing::warn!(image = name, %manifest, "the registry does not answer: the image is the one that the name led to last");
                if let Some(name) = self.kept().names.get_mut(&key) {
                    name.silent_until = Some(Instant::now() + RESTS);
                }
                Ok(known)
            }
        }
    }

    /// Finds a pinned image as [`find_pinned`] does, and remembers an image from a registry, so
    /// that it is asked for once.
    pub async fn find_pinned(
        &self,
        of: &TenantImages,
        name: &str,
        manifest: &OciDigest,
    ) -> Result<ResolvedImage> {
        let key = (of.tenant().clone(), name.to_owned(), manifest.clone());
        if let Some(found) = self.kept().pinned.get(&key) {
            return Ok(found.clone());
        }
        let found = find_pinned(of, name, manifest).await?;
        if is_elsewhere(&found) {
            room_in(&mut self.kept().pinned).insert(key, found.clone());
        }
        Ok(found)
    }

    /// Returns the configuration of an image, as the original image had it.
    pub async fn config(&self, of: &TenantImages, found: &ResolvedImage) -> Result<Vec<u8>> {
        if let Some(config) = self.kept().configs.get(&found.manifest) {
            return Ok(config.clone());
        }
        let config = found.config(&of.access()).await?;
        if is_elsewhere(found) {
            room_in(&mut self.kept().configs).insert(found.manifest.clone(), config.clone());
        }
        Ok(config)
    }

    fn keep(&self, key: (Tenant, String), found: &ResolvedImage) {
        let mut kept = self.kept();
        // An image of this machine is found without this map.
        match is_elsewhere(found) {
            true => {
                let known = NameRecord { found: found.clone(), silent_until: None };
                room_in(&mut kept.names).insert(key, known);
            }
            false => drop(kept.names.remove(&key)),
        }
    }

    fn kept(&self) -> MutexGuard<'_, HistoryState> {
        locked(&self.kept)
    }
}

fn is_elsewhere(found: &ResolvedImage) -> bool {
    matches!(found.origin, ImageOrigin::Registry(_))
}

fn room_in<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= MOST {
        map.clear();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an image that is said to be at a port where nobody listens.
    fn elsewhere(of: &TenantImages) -> (String, ResolvedImage) {
        let name = "127.0.0.1:1/app:v1".to_owned();
        let layout = snowmelt_image::source::OciLayout::create(&of.layout_folder()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "text").unwrap();
        let origin = snowmelt_image::source::FolderOrigin::open(folder.path()).unwrap();
        let options = snowmelt_image::Options::default();
        let converted = snowmelt_image::convert(&origin, &layout, options).unwrap();
        let image = snowmelt_image::exchange::read(&layout, &converted.manifest).unwrap();
        let manifest = converted.manifest.digest;
        let origin = ImageOrigin::Registry(name.clone());
        (name.clone(), ResolvedImage { name, manifest, image, origin })
    }

    #[tokio::test]
    async fn a_name_leads_to_the_last_image_while_its_registry_is_silent() {
        let state = tempfile::tempdir().unwrap();
        let known = ImageHistory { answers_within: Duration::ZERO, kept: Mutex::default() };
        let of = TenantImages::new(state.path(), &Tenant::default());
        let (name, found) = elsewhere(&of);
        let key = (Tenant::default(), name.clone());
        known.keep(key.clone(), &found);
        assert_eq!(known.find(&of, &name).await.unwrap(), found);
        let is_silent = known.kept().names[&key].silent_until.is_some();
        assert!(is_silent, "it is not waited for again");
        assert_eq!(known.find(&of, &name).await.unwrap(), found);
        // What one tenant has found with its login, another has not.
        let other = TenantImages::new(state.path(), &"acme".parse().unwrap());
        // Found at once, or asked for at a registry that is not there, again and again.
        let within = Duration::from_secs(2);
        let by_name = tokio::time::timeout(within, known.find(&other, &name)).await;
        assert!(!matches!(by_name, Ok(Ok(_))));
        let pinned = known.find_pinned(&other, &name, &found.manifest);
        assert!(!matches!(tokio::time::timeout(within, pinned).await, Ok(Ok(_))));
    }

    #[tokio::test]
    async fn what_a_digest_names_is_asked_for_once() {
        let state = tempfile::tempdir().unwrap();
        let known = ImageHistory::default();
        let of = TenantImages::new(state.path(), &Tenant::default());
        let (name, found) = elsewhere(&of);
        let manifest = found.manifest.clone();
        known
            .kept()
            .pinned
            .insert((Tenant::default(), name.clone(), manifest.clone()), found.clone());
        known.kept().configs.insert(manifest.clone(), b"{}".to_vec());
        assert_eq!(known.find_pinned(&of, &name, &manifest).await.unwrap(), found);
        assert_eq!(known.config(&of, &found).await.unwrap(), b"{}");
    }
}

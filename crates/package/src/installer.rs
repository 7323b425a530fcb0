//! The crate's main interface: turns requirements into an [`Environment`].
//!
//! Callers in one or several processes share the work: the one that gets the exclusive lock of an
//! environment or a wheel creates it, the others wait and use the result.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use snowmelt_types::{ByteSize, Digest};

use crate::environments::{
    EnvironmentCounters, InstallerState, Manifest, Pin, assemble, digest_of, gather,
    local_packages, lock_wheels, remembered, resolve,
};
use crate::maintenance::{
    EnvironmentLease, Reclaimed, inventory, pruning, reclamation, verification,
};
use crate::storage::{Once, PackageStore, blocking, files, once};
use crate::wheels::{LockedWheel, parse_set, upload};
use crate::{
    Damaged, Environment, Error, InstallCounts, InstallProgress, Options, Python, Reporter,
    Requirement, Result, Wheel,
};

/// Installs packages, each wheel once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Installer {
    shared: Arc<InstallerState>,
}

impl Installer {
    /// Opens the store, with [`Options::from_environment`].
    pub fn new(store: PathBuf, python: Python) -> Result<Self> {
        Self::trusting(store, python, None)
    }

    /// Opens the store, which may belong to another user, who is trusted.
    pub fn trusting(store: PathBuf, python: Python, trusted: Option<u32>) -> Result<Self> {
        Self::with(Options { trusted, ..Options::from_environment(store, python)? })
    }

    /// Opens the store, and removes leftovers of interrupted installations and of other versions.
    pub fn with(options: Options) -> Result<Self> {
        let shared = InstallerState {
            store: PackageStore::open(options.store, options.trusted)?,
            python: options.python,
            uv: options.uv,
            installed: options.installed,
            refresh: options.refresh,
            resolve_limit: options.resolve_limit,
            install_limit: options.install_limit,
            max_size: options.max_size,
            counts: EnvironmentCounters::default(),
        };
        let installer = Self { shared: Arc::new(shared) };
        reclamation::remove_unreadable(&installer.shared.store)?;
        installer.recount()?;
        Ok(installer)
    }

    /// The interpreter that the packages are for.
    pub fn python(&self) -> &Python {
        &self.shared.python
    }

    /// Returns the environment that satisfies these requirements, and creates it if it does not
    /// exist. Wheels that no earlier environment contained are fetched, the others are only linked.
    ///
    /// Dropping the future stops the work and leaves nothing incomplete behind. An empty list
    /// produces an empty environment without starting any tool.
    pub async fn environment(
        &self,
        requirements: &[String],
        progress: &dyn Reporter,
    ) -> Result<Environment> {
        let requirements = parse_set(requirements)?;
        if let Some(pins) = self.installed(&requirements).await? {
            match self.of_pins(&requirements, pins, progress).await {
                Err(Error::Corrupt { file, reason }) => {
                    tracing::warn!(%file, %reason, "an installed package is damaged");
                }
                made => return made,
            }
        }
        let pins = resolve(&self.shared, &requirements, progress).await?.pins();
        self.of_pins(&requirements, pins, progress).await
    }

    /// Pins of packages that came with the platform, if they satisfy all requirements.
    async fn installed(&self, requirements: &[Requirement]) -> Result<Option<Vec<Pin>>> {
        if requirements.is_empty() {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        let wanted = requirements.to_vec();
        blocking(move || Ok(local_packages::pins(&shared.installed, &wanted))).await
    }

    async fn of_pins(
        &self,
        requirements: &[Requirement],
        pins: Vec<Pin>,
        progress: &dyn Reporter,
    ) -> Result<Environment> {
        let wheels: Vec<Digest> = pins.iter().map(|pin| pin.digest(&self.shared.python)).collect();
        let make = || gather(&self.shared, &pins, progress);
        let (digest, once) = self.make_once(&wheels, progress, make).await?;
        let made = once.made;
        let modules = once.found.requested_modules(requirements);
        let environment = self.leased(digest, once, modules);
        if made {
            self.enforce_limit().await;
        }
        Ok(environment)
    }

    /// Stores an uploaded wheel, and returns the requirement that refers to its content.
    pub async fn keep_wheel(&self, file: String, content: Vec<u8>) -> Result<String> {
        let _using = self.shared.use_cache().await?;
        let shared = self.shared.clone();
        blocking(move || upload::keep(&shared.store, &file, &content)).await
    }

    /// Finds versions that satisfy these requirements and caches the result; fetches no packages.
    pub async fn resolve(&self, requirements: &[String], progress: &dyn Reporter) -> Result<()> {
        let requirements = parse_set(requirements)?;
        if self.installed(&requirements).await?.is_some() {
            return Ok(());
        }
        resolve(&self.shared, &requirements, progress).await.map(drop)
    }

    /// Returns an environment of exactly these wheels of another environment: for a zygote that
    /// must not see packages which a function did not request (SOCK, section 4.2). The environment
    /// is only linked, in about 20 ms plus 30 ms per thousand files, and needs neither the index
    /// nor a lock file.
    ///
    /// Its `modules` are those of the other environment that the kept wheels contain. Fails with
    /// [`Error::NoSuchWheel`] if `keep` contains a wheel that the other environment does not have.
    pub async fn subset(
        &self,
        environment: &Environment,
        keep: &BTreeSet<Digest>,
    ) -> Result<Environment> {
        let kept = environment.wheels.iter().filter(|wheel| keep.contains(&wheel.digest));
        let kept: Vec<Wheel> = kept.cloned().collect();
        if let Some(foreign) = keep.iter().find(|one| kept.iter().all(|kept| kept.digest != **one))
        {
            return Err(Error::NoSuchWheel { digest: foreign.clone() });
        }
        let wheels: Vec<Digest> = kept.iter().map(|wheel| wheel.digest.clone()).collect();
        let make = || lock_wheels(&self.shared, &kept);
        let (digest, once) = self.make_once(&wheels, &crate::Silent, make).await?;
        let contained: BTreeSet<&String> = kept.iter().flat_map(|wheel| &wheel.modules).collect();
        let modules = environment.modules.iter().filter(|name| contained.contains(name)).cloned();
        Ok(self.leased(digest, once, modules.collect()))
    }

    /// Returns the folder with the files of a single wheel in the layout of `site-packages`. The
    /// files are not removed while an environment with that wheel is leased.
    pub fn files(&self, wheel: &Wheel) -> PathBuf {
        crate::wheels::site(&self.shared.store.wheel(&wheel.digest))
    }

    async fn make_once<Wheels>(
        &self,
        wheels: &[Digest],
        progress: &dyn Reporter,
        wheels_of: impl Fn() -> Wheels,
    ) -> Result<(Digest, Once<Manifest>)>
    where
        Wheels: Future<Output = Result<Vec<LockedWheel>>>,
    {
        let digest = digest_of(wheels);
        let folder = self.shared.store.environment(&digest);
        let lock = self.shared.store.environment_lock(digest.as_str());
        let found = once(
            &lock,
            || progress.step(&InstallProgress::Waiting),
            || Manifest::read(&folder),
            || async {
                let wheels = wheels_of().await?;
                progress.step(&InstallProgress::Linking { packages: wheels.len() });
                assemble(&self.shared, wheels, &digest).await
            },
        );
        let found = found.await?;
        self.shared.counts.environment(found.made);
        Ok((digest, found))
    }

    fn leased(&self, digest: Digest, once: Once<Manifest>, modules: Vec<String>) -> Environment {
        let folder = self.shared.store.environment(&digest);
        once.found.environment(digest, &folder, modules, once.lease)
    }

    /// Frees disk space if the store exceeds its limit. A failure is only logged, because the new
    /// environment exists.
    async fn enforce_limit(&self) {
        let installer = self.clone();
        let max_size = self.shared.max_size;
        let done = blocking(move || match installer.size() > max_size {
            true => installer.gc(max_size).map(Some),
            false => Ok(None),
        });
        match done.await {
            Ok(Some(done)) => tracing::info!(?done, "removed unused packages"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot remove unused packages"),
        }
    }

    /// The size on disk of all wheels, environments and the cache. Reads every folder: must not be
    /// called on the async runtime's threads.
    pub fn size(&self) -> ByteSize {
        let store = &self.shared.store;
        ByteSize(files::bytes_on_disk([store.wheels(), store.environments(), store.cache()]))
    }

    /// Removes the cache, then environments and wheels in LRU order, until the size is at most
    /// `max_size`. Anything in use is kept. Blocks: must not be called on the async runtime's
    /// threads.
    pub fn gc(&self, max_size: ByteSize) -> Result<Reclaimed> {
        let done = reclamation::reclaim(&self.shared.store, max_size, || self.size())?;
        self.recount()?;
        Ok(done)
    }

    /// Removes everything that is not in use, like [`Installer::gc`] with the size 0; with `dry`,
    /// only counts it. Blocks: must not be called on the async runtime's threads.
    pub fn prune(&self, dry: bool) -> Result<Reclaimed> {
        if dry { pruning::count(&self.shared.store) } else { self.gc(ByteSize(0)) }
    }

    /// Holds the environment that satisfies these requirements, so that it is not removed; `None`
    /// if it is not on this host. Resolves and installs nothing, and does not count as a use.
    /// Blocks.
    pub fn hold(&self, requirements: &[String]) -> Result<Option<EnvironmentLease>> {
        let requirements = parse_set(requirements)?;
        let pins = match local_packages::pins(&self.shared.installed, &requirements) {
            Some(pins) => pins,
            None => remembered(&self.shared, &requirements).pins(),
        };
        let wheels: Vec<Digest> = pins.iter().map(|pin| pin.digest(&self.shared.python)).collect();
        pruning::hold(&self.shared, &digest_of(&wheels))
    }

    /// Verifies every file of every wheel against its RECORD, and removes damaged wheels, so that
    /// they are fetched again when needed. Reads the whole store: must not be called on the async
    /// runtime's threads. Byte code has no RECORD and is not verified.
    pub fn verify(&self) -> Result<Vec<Damaged>> {
        let found = verification::verify(&self.shared.store)?;
        self.recount()?;
        Ok(found)
    }

    /// Hits, misses and size. Only reads counters.
    pub fn counts(&self) -> InstallCounts {
        self.shared.counts.read()
    }

    /// Updates the size from the manifests, because other processes add to and remove from the
    /// store.
    fn recount(&self) -> Result<()> {
        let items = inventory::items(&self.shared.store)?;
        self.shared.counts.set_bytes(items.iter().map(|item| item.bytes).sum());
        Ok(())
    }
}

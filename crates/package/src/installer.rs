//! The front of the crate: requirements in, an [`Environment`] out.
//!
//! Callers in one process and in several share the work: whoever gets the lock of an environment or
//! a wheel alone makes it, the others wait and find it made.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{ByteSize, Digest};

use crate::assemble::{assemble, gather, hold};
use crate::blocking::blocking;
use crate::counts::Counts;
use crate::environment::{Manifest, digest_of};
use crate::flock::{FileLock, Share};
use crate::once::{Once, once};
use crate::reclaim::{self, Reclaimed};
use crate::requirement::parse_set;
use crate::resolve::resolve;
use crate::store::Store;
use crate::wheel::HeldWheel;
use crate::{
    Damaged, Environment, Error, InstallCounts, Options, Progress, Python, Reporter, Result, Wheel,
    files, own, shelf, verify,
};

/// Installs packages, each wheel once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Installer {
    shared: Arc<Shared>,
}

/// What an installation needs to know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) python: Python,
    pub(crate) uv: Option<PathBuf>,
    pub(crate) refresh: bool,
    pub(crate) resolve_limit: Duration,
    pub(crate) install_limit: Duration,
    pub(crate) most: ByteSize,
    pub(crate) counts: Counts,
}

impl Shared {
    /// Keeps the cache from being removed while uv uses it. Closed to others, because uv makes
    /// files in it that everybody could write.
    pub(crate) async fn use_cache(&self) -> Result<FileLock> {
        let held = FileLock::acquire(&self.store.cache_lock(), Share::Shared, || ()).await?;
        files::make_folder(&self.store.cache(), 0o700)?;
        Ok(held)
    }
}

impl Installer {
    /// Opens the store, with [`Options::from_environment`].
    pub fn new(store: PathBuf, python: Python) -> Result<Self> {
        Self::with(Options::from_environment(store, python)?)
    }

    /// Opens the store, and removes what interrupted installations and other versions left in it.
    pub fn with(options: Options) -> Result<Self> {
        let Options { store, python, uv, refresh, resolve_limit, install_limit, most } = options;
        let (store, counts) = (Store::open(store)?, Counts::default());
        let shared =
            Shared { store, python, uv, refresh, resolve_limit, install_limit, most, counts };
        let installer = Self { shared: Arc::new(shared) };
        reclaim::remove_unreadable(&installer.shared.store)?;
        installer.recount()?;
        Ok(installer)
    }

    /// The interpreter that the packages are for.
    pub fn python(&self) -> &Python {
        &self.shared.python
    }

    /// The environment that satisfies these requirements, made now if it is not there yet: wheels
    /// that no earlier environment had are fetched, the others are only linked.
    ///
    /// Dropping the future stops the work and leaves nothing half-done behind. An empty list gives
    /// an empty environment and runs nothing.
    pub async fn environment(
        &self,
        requirements: &[String],
        progress: &dyn Reporter,
    ) -> Result<Environment> {
        let requirements = parse_set(requirements)?;
        let pins = resolve(&self.shared, &requirements, progress).await?.pins();
        let wheels: Vec<Digest> = pins.iter().map(|pin| pin.digest(&self.shared.python)).collect();
        let make = || gather(&self.shared, &pins, progress);
        let (digest, once) = self.make_once(&wheels, progress, make).await?;
        let made = once.made;
        let modules = once.found.asked(&requirements);
        let environment = self.handed_out(digest, once, modules);
        if made {
            self.keep_bounded().await;
        }
        Ok(environment)
    }

    /// Keeps a wheel of a user's own, and gives the requirement that names it by its content.
    pub async fn keep_wheel(&self, file: String, content: Vec<u8>) -> Result<String> {
        let _using = self.shared.use_cache().await?;
        let shared = self.shared.clone();
        blocking(move || own::keep(&shared.store, &file, &content)).await
    }

    /// Finds versions that satisfy these requirements and remembers them; fetches nothing.
    pub async fn resolve(&self, requirements: &[String], progress: &dyn Reporter) -> Result<()> {
        resolve(&self.shared, &parse_set(requirements)?, progress).await.map(drop)
    }

    /// The environment of exactly these wheels of another, without the rest: for a zygote that must
    /// not see what a function did not ask for (SOCK 4.2). It is only linked, in some 20 ms and 30
    /// more for each thousand files, and asks neither index nor lock file.
    ///
    /// Its `modules` are those of the other that the kept wheels bring. Fails with
    /// [`Error::NoSuchWheel`] where `keep` names a wheel that the other has not.
    pub async fn subset(
        &self,
        environment: &Environment,
        keep: &BTreeSet<Digest>,
    ) -> Result<Environment> {
        let kept = environment.wheels.iter().filter(|wheel| keep.contains(&wheel.digest));
        let kept: Vec<Wheel> = kept.cloned().collect();
        if let Some(foreign) = keep.iter().find(|one| kept.iter().all(|it| it.digest != **one)) {
            return Err(Error::NoSuchWheel { digest: foreign.clone() });
        }
        let wheels: Vec<Digest> = kept.iter().map(|wheel| wheel.digest.clone()).collect();
        let make = || hold(&self.shared, &kept);
        let (digest, once) = self.make_once(&wheels, &crate::Silent, make).await?;
        let brought: BTreeSet<&String> = kept.iter().flat_map(|wheel| &wheel.modules).collect();
        let modules = environment.modules.iter().filter(|name| brought.contains(name)).cloned();
        Ok(self.handed_out(digest, once, modules.collect()))
    }

    /// The files of a wheel alone, as `site-packages` has them. They stay as long as an environment
    /// with that wheel is held.
    pub fn files(&self, wheel: &Wheel) -> PathBuf {
        crate::wheel::site(&self.shared.store.wheel(&wheel.digest))
    }

    async fn make_once<Wheels>(
        &self,
        wheels: &[Digest],
        progress: &dyn Reporter,
        wheels_of: impl Fn() -> Wheels,
    ) -> Result<(Digest, Once<Manifest>)>
    where
        Wheels: Future<Output = Result<Vec<HeldWheel>>>,
    {
        let digest = digest_of(wheels);
        let folder = self.shared.store.environment(&digest);
        let lock = self.shared.store.environment_lock(digest.as_str());
        let found = once(
            &lock,
            || progress.step(&Progress::Waiting),
            || Manifest::read(&folder),
            || async {
                let wheels = wheels_of().await?;
                progress.step(&Progress::Linking { packages: wheels.len() });
                assemble(&self.shared, wheels, &digest).await
            },
        );
        let found = found.await?;
        self.shared.counts.environment(found.made);
        Ok((digest, found))
    }

    fn handed_out(
        &self,
        digest: Digest,
        once: Once<Manifest>,
        modules: Vec<String>,
    ) -> Environment {
        let folder = self.shared.store.environment(&digest);
        once.found.environment(digest, &folder, modules, once.lease)
    }

    /// The environment is there, so failing to remove another one is no failure of this call.
    async fn keep_bounded(&self) {
        let (installer, most) = (self.clone(), self.shared.most);
        let done = blocking(move || match installer.size() > most {
            true => installer.gc(most).map(Some),
            false => Ok(None),
        });
        match done.await {
            Ok(Some(done)) => tracing::info!(?done, "took back space of packages"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot take back space of packages"),
        }
    }

    /// Bytes on disk of all wheels, environments and the cache. Reads every folder: call it off the
    /// runtime's threads.
    pub fn size(&self) -> ByteSize {
        let store = &self.shared.store;
        ByteSize(files::bytes_on_disk([store.wheels(), store.environments(), store.cache()]))
    }

    /// Removes the cache, then the environments and wheels that were not used for longest, until at
    /// most `most` is left. What is in use stays. Blocks: call it off the runtime's threads.
    pub fn gc(&self, most: ByteSize) -> Result<Reclaimed> {
        let done = reclaim::reclaim(&self.shared.store, most, || self.size())?;
        self.recount()?;
        Ok(done)
    }

    /// Compares every file of every wheel with its record once more, and removes wheels that are
    /// damaged, so that they are made again when they are needed. Reads the whole store: call it
    /// off the runtime's threads. Byte code has no record and is not compared.
    pub fn verify(&self) -> Result<Vec<Damaged>> {
        let found = verify::verify(&self.shared.store)?;
        self.recount()?;
        Ok(found)
    }

    /// Hits, misses and bytes. Reads counters only.
    pub fn counts(&self) -> InstallCounts {
        self.shared.counts.read()
    }

    /// Other processes fill and empty the same store: now and then its manifests are added up.
    fn recount(&self) -> Result<()> {
        let items = shelf::items(&self.shared.store)?;
        self.shared.counts.holds(items.iter().map(|item| item.bytes).sum());
        Ok(())
    }
}

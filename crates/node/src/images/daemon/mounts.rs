//! The mounts of images, one for each: lazy mounts, and the mounts on raw files that replace them.
//!
//! Invariant: all mounts are in the daemon's mount namespace, which its successor joins. A mount on
//! raw files needs no process; where there is one, copies are made of it, and the lazy mount stays
//! for the owners of its copies.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use snowmelt_image::block::OciDigest;
use snowmelt_image::manifest::{Descriptor, OCI_MANIFEST};
use snowmelt_image::mount::{Form, ImageReaders, LazyMount, mount_files, supports_takeover};
use snowmelt_image::peer::Connect;
use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, LockedFiles, RawFiles};
use snowmelt_image::source::Reference;
use snowmelt_image::{Error, Lock, Result};
use snowmelt_kernel::mount;
use tokio::runtime::Handle;

use super::sharing::Sharing;
use super::sources::ImageSources;
use crate::images::locked;
use crate::images::message::{Here, ImageSpec, ON_RAW_FILES};
use crate::images::resolution::ImageOrigin;
use crate::images::stores::Stores;

/// The number of requests under way at a time for blocks that a start is known to touch.
const AHEAD: usize = 4;

/// All mounts of a node.
pub(super) struct Mounts {
    stores: Stores,
    sources: ImageSources,
    pub sharing: Sharing,
    /// Whether complete images are kept as raw files.
    pub keeps_raw: bool,
    /// The folder of the mount points, each named by the image's digest.
    folder: PathBuf,
    /// The form of mounts that was found to work, or that the settings name; empty before the first
    /// mount.
    form: OnceLock<Form>,
    pub runtime: Handle,
    /// The mount of each image. Each slot is locked while its mount is made, so that it is made
    /// once.
    slots: Mutex<HashMap<OciDigest, MountSlot>>,
    /// The lock against copies: held for writing while a mount on raw files takes the place of a
    /// lazy one.
    replacing: RwLock<()>,
}

/// The place for the mount of one image; locked while the mount is made or replaced.
pub(super) type MountSlot = Arc<Mutex<Option<Mount>>>;

/// The mount of one image.
pub(super) struct Mount {
    pub spec: ImageSpec,
    form: Form,
    /// The mount that reads blocks as they are touched; `None` once the image is mounted on raw
    /// files.
    lazy: Option<LazyMount>,
    _files: Option<LockedFiles>,
    /// When the first start of a function in the image was over; `None` before.
    pub started: Option<Instant>,
    _held: Option<Lock>,
}

impl Mounts {
    pub fn new(
        stores: Stores,
        folder: PathBuf,
        runtime: Handle,
        connect: Arc<dyn Connect>,
    ) -> Self {
        let form = OnceLock::new();
        let slots = Mutex::default();
        let replacing = RwLock::default();
        let keeps_raw = stores.settings.raw.bytes() > 0;
        let share = stores.settings.share.map(|share| share.bytes());
        let sharing = Sharing::new(connect, share);
        let sources = ImageSources::new(stores.clone(), Arc::clone(&sharing.upstreams));
        Self { stores, sources, sharing, keeps_raw, folder, form, runtime, slots, replacing }
    }

    /// Returns the store of raw files of an image's tenant; `None` if there are to be none.
    pub fn raw(&self, spec: &ImageSpec) -> Option<RawFiles> {
        self.keeps_raw.then(|| self.stores.of(&spec.tenant).raw())
    }

    /// Returns a detached copy of an existing mount, on raw files if there is one.
    pub fn copy(&self, digest: &str) -> Result<OwnedFd> {
        let digest: OciDigest = digest.trim_end_matches(ON_RAW_FILES).parse()?;
        let _stays = self.replacing.read().unwrap_or_else(PoisonError::into_inner);
        let raw = self.raw_point(&digest);
        let point = if is_mounted(&raw) { raw } else { self.point(&digest) };
        mount::copy(&point).map_err(failed("copy the mount"))
    }

    /// Mounts an image unless it is mounted. Returns the answer to the node and descriptors: a copy
    /// of the mount and, if a successor could go on with the mount, its connection to the kernel.
    pub fn mount(&self, spec: &ImageSpec) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        // Before the mount: its first reads go to the parents already.
        self.sharing.take_place(spec)?;
        let slot = self.slot(&spec.digest);
        let mut slot = locked(&slot);
        let mount = match &mut *slot {
            Some(mount) => mount,
            none => none.insert(self.fresh(spec)?),
        };
        // The image may have been mounted before this host had a place.
        self.sharing.export(spec, || match &mount.lazy {
            Some(lazy) => Ok(readers(lazy)),
            None => Ok(self.readers(spec)?.all().collect()),
        })?;
        let mut fds = vec![self.copy(spec.digest.as_str())?];
        if let Some(lazy) = mount.lazy.as_ref().filter(|_| supports_takeover()) {
            let device = lazy.device().try_clone_to_owned();
            fds.push(device.map_err(failed("copy a descriptor"))?);
        }
        let said = serde_json::to_vec(&Here { form: mount.form });
        Ok((said.map_err(|error| failed("answer")(error.into()))?, fds))
    }

    /// Returns why reads of an image failed lately; a failure is reported once.
    pub fn why(&self, digest: &OciDigest, within: Duration) -> Option<Error> {
        let slot = self.slot(digest);
        let slot = locked(&slot);
        let lazy = slot.as_ref()?.lazy.as_ref()?;
        let since = Instant::now().checked_sub(within)?;
        lazy.take_read_failure(since)
    }

    /// Goes on with a mount of the previous daemon. A mount that cannot be taken over is left to
    /// its readers as it is: they get errors once the node closes its connection to the kernel.
    pub fn adopt(&self, spec: &ImageSpec, form: Form, device: Option<OwnedFd>) {
        let adopted = device.ok_or(Error::Missing { what: "its connection".to_owned() });
        match adopted.and_then(|device| self.taken_over(spec, form, device)) {
            Ok(mount) => {
                let slot = self.slot(&spec.digest);
                *locked(&slot) = Some(mount);
            }
            // No reader may use this mount any more.
            Err(error) if is_mounted(&self.raw_point(&spec.digest)) => {
                tracing::debug!(image = %spec.digest, %error, "a mount is needed no more");
            }
            Err(error) => tracing::error!(image = %spec.digest, %error, "a mount is given up"),
        }
    }

    /// Keeps the blocks that were touched until the first handler in an image was ready, as the
    /// image's start profile.
    pub fn record(&self, digest: &OciDigest) {
        let slot = self.slot(digest);
        let mut slot = locked(&slot);
        let Some(mount) = slot.as_mut().filter(|mount| mount.started.is_none()) else { return };
        mount.started = Some(Instant::now());
        let Some(touched) = mount.lazy.as_ref().map(|lazy| StartProfile::record(&readers(lazy)))
        else {
            return;
        };
        let spec = mount.spec.clone();
        // The profile is written without the lock, so that others can use the mount meanwhile.
        drop(slot);
        match self.stores.keep_start(digest, &touched) {
            Ok(is_new) if is_new && self.stores.settings.publish_starts => self.publish(&spec),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a start is not remembered"),
        }
    }

    fn publish(&self, spec: &ImageSpec) {
        let stores = self.stores.of(&spec.tenant);
        let spec = spec.clone();
        self.runtime.spawn(async move {
            let published = async {
                let Some(name) = registry(&spec)? else { return Ok(false) };
                stores.publish_start(&name, &manifest(&spec), &stores.images().access()).await
            };
            if let Err(error) = published.await {
                tracing::warn!(image = %spec.digest, %error, "a start is not published");
            }
        });
    }

    /// Returns the slots of all images that were asked for; the slot of an image that is not
    /// mounted is empty.
    pub fn all(&self) -> Vec<MountSlot> {
        let slots = locked(&self.slots);
        slots.values().map(Arc::clone).collect()
    }

    /// Puts a mount on raw files in the place of a lazy one, which stays for the owners of its
    /// copies.
    pub fn replace(&self, mount: &mut Mount, files: LockedFiles) -> Result<()> {
        let _nobody_copies = self.replacing.write().unwrap_or_else(PoisonError::into_inner);
        // The new mount first: if it fails, the lazy one goes on.
        self.attach_raw(&mount.spec, &files)?;
        let point = self.point(&mount.spec.digest);
        // A mount that is not removed wholly does no harm.
        let _ = mount::detach(&point).and_then(|()| fs::remove_dir(&point));
        (mount.lazy, mount._files) = (None, Some(files));
        Ok(())
    }

    fn slot(&self, digest: &OciDigest) -> MountSlot {
        let mut slots = locked(&self.slots);
        Arc::clone(slots.entry(digest.clone()).or_default())
    }

    fn fresh(&self, spec: &ImageSpec) -> Result<Mount> {
        let image = spec.image()?;
        let form = self.form()?;
        let raw = self.raw(spec).filter(|_| form == Form::Erofs);
        let files = raw.and_then(|raw| raw.of(&image));
        let raw_point = self.raw_point(&spec.digest);
        // A mount on raw files outlives its daemon, as no process serves it.
        if is_mounted(&raw_point) {
            return Ok(Mount::new(spec, form, None).on(files));
        }
        if let Some(files) = files {
            match self.attach_raw(spec, &files) {
                Ok(()) => return Ok(Mount::new(spec, form, None).on(Some(files))),
                Err(error) => tracing::warn!(%error, "an image is not mounted on its raw files"),
            }
        }
        let readers = self.readers(spec)?;
        let held = self.sources.hold(spec)?;
        // Before it is mounted: children are not to wait for that.
        self.sharing.export(spec, || Ok(readers.all().collect()))?;
        let lazy = LazyMount::of(readers, &self.runtime, form)?;
        let point = self.point(&spec.digest);
        let attach = || -> io::Result<()> {
            // A mount that a previous daemon could not hand over is dead.
            let _ = mount::detach(&point);
            fs::create_dir_all(&point)?;
            mount::attach_at(lazy.root(), CWD, &point)
        };
        attach().map_err(failed("attach the mount"))?;
        self.fetch_ahead(spec.clone(), &lazy);
        Ok(Mount { _held: held, ..Mount::new(spec, form, Some(lazy)) })
    }

    fn attach_raw(&self, spec: &ImageSpec, files: &LockedFiles) -> Result<()> {
        let root = mount_files(&files.paths[0], &files.paths[1..])?;
        let point = self.raw_point(&spec.digest);
        let attached =
            fs::create_dir_all(&point).and_then(|()| mount::attach_at(&root, CWD, &point));
        attached.map_err(failed("attach the mount"))
    }

    /// Returns the form of mounts, which is tried out once.
    fn form(&self) -> Result<Form> {
        if let Some(form) = self.form.get() {
            return Ok(*form);
        }
        let chosen = self.stores.settings.mount.choose()?;
        if let Some(error) = chosen.erofs_error {
            tracing::warn!(%error, "images are mounted by FUSE alone");
        }
        Ok(*self.form.get_or_init(|| chosen.form))
    }

    fn taken_over(&self, spec: &ImageSpec, form: Form, device: OwnedFd) -> Result<Mount> {
        self.sharing.take_place(spec)?;
        let readers = self.readers(spec)?;
        self.sharing.export(spec, || Ok(readers.all().collect()))?;
        let held = self.sources.hold(spec)?;
        let raw = self.raw_point(&spec.digest);
        let is_raw = is_mounted(&raw);
        let point = if is_raw { raw } else { self.point(&spec.digest) };
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &point, open, Mode::empty());
        let root = root.map_err(|errno| failed("find the mount")(errno.into()))?;
        let lazy = LazyMount::take_over(readers, &self.runtime, form, root, device)?;
        let lazy = (!is_raw).then_some(lazy);
        Ok(Mount { started: Some(Instant::now()), _held: held, ..Mount::new(spec, form, lazy) })
    }

    fn point(&self, digest: &OciDigest) -> PathBuf {
        self.folder.join(digest.hex())
    }

    fn raw_point(&self, digest: &OciDigest) -> PathBuf {
        self.folder.join(format!("{}.raw", digest.hex()))
    }

    fn readers(&self, spec: &ImageSpec) -> Result<ImageReaders> {
        ImageReaders::new(&spec.image()?, &self.sources.blocks(&spec.tenant, &spec.origin)?)
    }

    /// Fetches, in the background, the blocks that starts of the image touched on this host or, if
    /// there was no start here yet, elsewhere. No mount waits for that.
    fn fetch_ahead(&self, spec: ImageSpec, lazy: &LazyMount) {
        let stores = self.stores.of(&spec.tenant);
        let readers = readers(lazy);
        self.runtime.spawn(async move {
            let ahead = async {
                let known = match (stores.start(&spec.digest)?, registry(&spec)?) {
                    (None, Some(name)) => {
                        let access = stores.images().access();
                        stores.start_elsewhere(&name, &spec.digest, &access).await?
                    }
                    (known, _) => known,
                };
                match known {
                    Some(profile) => profile.prefetch(&readers, AHEAD).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = ahead.await {
                tracing::debug!(%error, "blocks of a start are not prefetched");
            }
        });
    }
}

impl Mount {
    fn new(spec: &ImageSpec, form: Form, lazy: Option<LazyMount>) -> Self {
        Self { spec: spec.clone(), form, lazy, _files: None, started: None, _held: None }
    }

    fn on(self, files: Option<LockedFiles>) -> Self {
        Self { _files: files, ..self }
    }

    /// Returns the readers of the mount's blobs; `None` if the image is on raw files already or
    /// cannot be.
    pub fn to_be_raw(&self) -> Option<Vec<Arc<BlobReader>>> {
        let lazy = self.lazy.as_ref().filter(|_| self.form == Form::Erofs)?;
        Some(readers(lazy))
    }
}

/// Returns whether something is mounted on this folder.
fn is_mounted(point: &Path) -> bool {
    let device = |path: &Path| rustix::fs::lstat(path).map(|found| found.st_dev).ok();
    let own = device(point);
    own.is_some() && own != point.parent().and_then(device)
}

fn readers(lazy: &LazyMount) -> Vec<Arc<BlobReader>> {
    std::iter::once(lazy.metadata()).chain(lazy.layers()).map(Arc::clone).collect()
}

/// Returns the registry that the image's blocks come from, beside which start profiles may be;
/// `None` for an image of this machine.
fn registry(spec: &ImageSpec) -> Result<Option<Reference>> {
    match &spec.origin {
        ImageOrigin::Layout(_) => Ok(None),
        ImageOrigin::Registry(name) => name.parse().map(Some),
    }
}

fn manifest(spec: &ImageSpec) -> Descriptor {
    Descriptor::new(OCI_MANIFEST, spec.digest.clone(), spec.manifest.len() as u64)
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Mount { step, source }
}

//! The daemon: a process that mounts images and serves their blocks until its node is gone.
//!
//! Invariant: it works in a mount namespace of its own, and a successor joins that; so a mount is
//! made once for each image and node, and nothing shows on the host.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};
use snowmelt_image::block::OciDigest;
use snowmelt_image::manifest::{Descriptor, OCI_MANIFEST};
use snowmelt_image::mount::{Choice, Form, LazyMount};
use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, BlockCache, Blocks};
use snowmelt_image::source::{Layout, Reference};
use snowmelt_image::{Error, Result};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::{mount, packet};
use tokio::runtime::Runtime;

use super::message::{Ask, Control, ImageSpec, LONGEST, READY};
use super::resolve::Origin;
use super::stores::{Settings, Stores};

/// Requests under way for blocks that a start is known to touch.
const AHEAD: usize = 4;

/// Runs the daemon until its node is gone. Must be called before the process has a second thread.
pub fn image_daemon_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt image daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let Some((Control::Begin { state, folder, settings }, mut fds)) = receive(&control)? else {
        return Ok(());
    };
    let namespace = if fds.len() > 1 { fds.pop() } else { None };
    let listener = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    if let Err(error) = enter(namespace, &folder) {
        return packet::send(&control, format!("cannot make mounts: {error}").as_bytes(), &[]);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let daemon = Arc::new(Daemon::new(state, folder, settings, runtime));
    // The namespace is ready to be held by the node.
    packet::send(&control, READY, &[])?;
    let accepting = Arc::clone(&daemon);
    thread::Builder::new().name("image-asks".to_owned()).spawn(move || {
        while let Ok(client) = packet::accept(&listener) {
            let daemon = Arc::clone(&accepting);
            let named = thread::Builder::new().name("image-ask".to_owned());
            // Without a thread the client sees the end of its connection.
            drop(named.spawn(move || daemon.answer(&client)));
        }
    })?;
    while let Some((said, mut fds)) = receive(&control)? {
        match said {
            Control::Begin { .. } => {}
            Control::Adopt(spec) => daemon.adopt(&spec, fds.pop()),
            Control::Ready(digest) => daemon.record(&digest),
        }
    }
    // The node is gone, and with it who reads: there is nothing to be tidied that the kernel does
    // not do, and a read under way must not keep us.
    std::process::exit(0)
}

fn receive(control: &OwnedFd) -> io::Result<Option<(Control, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LONGEST];
    match packet::receive(control, &mut buffer) {
        Ok(packet) if packet.length == 0 => Ok(None),
        Ok(packet) => Ok(Some((serde_json::from_slice(&buffer[..packet.length])?, packet.fds))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

/// Into the namespace of the daemon before, or a new one with a file system for mount points.
fn enter(namespace: Option<OwnedFd>, folder: &Path) -> io::Result<()> {
    if let Some(namespace) = namespace {
        return join(&namespace, flags::MOUNT);
    }
    unshare(flags::MOUNT)?;
    mount::make_private()?;
    let attributes = mount::Attributes::MOUNT_ATTR_NOSUID | mount::Attributes::MOUNT_ATTR_NODEV;
    let points = mount::fresh("tmpfs", &[("size", "1m"), ("mode", "700")], attributes)?;
    mount::attach_at(&points, CWD, folder)
}

struct Daemon {
    state: PathBuf,
    /// Mount points, each named by the image's digest.
    folder: PathBuf,
    stores: Stores,
    cache: OnceLock<Option<Arc<BlockCache>>>,
    /// What this machine can, tried once.
    form: OnceLock<Form>,
    runtime: Runtime,
    blocks: Mutex<HashMap<Origin, Arc<Blocks>>>,
    /// Each is locked while it is made, so that it is made once.
    mounts: Mutex<HashMap<OciDigest, Arc<Mutex<Option<Mount>>>>>,
}

struct Mount {
    lazy: LazyMount,
    /// For starts, which may be beside it.
    image: Named,
    recorded: bool,
    _held: Option<fs::File>,
}

/// An image, and the registry that its blocks come from if one does.
#[derive(Clone)]
struct Named {
    manifest: Descriptor,
    registry: Option<Reference>,
}

impl Named {
    fn of(spec: &ImageSpec) -> Result<Self> {
        let bytes = spec.manifest.len() as u64;
        let registry = match &spec.origin {
            Origin::Layout(_) => None,
            Origin::Registry(name) => Some(name.parse()?),
        };
        Ok(Self { manifest: Descriptor::new(OCI_MANIFEST, spec.digest.clone(), bytes), registry })
    }
}

impl Daemon {
    fn new(state: PathBuf, folder: PathBuf, settings: Settings, runtime: Runtime) -> Self {
        let (cache, form) = (OnceLock::new(), OnceLock::new());
        let (blocks, mounts) = (Mutex::default(), Mutex::default());
        let stores = Stores::new(&state, settings);
        Self { state, folder, stores, cache, form, runtime, blocks, mounts }
    }

    fn answer(&self, client: &OwnedFd) {
        let mut buffer = vec![0; LONGEST];
        let Ok(packet) = packet::receive(client, &mut buffer) else { return };
        let asked = &buffer[..packet.length];
        let answered = match serde_json::from_slice::<Ask>(asked) {
            Ok(ask) => self.mount(&ask.mount),
            Err(_) => self.copy(&String::from_utf8_lossy(asked)).map(|copy| vec![copy]),
        };
        // Who does not wait for the answer needs none.
        let _ = match answered {
            Ok(fds) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                packet::send(client, b"here", &fds)
            }
            Err(error) => packet::send(client, error.to_string().as_bytes(), &[]),
        };
    }

    /// A detached copy of a mount that is there.
    fn copy(&self, digest: &str) -> Result<OwnedFd> {
        let digest: OciDigest = digest.parse()?;
        let point = self.point(&digest);
        mount::copy(&point).map_err(|source| Error::Mount { step: "copy the mount", source })
    }

    /// Mounts an image unless it is; a copy and its connection to the kernel.
    fn mount(&self, spec: &ImageSpec) -> Result<Vec<OwnedFd>> {
        let slot = self.slot(&spec.digest);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let mount = match &mut *slot {
            Some(mount) => mount,
            none => none.insert(self.fresh(spec)?),
        };
        let failed = |source| Error::Mount { step: "copy a descriptor", source };
        let device = mount.lazy.device().try_clone_to_owned().map_err(failed)?;
        Ok(vec![self.copy(spec.digest.as_str())?, device])
    }

    fn slot(&self, digest: &OciDigest) -> Arc<Mutex<Option<Mount>>> {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(mounts.entry(digest.clone()).or_default())
    }

    fn fresh(&self, spec: &ImageSpec) -> Result<Mount> {
        let (image, blocks) = (spec.image()?, self.blocks(&spec.origin)?);
        let held = self.hold(spec)?;
        let lazy = LazyMount::new(&image, &blocks, self.runtime.handle(), self.form()?)?;
        let point = self.point(&spec.digest);
        let attach = || -> io::Result<()> {
            fs::create_dir_all(&point)?;
            mount::attach_at(lazy.root(), CWD, &point)
        };
        attach().map_err(|source| Error::Mount { step: "attach the mount", source })?;
        let image = Named::of(spec)?;
        self.fetch_ahead(image.clone(), &lazy);
        Ok(Mount { lazy, image, recorded: false, _held: held })
    }

    /// Goes on with a mount of the daemon before. One that cannot be is left to its readers as it
    /// is: they get errors once the node lets go of its connection.
    fn adopt(&self, spec: &ImageSpec, device: Option<OwnedFd>) {
        let adopted = device.ok_or(Error::Missing { what: "its connection".to_owned() });
        match adopted.and_then(|device| self.taken_over(spec, device)) {
            Ok(mount) => {
                let slot = self.slot(&spec.digest);
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(mount);
            }
            Err(error) => tracing::error!(image = %spec.digest, %error, "a mount is given up"),
        }
    }

    fn taken_over(&self, spec: &ImageSpec, device: OwnedFd) -> Result<Mount> {
        let (image, blocks) = (spec.image()?, self.blocks(&spec.origin)?);
        let held = self.hold(spec)?;
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, self.point(&spec.digest), open, Mode::empty());
        let root =
            root.map_err(|errno| Error::Mount { step: "find the mount", source: errno.into() })?;
        let (runtime, form) = (self.runtime.handle(), self.form()?);
        let lazy = LazyMount::take_over(&image, &blocks, runtime, form, (root, device))?;
        Ok(Mount { lazy, image: Named::of(spec)?, recorded: true, _held: held })
    }

    fn point(&self, digest: &OciDigest) -> PathBuf {
        self.folder.join(digest.hex())
    }

    /// Keeps the blobs of a local image while it is mounted, whatever becomes of its name.
    fn hold(&self, spec: &ImageSpec) -> Result<Option<fs::File>> {
        let Origin::Layout(folder) = &spec.origin else { return Ok(None) };
        // Somebody else's layout is only read.
        let ours = folder.starts_with(&self.state);
        ours.then(|| Layout::open(folder)?.hold(&spec.digest)).transpose()
    }

    fn blocks(&self, origin: &Origin) -> Result<Arc<Blocks>> {
        let mut all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blocks) = all.get(origin) {
            return Ok(Arc::clone(blocks));
        }
        let cache = match origin {
            Origin::Layout(_) => None,
            Origin::Registry(_) => self.cache().clone(),
        };
        let blocks = Arc::new(Blocks::new(origin.source()?, cache));
        all.insert(origin.clone(), Arc::clone(&blocks));
        Ok(blocks)
    }

    /// Opened by the first image that needs it. One that another node holds is done without.
    fn cache(&self) -> &Option<Arc<BlockCache>> {
        self.cache.get_or_init(|| {
            let opened = self.stores.cache();
            let warned = |error: &Error| tracing::warn!(%error, "blocks are not cached");
            opened.inspect_err(warned).ok().map(Arc::new)
        })
    }

    /// What starts touched here, or if there was none yet, elsewhere. Nobody waits for either.
    /// Tried once: a daemon that takes over finds the same as the one before.
    fn form(&self) -> Result<Form> {
        if let Some(form) = self.form.get() {
            return Ok(*form);
        }
        let chosen = Choice::Auto.choose()?;
        if let Some(error) = chosen.lacking {
            tracing::warn!(%error, "images are mounted by FUSE alone");
        }
        Ok(*self.form.get_or_init(|| chosen.form))
    }

    fn fetch_ahead(&self, image: Named, lazy: &LazyMount) {
        let (stores, readers) = (self.stores.clone(), readers(lazy));
        self.runtime.spawn(async move {
            let ahead = async {
                let digest = &image.manifest.digest;
                let known = match (stores.start(digest)?, &image.registry) {
                    (None, Some(name)) => stores.start_elsewhere(name, digest).await?,
                    (known, _) => known,
                };
                match known {
                    Some(profile) => profile.fetch_ahead(&readers, AHEAD).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = ahead.await {
                tracing::debug!(%error, "blocks of a start are not fetched ahead");
            }
        });
    }

    /// Keeps what was touched until a first handler was ready.
    fn record(&self, digest: &OciDigest) {
        let slot = self.slot(digest);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mount) = slot.as_mut().filter(|mount| !mount.recorded) else { return };
        mount.recorded = true;
        let touched = StartProfile::record(&readers(&mount.lazy));
        let image = mount.image.clone();
        drop(slot);
        match self.stores.keep_start(digest, &touched) {
            Ok(is_new) if is_new && self.stores.settings.publish_starts => self.publish(image),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a start is not remembered"),
        }
    }

    fn publish(&self, image: Named) {
        let stores = self.stores.clone();
        let Some(name) = image.registry else { return };
        self.runtime.spawn(async move {
            if let Err(error) = stores.publish_start(&name, &image.manifest).await {
                tracing::warn!(image = %name, %error, "a start is not published");
            }
        });
    }
}

fn readers(lazy: &LazyMount) -> Vec<Arc<BlobReader>> {
    std::iter::once(lazy.metadata()).chain(lazy.layers()).map(Arc::clone).collect()
}

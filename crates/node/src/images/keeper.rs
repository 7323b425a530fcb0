//! The node's side of images: starts the daemon with the first image, sends requests to it, and
//! replaces a daemon that died.
//!
//! Invariant: the node holds the daemon's mount namespace and each mount's connection to the
//! kernel. While the node holds them, reads wait for the next daemon; when the node gives up, or is
//! killed itself, reads fail immediately and no reader waits.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use snowmelt_broker::StartedDaemon;
use snowmelt_image::RunConfig;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::{Form, supports_takeover};
use snowmelt_kernel::packet;
use snowmelt_rpc::Credential;
use snowmelt_sandbox::{Base, MountedImage, Root};
use snowmelt_types::{ErrorReport, Tenant};

use super::history::ImageHistory;
use super::message::{
    DaemonControl, DaemonMember, DaemonPlace, DaemonRequest, Here, ImageSpec, ON_RAW_FILES, READY,
};
use super::notices::Noticed;
use super::packets::{failed, is_end, notices, say, say_to};
use super::resolution::ResolvedImage;
use super::stores::ImageSettings;
use super::tenant_images::TenantImages;
use super::tree_place::{OwnCluster, TreePlace};
use super::{Mounted, locked, shown_in};
use crate::process::daemon::DaemonProcess;
use crate::{Error, Result};

/// How long a daemon may take to start.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a mount may take: longer than a source has patience.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(240);
/// How long a daemon may take to say why reads failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a question may take to arrive; the daemon counts the time asked about back from then.
const QUESTION_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of deaths within `DEATHS_WINDOW` at which a daemon is not replaced any more.
const MAX_DEATHS: usize = 5;
const DEATHS_WINDOW: Duration = Duration::from_secs(60);
/// How often a request is tried whose daemon dies meanwhile.
const ATTEMPTS: usize = 3;

/// The images of a node, and the daemon that mounts them.
#[derive(Debug)]
pub(crate) struct ImageKeeper {
    binary: PathBuf,
    pub(super) state: PathBuf,
    folder: PathBuf,
    pub(super) settings: ImageSettings,
    pub(super) noticed: Arc<Noticed>,
    keeper: Mutex<Option<Arc<Keeper>>>,
    served_at: ServedAt,
    /// The number of keepers that were started so far.
    begun: AtomicU64,
    pub(super) cluster: OnceLock<OwnCluster>,
    pub known: ImageHistory,
}

/// The path of the socket at which images are served now; `None` without a daemon. Each keeper has
/// a socket of its own, so that a root in an image of a keeper that gave up is another root than
/// one made later.
type ServedAt = Arc<Mutex<Option<PathBuf>>>;

/// The keeper of a daemon: the running daemon, and all that its successor will need.
#[derive(Debug)]
pub(super) struct Keeper {
    command: PathBuf,
    begin: (PathBuf, PathBuf, ImageSettings),
    /// The means by which other hosts know this one.
    credential: Option<Credential>,
    socket: PathBuf,
    kept: Mutex<KeeperState>,
    noticed: Arc<Noticed>,
    served_at: ServedAt,
}

#[derive(Debug, Default)]
struct KeeperState {
    /// The control connection to the running daemon.
    control: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    namespace: Option<OwnedFd>,
    mounts: HashMap<OciDigest, (ImageSpec, Form, OwnedFd)>,
    is_ended: bool,
}

impl ImageKeeper {
    /// Makes the images of a node; starts nothing. `folder` is for this node alone and goes with
    /// its run directory.
    pub fn new(binary: PathBuf, state: PathBuf, folder: PathBuf, settings: ImageSettings) -> Self {
        Self {
            binary,
            state,
            folder,
            settings,
            noticed: Arc::default(),
            keeper: Mutex::default(),
            served_at: ServedAt::default(),
            begun: AtomicU64::new(0),
            cluster: OnceLock::new(),
            known: ImageHistory::default(),
        }
    }

    /// Returns whether the daemon that served the images of this root was given up: its mounts are
    /// dead.
    pub fn is_dead(&self, root: &Root) -> bool {
        let mut images = shown_in(root).peekable();
        if images.peek().is_none() {
            return false;
        }
        let served_at = locked(&self.served_at);
        images.any(|image| served_at.as_ref() != Some(&image.socket))
    }

    /// Mounts an image by its name for a tenant, once for each node, and reads its configuration.
    pub async fn mount_with_config(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
        place: Option<&TreePlace>,
    ) -> Result<(Mounted, RunConfig)> {
        let of = TenantImages::new(&self.state, tenant);
        let found = self.known.find(&of, name).await?;
        let config = async { Ok(RunConfig::parse(&self.known.config(&of, &found).await?)?) };
        tokio::try_join!(self.mount_found(tenant, &found, place), config)
    }

    /// Mounts an image that was found. If the image is mounted already, a new place of this host in
    /// its trees counts from now on.
    pub async fn mount_found(
        self: &Arc<Self>,
        tenant: &Tenant,
        found: &ResolvedImage,
        place: Option<&TreePlace>,
    ) -> Result<Mounted> {
        let place = self.cluster.get().zip(place).map(|(cluster, place)| cluster.place(place));
        let spec = ImageSpec::new(tenant, found, place)?;
        let images = Arc::clone(self);
        let mounted = tokio::task::spawn_blocking(move || images.mount_blocking(&spec)).await;
        mounted.map_err(|error| failed("mount an image")(io::Error::other(error)))?
    }

    /// Returns a sandbox's root as it is best made now: an image that is mounted on raw files
    /// meanwhile is a root of its own, so such a root is put together anew.
    pub fn current(&self, root: &Root) -> Root {
        let mut root = root.clone();
        let shown = root.image_binds.iter_mut().map(|bind| &mut bind.image);
        let base = match &mut root.base {
            Base::Image(image) => Some(image),
            Base::Host | Base::Folder(_) => None,
        };
        for image in base.into_iter().chain(shown) {
            if self.noticed.is_raw(&image.digest) {
                image.digest.push_str(ON_RAW_FILES);
            }
        }
        root
    }

    /// Returns why reads of this image failed since `since`, if some did: readers get an error
    /// number only.
    pub async fn why(&self, image: &MountedImage, since: Instant) -> Option<ErrorReport> {
        let socket = image.socket.clone();
        let digest = image.digest.parse().ok()?;
        let ms =
            u64::try_from((since.elapsed() + QUESTION_TIMEOUT).as_millis()).unwrap_or(u64::MAX);
        let ask = move || say_to(&socket, &DaemonRequest::Why(digest, ms), &[], ANSWER_TIMEOUT);
        // The daemon alone knows.
        let (said, _) = tokio::task::spawn_blocking(ask).await.ok()?.ok()?;
        serde_json::from_slice(&said).ok()?
    }

    /// Tells the daemon that a handler in this image is ready: the blocks touched until now are the
    /// image's start profile.
    pub fn ready(&self, digest: &str) {
        let keeper = self.keeper().clone();
        if let (Some(keeper), Ok(digest)) = (keeper, digest.parse()) {
            let kept = keeper.kept();
            // A daemon that has just died has no start to report.
            let _ = kept
                .control
                .as_ref()
                .map(|control| say(control, &DaemonControl::Ready(digest), &[]));
        }
    }

    /// Ends the daemon; readers of its mounts get errors from then on.
    pub fn end(&self) {
        if let Some(keeper) = self.keeper().take() {
            keeper.give_up();
        }
    }

    fn mount_blocking(&self, spec: &ImageSpec) -> Result<Mounted> {
        let keeper = self.started()?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match keeper.ask(spec) {
                // The daemon died meanwhile, and its successor listens at the same place.
                Err(error) if attempt < ATTEMPTS && is_end(&error) => {}
                Err(error) => return Err(failed("mount the image")(error)),
                Ok(Err(report)) => return Err(Error::Report(report)),
                Ok(Ok(root)) => {
                    let socket = keeper.socket.clone();
                    let at = MountedImage { socket, digest: spec.digest.to_string() };
                    return Ok(Mounted { at, root });
                }
            }
        }
    }

    /// Returns the keeper of the daemon, if it has been started and has not given up.
    pub(super) fn running(&self) -> Option<Arc<Keeper>> {
        self.keeper().clone().filter(|keeper| !keeper.kept().is_ended)
    }

    pub(super) fn started(&self) -> Result<Arc<Keeper>> {
        let mut slot = self.keeper();
        if let Some(keeper) = &*slot
            && !keeper.kept().is_ended
        {
            return Ok(Arc::clone(keeper));
        }
        let keeper = Keeper::start(self);
        let keeper = keeper.map_err(|error| failed("start the daemon of images")(error))?;
        Ok(Arc::clone(slot.insert(keeper)))
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Arc<Keeper>>> {
        locked(&self.keeper)
    }
}

impl Drop for ImageKeeper {
    fn drop(&mut self) {
        self.end();
    }
}

impl Keeper {
    fn start(images: &ImageKeeper) -> io::Result<Arc<Self>> {
        let ImageKeeper { binary, state, folder, settings, noticed, served_at, .. } = images;
        let credential = images.cluster.get().map(|cluster| cluster.credential.clone());
        let points = folder.join("mounts");
        std::fs::create_dir_all(&points)?;
        let socket =
            folder.join(format!("socket-{}", images.begun.fetch_add(1, Ordering::Relaxed)));
        let listener = Some(packet::listen(&socket)?);
        let kept = Mutex::new(KeeperState { listener, ..KeeperState::default() });
        let keeper = Arc::new(Self {
            command: binary.clone(),
            begin: (state.clone(), points, settings.clone()),
            credential,
            socket,
            kept,
            noticed: Arc::clone(noticed),
            served_at: Arc::clone(served_at),
        });
        let daemon = keeper.spawn()?;
        *locked(&keeper.served_at) = Some(keeper.socket.clone());
        let caring = Arc::clone(&keeper);
        let named = thread::Builder::new().name("image-keeper".to_owned());
        named.spawn(move || caring.care(daemon)).inspect_err(|_| keeper.give_up())?;
        Ok(keeper)
    }

    /// Returns the socket at which the daemon answers requests.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Notes a new place of this host, so that a successor of the daemon knows it.
    pub fn keep_place(&self, place: &DaemonPlace) {
        let mut kept = self.kept();
        let places = kept.mounts.values_mut().filter_map(|(spec, ..)| spec.place.as_mut());
        for known in places.filter(|known| known.tree == place.tree) {
            known.clone_from(place);
        }
    }

    /// Starts a daemon that continues with all kept mounts.
    fn spawn(&self) -> io::Result<DaemonProcess> {
        let (ours, theirs) = packet::pair()?;
        let mut daemon = DaemonProcess::start(StartedDaemon::Images, &self.command, theirs)?;
        let begun = self.begin(&ours);
        if begun.is_err() {
            daemon.end();
        }
        begun.map(|()| daemon)
    }

    fn begin(&self, control: &OwnedFd) -> io::Result<()> {
        let mut kept = self.kept();
        let (state, folder, settings) = self.begin.clone();
        let listener = kept.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(listener).chain(&kept.namespace).map(AsFd::as_fd).collect();
        let mounts = kept.mounts.len();
        // A certificate may have been replaced since the last daemon began.
        let member = self.credential.as_ref().and_then(|credential| {
            let token = credential.token().map(|token| DaemonMember::Token(token.header()));
            token.or_else(|| credential.text().map(DaemonMember::Certificate))
        });
        say(control, &DaemonControl::Begin { state, folder, settings, mounts, member }, &fds)?;
        if !packet::wait(control, BEGIN_TIMEOUT)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut answer = [0; 1024];
        let mut packet = packet::receive(control, &mut answer)?;
        match &answer[..packet.length] {
            READY => {}
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            said => return Err(io::Error::other(String::from_utf8_lossy(said).into_owned())),
        }
        for (spec, form, device) in kept.mounts.values() {
            say(control, &DaemonControl::Adopt(spec.clone(), *form), &[device.as_fd()])?;
        }
        if kept.namespace.is_none() {
            kept.namespace = packet.fds.pop();
        }
        kept.control = Some(control.try_clone()?);
        let told = control.try_clone()?;
        let noticed = Arc::clone(&self.noticed);
        let named = thread::Builder::new().name("image-notices".to_owned());
        named.spawn(move || notices(&told, |notice| noticed.take(notice))).map(drop)
    }

    /// Replaces the daemon whenever it dies, until it dies too often or is to end.
    fn care(&self, mut daemon: DaemonProcess) {
        let mut deaths: Vec<Instant> = Vec::new();
        loop {
            let status = daemon.wait();
            if self.kept().is_ended {
                return;
            }
            if !supports_takeover() {
                tracing::warn!(?status, "the daemon of images died, and its mounts with it");
                return self.give_up();
            }
            tracing::warn!(?status, "the daemon of images died; another one goes on");
            match self.replace(&mut deaths) {
                Some(next) => daemon = next,
                None => return self.give_up(),
            }
        }
    }

    /// Starts the daemon after one that died; `None` if it is not to be replaced. A successor that
    /// dies before it has started counts as another death, because it may have the same cause.
    fn replace(&self, deaths: &mut Vec<Instant>) -> Option<DaemonProcess> {
        loop {
            deaths.retain(|death| death.elapsed() < DEATHS_WINDOW);
            deaths.push(Instant::now());
            if deaths.len() >= MAX_DEATHS {
                tracing::error!("the daemon of images dies again and again: images fail");
                return None;
            }
            match self.spawn() {
                Ok(next) => return Some(next),
                Err(_) if self.kept().is_ended => return None,
                Err(error) => tracing::warn!(%error, "a daemon of images did not begin"),
            }
        }
    }

    /// Releases everything: the daemon ends, and reads fail.
    fn give_up(&self) {
        let mut kept = self.kept();
        // Drops the control connection, at which the daemon ends, and the connections to the
        // kernel, without which reads fail.
        *kept = KeeperState { is_ended: true, ..KeeperState::default() };
        self.noticed.forget_mounts();
        // A later keeper may serve already.
        let mut served_at = locked(&self.served_at);
        if served_at.as_ref() == Some(&self.socket) {
            *served_at = None;
        }
    }

    /// Requests a mount from the daemon; any other answer is its failure.
    fn ask(&self, spec: &ImageSpec) -> io::Result<std::result::Result<OwnedFd, Box<ErrorReport>>> {
        let ask = DaemonRequest::Mount(spec.clone());
        let (said, fds) = say_to(&self.socket, &ask, &[], MOUNT_TIMEOUT)?;
        let mut fds = fds.into_iter();
        match (fds.next(), fds.next()) {
            (Some(root), None) => Ok(Ok(root)),
            (Some(root), Some(device)) => {
                let here: Here = serde_json::from_slice(&said)?;
                let kept = (spec.clone(), here.form, device);
                let mut mounts = self.kept();
                let kept = mounts.mounts.entry(spec.digest.clone()).or_insert(kept);
                if spec.place.is_some() {
                    kept.0.place.clone_from(&spec.place);
                }
                Ok(Ok(root))
            }
            _ => Ok(Err(Box::new(serde_json::from_slice(&said)?))),
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeeperState> {
        locked(&self.kept)
    }
}

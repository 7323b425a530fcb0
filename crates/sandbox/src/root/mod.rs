//! Root file systems, assembled once for equal specs.
//!
//! A template is a mount namespace with such a root: a program starts in a copy of it, and attaches
//! only its scratch and its `/proc`. No mount is visible on the host, and all vanish with the
//! spawner. Every mount in a template is read-only and nosuid, and all but `/dev` are nodev.

mod base;
mod builder;
mod copy;
mod devices;
mod image;
mod mounted_image;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::rootless;

use crate::fault::{StepFault, doing};
use crate::namespaces::{MASKED, Namespaces};
use crate::spec::{Base, MountedImage, Network, Root};
use builder::RootBuilder;
pub use mounted_image::root_of_image;

/// The maximum number of cached templates; the least recently used one is dropped first.
const MAX_TEMPLATES: usize = 64;

const FOLDERS: [&str; 3] = ["/proc", "/tmp", "/run"];

const FILES: [(&str, &[u8]); 4] = [
    ("/run/snowmelt/zygote.py", include_bytes!("../../../../python/snowmelt/_runtime/zygote.py")),
    ("/run/snowmelt/enter.py", include_bytes!("../../../../python/snowmelt/_runtime/enter.py")),
    (
        "/run/snowmelt/fault_probe.py",
        include_bytes!("../../../../python/snowmelt/_runtime/fault_probe.py"),
    ),
    ("/run/snowmelt/zygote.so", include_bytes!(concat!(env!("OUT_DIR"), "/zygote.so"))),
];

/// The templates of one lane of a spawner.
pub(crate) struct Roots {
    folder: PathBuf,
    lane: u32,
    /// The cached templates, the most recently used last.
    templates: Vec<Template>,
    made: u64,
}

struct Template {
    root: Root,
    network: Network,
    namespace: OwnedFd,
    /// The empty network namespace of programs with this root.
    empty_network: OwnedFd,
}

/// The namespaces in which a program starts.
pub(crate) struct ProgramNamespaces<'a> {
    /// The mount namespace of its root file system.
    pub mounts: BorrowedFd<'a>,
    /// The network namespace of programs without a network.
    pub empty_network: BorrowedFd<'a>,
}

impl Roots {
    /// Assembles templates under `folder`, an empty folder in a private mount namespace.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, lane: 0, templates: Vec::new(), made: 0 }
    }

    /// Assembles further templates in folders of that lane. The existing templates serve both
    /// lanes.
    pub fn become_lane(&mut self, lane: u32) {
        (self.lane, self.made) = (lane, 0);
    }

    /// Returns the namespaces for programs with this root.
    pub fn namespaces_for(
        &mut self,
        namespaces: &Namespaces,
        root: &Root,
        network: Network,
    ) -> Result<ProgramNamespaces<'_>, StepFault> {
        let network = network.of_root();
        let known = self.templates.iter().rposition(|template| template.is_for(root, network));
        let template = match known {
            Some(index) if index + 1 == self.templates.len() => None,
            Some(index) => Some(self.templates.remove(index)),
            None => Some(self.assemble(namespaces, root, network)?),
        };
        self.templates.extend(template);
        if self.templates.len() > MAX_TEMPLATES {
            self.templates.remove(0);
        }
        let last = self.templates.last().map(|template| ProgramNamespaces {
            mounts: template.namespace.as_fd(),
            empty_network: template.empty_network.as_fd(),
        });
        doing("find the root", last.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// Makes a detached copy of this root.
    pub fn copy(
        &mut self,
        namespaces: &Namespaces,
        root: &Root,
        network: Network,
    ) -> Result<OwnedFd, StepFault> {
        let ProgramNamespaces { mounts, .. } = self.namespaces_for(namespaces, root, network)?;
        doing(
            "copy the root",
            namespaces.in_mount_namespace(mounts, || mount::copy(Path::new("/"))),
        )
    }

    fn assemble(
        &mut self,
        namespaces: &Namespaces,
        root: &Root,
        network: Network,
    ) -> Result<Template, StepFault> {
        let path = doing("make a folder for the root", self.new_folder())?;
        let options = [("size", "8m"), ("mode", "755")];
        let fresh = mount::fresh("tmpfs", &options, Attributes::empty());
        let top = doing("make the root's file system", fresh)?;
        doing("attach the root's file system", mount::attach_at(&top, rustix::fs::CWD, &path))?;
        // Dropping it unmounts; the template has its own copies of the mounts.
        let mount_point = MountPoint { path };
        let image = match &root.base {
            Base::Image(mounted) => Some(self.attach_image(mounted)?),
            Base::Host | Base::Folder(_) => None,
        };
        let folder = match &root.base {
            Base::Folder(folder) => Some(folder.as_path()),
            Base::Host | Base::Image(_) => image.as_ref().map(|image| image.path.as_path()),
        };
        let builder = RootBuilder::new(top.as_fd());
        fill(&builder, root, folder, network)?;
        for bind in &root.image_binds {
            let image = self.attach_image(&bind.image)?;
            image::folder(&builder, &image.path, bind)?;
        }
        if rootless::entered().is_some() {
            let attached = attach_visible_proc(&top, &mount_point.path);
            doing("attach a /proc below that of programs", attached)?;
        }
        doing("make the root read-only", mount::set_attributes_of(&top, mount::inert()))?;
        let tree = doing("copy the root", mount::copy_at(&top, Path::new("")))?;
        let namespace = doing("make a namespace of the root", namespaces.namespace_of(tree))?;
        let empty_network = match network {
            Network::Host => namespaces.shared_network(),
            Network::None | Network::Job(_) => namespaces.empty_network(),
        };
        let empty_network = doing("make an empty network namespace", empty_network)?;
        Ok(Template { root: root.clone(), network, namespace, empty_network })
    }

    /// Makes an empty folder. A killed lane of the same number may have left some folders.
    fn new_folder(&mut self) -> io::Result<PathBuf> {
        loop {
            let path = self.folder.join(format!("{}-{}", self.lane, self.made));
            self.made += 1;
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| path),
            }
        }
    }

    /// Attaches the mounted image of another process, until the result is dropped: only mounts that
    /// are attached in this namespace can be copied (before Linux 6.15).
    fn attach_image(&mut self, mounted: &MountedImage) -> Result<MountPoint, StepFault> {
        let tree = doing("request the image", mounted_image::root_of_image(mounted))?;
        let path = doing("make a folder for the image", self.new_folder())?;
        let mount_point = MountPoint { path };
        doing("attach the image", mount::attach_at(&tree, rustix::fs::CWD, &mount_point.path))?;
        Ok(mount_point)
    }
}

/// Attaches a `/proc` on which each program mounts its own: in a user namespace the kernel lets nobody
/// mount one where no other is to be seen. It is covered before a program runs. A zygote, which can
/// enter the roots of its children, sees what it could trace there, with the masks of every `/proc`.
fn attach_visible_proc(top: &OwnedFd, path: &Path) -> io::Result<()> {
    let attributes = mount::inert() | Attributes::MOUNT_ATTR_NOEXEC;
    let proc = mount::fresh("proc", &[("hidepid", "invisible")], attributes)?;
    mount::attach_at(&proc, top, Path::new("proc"))?;
    let null = path.join("dev/null");
    let files = MASKED.iter().map(|name| path.join("proc").join(name));
    files.filter(|file| file.exists()).try_for_each(|file| mount::bind(&null, &file))
}

fn fill(
    builder: &RootBuilder<'_>,
    root: &Root,
    image: Option<&Path>,
    network: Network,
) -> Result<(), StepFault> {
    for path in FOLDERS {
        builder.folder(Path::new(path))?;
    }
    match image {
        Some(folder) => image::assemble(builder, folder, &root.binds)?,
        None => base::assemble(builder, network)?,
    }
    devices::assemble(builder)?;
    for (path, content) in FILES {
        builder.file(Path::new(path), content)?;
    }
    root.binds.iter().try_for_each(|bind| builder.bind(&bind.source, &bind.target))
}

impl Template {
    fn is_for(&self, root: &Root, network: Network) -> bool {
        self.network == network && self.root == *root
    }
}

/// The mount point where a template is assembled.
struct MountPoint {
    path: PathBuf,
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Folders that cannot be removed are removed with the run directory.
        if mount::detach(&self.path).is_ok() {
            drop(std::fs::remove_dir(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the native loop of the product knows no name of a step that could be left out.
    #[test]
    fn only_the_feature_weaken_can_leave_out_steps_of_the_native_loop() {
        let (_, library) = FILES[3];
        let named = library.windows(13).any(|bytes| bytes == b"ChildSeccomp\0");
        assert_eq!(named, cfg!(feature = "weaken"));
    }
}

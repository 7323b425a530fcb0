//! Specifications of sandboxes: the root file system, the limits and the program.
//!
//! A spec is complete: a sandbox inherits nothing from the server, neither environment variables
//! nor descriptors.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, CpuMillis, SandboxId};

/// The descriptor on which a sandboxed program finds its listening socket (`SNOWMELT_CHANNEL_FD` in
/// its environment).
pub const CHANNEL_FD: i32 = 3;

/// The user and group of a function inside its sandbox, unless its image names others.
pub(crate) const FUNCTION_ID: u32 = 1000;

/// A host folder or file mounted inside the sandbox, always read-only, nosuid and nodev.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path inside the sandbox.
    pub target: PathBuf,
}

/// The programs and libraries that a sandbox sees. `/dev`, `/proc`, `/tmp` and `/run` are always
/// the sandbox's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Base {
    /// The host's `/usr`, `/bin` and `/lib*`, and a minimal `/etc`.
    #[default]
    Host,
    /// The unpacked file system of an image, in this folder of the host. Files that only root can
    /// read are not readable inside the sandbox.
    Folder(PathBuf),
    /// The file system of an image that another process has mounted.
    Image(MountedImage),
}

/// An image that another process has mounted, and the way to a copy of the mount; see
/// [`crate::root_of_image`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MountedImage {
    /// The socket of the process that has mounted the image.
    pub socket: PathBuf,
    /// The digest of the image.
    pub digest: String,
}

/// A top-level folder of a mounted image, mounted inside; always read-only, nosuid and nodev.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageBind {
    /// The image, which need not be the base.
    pub image: MountedImage,
    /// The folder's name in the image.
    pub folder: String,
    /// Absolute path inside the sandbox.
    pub target: PathBuf,
}

/// The file system that a sandbox sees. Equal roots are assembled once and shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Root {
    /// Programs and libraries.
    pub base: Base,
    /// Mounts on top of the base, in mount order.
    pub binds: Vec<Bind>,
    /// Mounts of image folders, made after `binds`.
    pub image_binds: Vec<ImageBind>,
}

/// The network that a sandbox can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// No network: an empty network namespace.
    None,
    /// The host's network: only for the platform's own programs, never for user code.
    Host,
    /// The network of a job, made by [`crate::Spawner::make_network`].
    Job(NetworkId),
}

/// Identifies a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkId(pub(crate) u64);

impl Network {
    /// The kind of root that goes with this network. Job networks need no root of their own: their
    /// functions get the files about their network through binds.
    pub(crate) fn of_root(self) -> Self {
        if self == Self::Host { Self::Host } else { Self::None }
    }

    /// The job's network.
    pub(crate) fn job(self) -> Option<NetworkId> {
        match self {
            Self::Job(id) => Some(id),
            Self::None | Self::Host => None,
        }
    }
}

/// The allowed system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyscallPolicy {
    /// User code; with [`Network::Job`] it may use internet sockets.
    Function,
    /// The platform's own worker: as `Function`, plus internet sockets with [`Network::Host`].
    Worker,
    /// A zygote: as `Function`, plus the calls that set up the sandbox of a child.
    Zygote,
}

/// The limits of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Limit on memory, including page cache and scratch. There is no swap.
    pub memory: ByteSize,
    /// Limit on CPU time, in thousandths of a core.
    pub cpu: CpuMillis,
    /// Greatest number of processes and threads.
    pub pids: u32,
    /// Size in bytes of the scratch at `/tmp`.
    pub scratch: ByteSize,
    /// Greatest number of open descriptors of one process.
    pub open_files: u64,
}

/// The limits of all sandboxes of a spawner together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Limit on memory. Default: the machine's memory minus the larger of one eighth and 512 MiB.
    pub memory: Option<ByteSize>,
    /// Greatest number of processes and threads. Default: three quarters of what the kernel's pid
    /// range and memory allow.
    pub processes: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(512),
            cpu: CpuMillis(1000),
            pids: 64,
            scratch: ByteSize::mib(64),
            open_files: 1024,
        }
    }
}

/// The user and the working directory of a program, as seen inside. Outside, every program has its
/// own host user, which owns nothing; these ids are only how that user appears inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSettings {
    /// User id inside the sandbox; not 0.
    pub user: u32,
    /// Group id inside the sandbox; not 0.
    pub group: u32,
    /// Working directory, an absolute path inside the sandbox.
    pub working_folder: PathBuf,
    /// Folders of the root in which the program may write. Their contents count to the scratch.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// Whether the program may have transparent huge pages from its first instruction. It can
    /// change that itself, but not before its allocator has touched its first memory.
    pub huge_pages: bool,
}

/// The greatest number of writable folders of a program.
pub const MAX_WRITABLE: usize = 16;

/// The folder of files for one run, which every sandbox has. The contents of an image's `/run` are
/// not visible.
pub(crate) const RUN: &str = "/run";

/// Whether a program may have this folder as a writable one: an absolute path without `..`, below
/// none of the sandbox's own folders. `/tmp`, which is writable anyway, and `/run` themselves may
/// be.
pub fn may_be_writable(folder: &Path) -> bool {
    let mut parts = folder.components();
    let own = ["/proc", "/dev", "/tmp", RUN, "/sys", "/opt/snowmelt"];
    parts.next() == Some(Component::RootDir)
        && folder.components().count() > 1
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && (["/tmp", RUN].iter().any(|whole| folder == Path::new(whole))
            || !own.iter().any(|own| folder.starts_with(own)))
        && !folder.as_os_str().as_bytes().contains(&0)
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            user: FUNCTION_ID,
            group: FUNCTION_ID,
            working_folder: "/tmp".into(),
            writable: Vec::new(),
            huge_pages: true,
        }
    }
}

/// A program to execute in a sandbox of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Identifier, unique among live sandboxes.
    pub id: SandboxId,
    /// The file system that the sandbox sees.
    pub root: Root,
    /// Absolute path of the program inside the sandbox, and its arguments.
    pub command: Vec<String>,
    /// The complete environment, except `SNOWMELT_CHANNEL_FD`.
    pub env: Vec<(String, String)>,
    /// The limits.
    pub limits: Limits,
    /// The network.
    pub network: Network,
    /// The system call policy.
    pub policy: SyscallPolicy,
    /// The user and working directory.
    pub process: ProcessSettings,
}

/// A program of a job's network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkProgram {
    /// The program, whose network is that of the job.
    pub program: SandboxSpec,
    /// The entry of the program in the table of the network
    /// ([`crate::Spawner::make_network_with_table`]). `None` without such a table.
    pub entry: Option<Vec<u8>>,
}

/// A Python interpreter that imports some modules and then only forks (SOCK 4.1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZygoteSpec {
    /// Identifier, unique among live sandboxes.
    pub id: SandboxId,
    /// The file system that the zygote itself sees: the interpreter and the packages to import.
    pub root: Root,
    /// Absolute path of the interpreter inside the sandbox.
    pub python: PathBuf,
    /// Folders that are prepended to the interpreter's own `sys.path`.
    pub python_path: Vec<String>,
    /// Modules to import. A failed import is logged and left to the children.
    pub imports: Vec<String>,
    /// The complete environment. `OPENBLAS_NUM_THREADS=1` and similar variables are added unless
    /// they are set, because a process with threads cannot be forked safely.
    pub env: Vec<(String, String)>,
    /// The limits of the zygote itself. Its children have their own.
    pub limits: Limits,
}

/// A child of a zygote, in a sandbox of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForkSpec {
    /// Identifier, unique among live sandboxes.
    pub id: SandboxId,
    /// The file system that the child sees.
    pub root: Root,
    /// Folders that are prepended to the zygote's `sys.path`.
    pub sys_path: Vec<String>,
    /// The complete environment, except `SNOWMELT_CHANNEL_FD`.
    pub env: Vec<(String, String)>,
    /// The limits.
    pub limits: Limits,
    /// The network of the child's job, made for its zygote. `None` reaches nothing.
    pub network: Option<NetworkId>,
    /// The function to call with the listening socket: `package.module:function` or
    /// `package.module:object.function`.
    pub entry: String,
}

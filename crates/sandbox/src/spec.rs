//! What a caller asks for: the root, the limits, the program.
//!
//! A spec is complete: nothing is inherited from the server, neither environment nor descriptors.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, CpuMillis, SandboxId};

/// The descriptor on which a sandboxed program finds its listening socket
/// (`SNOWMELT_CHANNEL_FD` in its environment).
pub const CHANNEL_FD: i32 = 3;

/// A folder or file of the host shown inside, always read-only, nosuid and nodev.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
}

/// What programs and libraries a sandbox sees; `/dev`, `/proc`, `/tmp` and `/run` are its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Base {
    /// The host's `/usr`, `/bin` and `/lib*`, and a minimal `/etc`.
    #[default]
    Host,
    /// The unpacked file system of an image, in this folder of the host. Files that only root may
    /// read cannot be read inside.
    Folder(PathBuf),
    /// The same of an image that is mounted, by the process that mounted it.
    Image(MountedImage),
}

/// Where a copy of an image's mount is given to whoever asks for it; see
/// [`crate::root_of_image`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MountedImage {
    /// The socket of the process that mounted it.
    pub socket: PathBuf,
    /// The image by its digest.
    pub digest: String,
}

/// A folder at the top of a mounted image shown inside, always read-only, nosuid and nodev.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageBind {
    /// The image, which need not be the base.
    pub image: MountedImage,
    /// The folder's name in it.
    pub folder: String,
    /// Absolute path inside.
    pub target: PathBuf,
}

/// What a sandbox sees. Equal roots are put together once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Root {
    /// Programs and libraries.
    pub base: Base,
    /// What is shown beside them, in the order in which it is mounted.
    pub binds: Vec<Bind>,
    /// What is shown of images, after that.
    pub image_binds: Vec<ImageBind>,
}

/// What a sandbox can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// Nothing: an empty network namespace.
    None,
    /// The host's network: only for the platform's own programs, never for a user's code.
    Host,
    /// The network of a job, which [`crate::Spawner::make_network`] made.
    Job(NetworkId),
}

/// Which network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkId(pub(crate) u64);

impl Network {
    /// The kind of root that goes with it: what a job's functions see of its network is shown to
    /// them by binds.
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

/// Which system calls are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// A user's code; with [`Network::Job`] it may use internet sockets.
    Function,
    /// The platform's own worker: as `Function`, and internet sockets with [`Network::Host`].
    Worker,
    /// A zygote: as `Function`, and what it needs to make the sandbox of a child.
    Zygote,
}

/// The most that a sandbox may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory with page cache and scratch; there is no swap beside it.
    pub memory: ByteSize,
    /// Processor time, in thousandths of a core.
    pub cpu: CpuMillis,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes in the scratch at `/tmp`.
    pub scratch: ByteSize,
    /// Open descriptors of one process.
    pub open_files: u64,
}

/// The most that all sandboxes of a spawner may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Memory, where absent that of the machine but for an eighth, or 512 MiB if that is more.
    pub memory: Option<ByteSize>,
    /// Processes and threads, where absent three quarters of what the kernel has numbers and room
    /// for.
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

/// As whom a program runs inside, and where it starts. Outside it is always a user of its own, who
/// owns nothing: the numbers are only how that one looks inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSettings {
    /// Its user id inside; not 0.
    pub user: u32,
    /// Its group id inside; not 0.
    pub group: u32,
    /// An absolute path inside.
    pub working_folder: PathBuf,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self { user: 1000, group: 1000, working_folder: "/tmp".into() }
    }
}

/// A program to execute in a sandbox of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Unique among the living.
    pub id: SandboxId,
    /// What it sees.
    pub root: Root,
    /// Absolute path of the program inside, and its arguments.
    pub command: Vec<String>,
    /// The whole environment but for `SNOWMELT_CHANNEL_FD`.
    pub env: Vec<(String, String)>,
    /// The most that it may use.
    pub limits: Limits,
    /// What it can reach.
    pub network: Network,
    /// Which system calls it may make.
    pub policy: Policy,
    /// As whom and where it starts.
    pub process: ProcessSettings,
}

/// A Python interpreter that imports some modules and then only forks (SOCK 4.1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZygoteSpec {
    /// Unique among the living.
    pub id: SandboxId,
    /// What the zygote itself sees: the interpreter and the packages to import.
    pub root: Root,
    /// Absolute path of the interpreter inside.
    pub python: PathBuf,
    /// Put before the interpreter's own `sys.path`.
    pub python_path: Vec<String>,
    /// Modules to import. One that fails is named in the log and left to the children.
    pub imports: Vec<String>,
    /// The whole environment; `OPENBLAS_NUM_THREADS=1` and its kin are added unless they are
    /// there, because a process with threads cannot be forked safely.
    pub env: Vec<(String, String)>,
    /// The most that the zygote itself may use; its children have limits of their own.
    pub limits: Limits,
}

/// A zygote of any language: a program that warms itself and then calls `snowmelt_serve` of
/// `runtimes/native/snowmelt_zygote.h`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NativeZygoteSpec {
    /// Unique among the living.
    pub id: SandboxId,
    /// What the zygote itself sees.
    pub root: Root,
    /// Absolute path of the program inside, and its arguments.
    pub command: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The most that the zygote itself may use; its children have limits of their own.
    pub limits: Limits,
}

/// A child of a zygote, in a sandbox of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForkSpec {
    /// Unique among the living.
    pub id: SandboxId,
    /// What the child sees.
    pub root: Root,
    /// Put before the zygote's `sys.path`.
    pub sys_path: Vec<String>,
    /// The whole environment but for `SNOWMELT_CHANNEL_FD`.
    pub env: Vec<(String, String)>,
    /// The most that it may use.
    pub limits: Limits,
    /// The network of its job, made for its zygote; none reaches nothing.
    pub network: Option<NetworkId>,
    /// `package.module:function` or `package.module:object.function`, called with the listening
    /// socket; for a native zygote whatever
    /// its program makes of it.
    pub entry: String,
}

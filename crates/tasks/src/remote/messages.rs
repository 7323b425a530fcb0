//! What control and the agent of another host say to each other about the tasks of a query. Types
//! without behaviour, as JSON in frames.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use snowmelt_api::FileRefs;
use snowmelt_node::{InstanceLimits, Secrets, SharedFile, TreePlace};
use snowmelt_types::{ByteSize, CpuMillis, ErrorReport, HostName, Tenant};
use snowmelt_wire::{Failed, GangTask, Load, SandboxUse, SourceCode, TaskAsk};

/// Where a session is asked for.
pub(crate) const SESSION: &str = "/v1/queries/session";
/// Where a task is started.
pub(crate) const TASKS: &str = "/v1/queries/tasks";
/// Where outputs are read.
pub(crate) const OUTPUTS: &str = "/v1/queries/outputs";
/// Where streams are opened.
pub(crate) const STREAMS: &str = "/v1/queries/streams";

/// Opens the session of a query on a host. The first message of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenQuery {
    /// The query.
    pub query: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// Memory limit of each worker.
    pub memory: ByteSize,
    /// Processor share of each worker.
    pub cpu: CpuMillis,
    /// Microseconds since the query was accepted.
    pub elapsed_us: u64,
    /// The functions that its tasks may call.
    pub udfs: Vec<UdfPart>,
    /// From where the host reads the files of these functions, each content once.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// Where the outputs on control's own host are read. An address without a host means that from
    /// which the session comes.
    pub control: Option<SocketAddr>,
}

/// A function, with what a host needs to prepare it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UdfPart {
    /// Its name in SQL.
    pub name: String,
    /// Its code.
    pub code: SourceCode,
    /// Requirements as pip writes them, as they were pinned.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// The image that it runs in instead of with packages.
    #[serde(default)]
    pub image: Option<ImagePart>,
    /// Files that its instances see, which are among those of the query.
    #[serde(default)]
    pub files: FileRefs,
    /// Values that its instances have.
    #[serde(default)]
    pub secrets: Secrets,
    /// Limits of an instance.
    pub limits: InstanceLimits,
    /// How its code is loaded; the path of the code is the host's own.
    pub load: Load,
    /// The most time for one batch, in milliseconds.
    pub timeout_ms: u64,
}

/// The image of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImagePart {
    /// Its name in a registry, with its digest.
    pub name: String,
    /// Its tree.
    pub tree: String,
    /// The place of the host among those that read it.
    #[serde(default)]
    pub place: Option<TreePlace>,
}

/// The session is open.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueryOpened {
    /// The functions that the host cannot run, with the reason of each.
    pub refused: BTreeMap<String, ErrorReport>,
}

/// A request of control within a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionRequest {
    /// The id of the reply; 0 if none is expected.
    pub id: u64,
    /// What is asked.
    pub ask: SessionAsk,
}

/// The requests within a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionAsk {
    /// Ends an attempt.
    Ended {
        /// Its number.
        attempt: u64,
        /// Why it has no result; `None` if it has one.
        failure: Option<Failed>,
    },
    /// The outputs of these attempts are not read any more. No reply.
    Release {
        /// Their numbers.
        attempts: Vec<u64>,
    },
    /// Nobody waits for the start of this attempt any more. No reply.
    Abandon {
        /// Its number.
        attempt: u64,
    },
    /// Reserves room for tasks of a gang.
    ReserveGang(GangPart),
    /// Connects the tasks of a gang that send from this host. All hosts have reserved room before.
    ConnectGang(GangLinks),
    /// A gang is over. No reply.
    EndGang {
        /// Its number.
        gang: u64,
    },
    /// Asks whether the host is there, and whether what it receives and sends is whole.
    Ping {
        /// Any text.
        text: String,
    },
}

/// A reply to a request of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionReply {
    /// The request's id.
    pub id: u64,
    /// The result.
    pub answer: SessionAnswer,
}

/// The results of requests within a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionAnswer {
    /// The attempt had a result, and its output is kept.
    Ended(TaskEnd),
    /// The attempt had none, for this reason.
    Failed(Failed),
    /// Whether there is room for tasks of a gang.
    GangReserved(PartReserved),
    /// The tasks of a gang that send from this host are connected.
    GangConnected,
    /// They are not.
    GangNotConnected(NotConnected),
    /// The host is there.
    Pong {
        /// The text of the request.
        text: String,
    },
}

/// What a complete attempt used.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TaskEnd {
    /// Its worker.
    pub worker: SandboxUse,
    /// The instances of its functions.
    pub udfs: Vec<SandboxUse>,
    /// What functions wrote since the last attempt that ended, by function.
    pub written: BTreeMap<String, String>,
}

/// Starts an attempt of a task. The first message of its connection; the plan follows as a frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartTask {
    /// The query, which has a session.
    pub query: String,
    /// The number of the attempt, which is unique in the query.
    pub attempt: u64,
    /// The task.
    pub ask: TaskAsk,
    /// Where the outputs are that it reads.
    pub inputs: Vec<InputAt>,
}

/// Where the output of a task is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InputAt {
    /// The task.
    pub task: u32,
    /// The attempt that made it.
    pub attempt: u64,
    /// The host.
    pub at: At,
    /// If several tasks read all of it: how the host copies it, for all of its tasks.
    #[serde(default)]
    pub copied: Option<Copied>,
}

/// A copy of an output on a host that has not made it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// Its number in the query.
    pub number: u64,
    /// From where it is copied; `None` is the host that has made the output, which is also asked if
    /// the parent fails.
    pub parent: Option<ParentCopy>,
}

/// A copy that another one is made of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ParentCopy {
    /// The host.
    pub at: At,
    /// The number of its copy, which is lower than that of its child.
    pub copy: u64,
}

/// A host, seen from the one that runs a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum At {
    /// The same host.
    Here,
    /// Control's own host.
    Control,
    /// Another host.
    Host {
        /// Its name.
        name: HostName,
        /// Where its agent listens.
        address: SocketAddr,
    },
}

/// The first answer to [`StartTask`], at once. After [`TaskPlaced::Placed`] a [`TaskStarted`]
/// follows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskPlaced {
    /// Its room is reserved, and it is being started.
    Placed,
    /// There is no room for it on this host now.
    NoRoom,
    /// This host does not have a file of it, of the same size and time.
    FileMissing {
        /// The file.
        path: String,
    },
    /// It cannot be started.
    Failed(Failed),
}

/// How a start ended. After [`TaskStarted::Started`] the frames of the worker follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStarted {
    /// It runs.
    Started,
    /// It does not.
    Failed(Failed),
}

/// Names the outputs that may be read over a connection. Its first message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadOutputs {
    /// The query.
    pub query: String,
    /// The attempts that made them, in the order in which requests name them.
    pub attempts: Vec<u64>,
    /// If copies of them are read: the number that these have at most. A host whose copy has a higher
    /// number may wait for the one that asks.
    #[serde(default)]
    pub copy: Option<u64>,
}

/// The answer to [`ReadOutputs`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OutputsOpened {
    /// The attempts without an output here. If there are any, the connection is closed.
    pub missing: Vec<u64>,
    /// Otherwise the sizes of all, in the order of the request.
    #[serde(default)]
    pub sizes: Vec<u64>,
}

/// The tasks of a gang on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GangPart {
    /// The number of the gang, which is unique in the query.
    pub gang: u64,
    /// Its tasks there.
    pub tasks: Vec<GangTask>,
}

/// Whether a host has reserved room for its tasks of a gang: for all of them, or none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartReserved {
    /// It has.
    Reserved,
    /// There is no room for all of them now.
    NoRoom,
    /// This host does not have these files of them, of the same size and time.
    FilesMissing {
        /// The files.
        paths: Vec<String>,
    },
}

/// The streams from the tasks of a gang on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GangLinks {
    /// The gang.
    pub gang: u64,
    /// Its tasks that send from this host.
    pub senders: Vec<u32>,
    /// Its tasks that receive, by host.
    pub receivers: Vec<ReceiversAt>,
    /// The buffer of each socket.
    pub buffer_bytes: usize,
}

/// Tasks of a gang on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReceiversAt {
    /// The host.
    pub at: At,
    /// The tasks.
    pub tasks: Vec<u32>,
}

/// Why the tasks of a gang are not connected.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotConnected {
    /// The host with which they could not be; `None` if it is control's, or the same.
    pub host: Option<HostName>,
    /// True if that host cannot be reached.
    pub is_unreachable: bool,
    /// The reason.
    pub why: ErrorReport,
}

/// Opens a stream. The first message of its connection; after the answer, the bytes of the stream
/// follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenStream {
    /// The query.
    pub query: String,
    /// The gang.
    pub gang: u64,
    /// The task that sends, on the host that connects.
    pub sender: u32,
    /// The task that receives, on the other one.
    pub receiver: u32,
    /// The buffer of each socket.
    pub buffer_bytes: usize,
}

/// The answer to [`OpenStream`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StreamOpened {
    /// False if the task is not on this host or does not wait for this stream: the connection is
    /// closed.
    pub is_open: bool,
}

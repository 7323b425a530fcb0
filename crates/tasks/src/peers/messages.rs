//! Messages between control and the agent of another host about the tasks of a query: types without
//! behaviour, sent as JSON in frames.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use snowmelt_api::FileRefs;
use snowmelt_node::{InstanceLimits, Secrets, SharedFile, TreePlace};
use snowmelt_rpc::{Credential, HostTarget, Meant};
use snowmelt_types::{ByteSize, CpuMillis, ErrorReport, HostName, Tenant};
use snowmelt_wire::{GangTask, Load, RequestFailure, SandboxUse, SourceCode, TaskAsk};

use crate::file_rights::FileRights;

/// The path of the request that opens a session.
pub(crate) const SESSION: &str = "/v1/queries/session";
/// The path of the request that starts a task.
pub(crate) const TASKS: &str = "/v1/queries/tasks";
/// The path of the request that reads outputs.
pub(crate) const OUTPUTS: &str = "/v1/queries/outputs";
/// The path of the request that opens a stream.
pub(crate) const STREAMS: &str = "/v1/queries/streams";

/// A request to open the session of a query on a host. The first message of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenQuery {
    /// The name of the query.
    pub query: String,
    /// The tenant that runs the query.
    pub tenant: Tenant,
    /// The rights with which the host opens its copies of files.
    pub rights: FileRights,
    /// The memory limit of each worker.
    pub memory: ByteSize,
    /// The processor share of each worker.
    pub cpu: CpuMillis,
    /// Microseconds since the query was accepted.
    pub elapsed_us: u64,
    /// The functions that the query's tasks may call.
    pub udfs: Vec<UdfPart>,
    /// The hosts from which this host reads the files of the functions, each content once.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// The address at which outputs on control's own host are read; an unspecified IP address
    /// stands for the address from which the session comes. `None` if it is not known.
    pub control: Option<SocketAddr>,
}

/// A function, with all that a host needs to prepare it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UdfPart {
    /// The name of the function in SQL.
    pub name: String,
    /// The code of the function.
    pub code: SourceCode,
    /// The pinned requirements, as pip writes them.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// The image in which the function runs instead of with packages.
    #[serde(default)]
    pub image: Option<ImagePart>,
    /// Files that the function's instances see, which are among those of the query.
    #[serde(default)]
    pub files: FileRefs,
    /// Values of secrets that the function's instances have.
    #[serde(default)]
    pub secrets: Secrets,
    /// The limits of an instance.
    pub limits: InstanceLimits,
    /// The request by which an instance loads the code; the path of the code is the host's own.
    pub load: Load,
    /// The most time for one batch, in milliseconds.
    pub timeout_ms: u64,
}

/// The image of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImagePart {
    /// The name of the image in a registry, with its digest.
    pub name: String,
    /// The name of the tree of hosts that read the image.
    pub tree: String,
    /// The place of the host among those that read the image; none if the host has no place.
    #[serde(default)]
    pub place: Option<TreePlace>,
}

/// The answer that the session is open.
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
    /// The request itself.
    pub ask: SessionAsk,
}

/// The requests within a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionAsk {
    /// Ends an attempt.
    Ended {
        /// The number of the attempt.
        attempt: u64,
        /// The reason why the attempt has no result; `None` if it has one.
        failure: Option<RequestFailure>,
    },
    /// Removes the outputs of these attempts, which are not read any more. No reply.
    Release {
        /// The numbers of the attempts.
        attempts: Vec<u64>,
    },
    /// Gives up the start of an attempt for which nobody waits any more. No reply.
    Abandon {
        /// The number of the attempt.
        attempt: u64,
    },
    /// Reserves room for tasks of a gang.
    ReserveGang(GangPart),
    /// Connects the tasks of a gang that send from this host. All hosts have reserved room before.
    ConnectGang(GangLinks),
    /// Ends a gang that is over. No reply.
    EndGang {
        /// The number of the gang.
        gang: u64,
    },
    /// Asks whether the host is there, and whether data arrive undamaged in both directions.
    Ping {
        /// Any text, which the reply repeats.
        text: String,
    },
}

/// A reply to a request of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionReply {
    /// The id of the request.
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
    /// The attempt had no result, for this reason.
    Failed(RequestFailure),
    /// The result of a request to reserve room for tasks of a gang.
    GangReserved(PartReserved),
    /// The tasks of a gang that send from this host are connected.
    GangConnected,
    /// The tasks of a gang that send from this host are not connected.
    GangNotConnected(NotConnected),
    /// The host is there.
    Pong {
        /// The text of the request.
        text: String,
    },
}

/// The resources that a complete attempt used.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TaskEnd {
    /// The use of the attempt's worker.
    pub worker: SandboxUse,
    /// The use of the instances of its functions.
    pub udfs: Vec<SandboxUse>,
    /// Output that functions wrote since the last attempt that ended, by function.
    pub written: BTreeMap<String, String>,
}

/// A request to start an attempt of a task. The first message of its connection; the plan follows
/// as a frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartTask {
    /// The query, which has a session.
    pub query: String,
    /// The number of the attempt, which is unique in the query.
    pub attempt: u64,
    /// The task.
    pub ask: TaskAsk,
    /// The outputs that the task reads, with their places.
    pub inputs: Vec<InputAt>,
}

/// The place of the output of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InputAt {
    /// The task that made the output.
    pub task: u32,
    /// The attempt that made the output.
    pub attempt: u64,
    /// The host that made the output.
    pub at: RelativeHost,
    /// The copy of the output that the host makes for all of its tasks, if several tasks read all
    /// of it; otherwise none.
    #[serde(default)]
    pub copied: Option<Copied>,
}

/// A copy of an output, on a host that did not make the output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The number of the copy in the query.
    pub number: u64,
    /// The copy from which this copy is made; `None` is the host that made the output, which is
    /// also asked if the parent fails.
    pub parent: Option<ParentCopy>,
}

/// A copy from which another copy is made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ParentCopy {
    /// The host with the copy.
    pub at: RelativeHost,
    /// The number of the copy, which is lower than that of its child.
    pub copy: u64,
}

/// A host, as seen from the host that runs a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RelativeHost {
    /// The host that runs the task.
    Here,
    /// Control's own host.
    Control,
    /// Another host.
    Host {
        /// The name of the host.
        name: HostName,
        /// The address at which the host's agent listens.
        address: SocketAddr,
    },
}

impl RelativeHost {
    /// Returns the process to connect to, as seen from a host whose control is at this address;
    /// `None` if the address is not known.
    pub fn target(
        &self,
        control: Option<SocketAddr>,
        credential: &Credential,
    ) -> Option<HostTarget> {
        let credential = credential.clone();
        match self {
            Self::Here | Self::Control => {
                Some(HostTarget { address: control?, meant: Meant::Control, credential })
            }
            Self::Host { name, address } => {
                let meant = Meant::Host(name.clone());
                Some(HostTarget { address: *address, meant, credential })
            }
        }
    }
}

/// The first answer to [`StartTask`], at once. After [`TaskPlaced::Placed`] a [`TaskStarted`]
/// follows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskPlaced {
    /// The room of the attempt is reserved, and it is being started.
    Placed,
    /// The host has no room for the attempt now.
    NoRoom,
    /// The host does not have a file of the task with the same size and time.
    FileMissing {
        /// The path of the file.
        path: String,
    },
    /// The attempt cannot be started.
    Failed(RequestFailure),
}

/// The second answer to [`StartTask`]. After [`TaskStarted::Started`] the frames of the worker
/// follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStarted {
    /// The attempt runs.
    Started,
    /// The attempt does not run.
    Failed(RequestFailure),
}

/// The outputs that may be read over a connection. The first message of that connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadOutputs {
    /// The name of the query.
    pub query: String,
    /// The attempts that made the outputs, in the order in which requests name them.
    pub attempts: Vec<u64>,
    /// The highest number that the copies may have, if copies are read. A host whose copy has a
    /// higher number may itself wait for the host that sends this request. None if the outputs
    /// themselves are read.
    #[serde(default)]
    pub copy: Option<u64>,
}

/// The answer to [`ReadOutputs`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OutputsOpened {
    /// The attempts without an output here. If there are any, the host closes the connection.
    pub missing: Vec<u64>,
    /// The sizes of all outputs in bytes, in the order of the request, if none is missing.
    #[serde(default)]
    pub sizes: Vec<u64>,
}

/// The tasks of a gang on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GangPart {
    /// The number of the gang, which is unique in the query.
    pub gang: u64,
    /// The gang's tasks on the host.
    pub tasks: Vec<GangTask>,
}

/// The answer of a host that is to reserve room for its tasks of a gang: for all of them, or none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartReserved {
    /// The room of all tasks is reserved.
    Reserved,
    /// The host has no room for all of the tasks now.
    NoRoom,
    /// The host lacks files of the tasks: it has none with the same size and time.
    FilesMissing {
        /// The paths of the files.
        paths: Vec<String>,
    },
}

/// The streams from the tasks of a gang on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GangLinks {
    /// The number of the gang, which is unique in the query.
    pub gang: u64,
    /// The gang's tasks that send from this host.
    pub senders: Vec<u32>,
    /// The gang's tasks that receive, by host.
    pub receivers: Vec<ReceiversAt>,
    /// The size of the buffer of each socket, in bytes.
    pub buffer_bytes: usize,
}

/// The tasks of a gang that receive on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReceiversAt {
    /// The host that runs the tasks.
    pub at: RelativeHost,
    /// The numbers of the tasks.
    pub tasks: Vec<u32>,
}

/// The reason why the tasks of a gang are not connected.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotConnected {
    /// The host that could not be connected; `None` if it is control's host, or the host that
    /// sends.
    pub host: Option<HostName>,
    /// True if that host cannot be reached.
    pub is_unreachable: bool,
    /// The reason.
    pub why: ErrorReport,
}

/// A request to open a stream. The first message of its connection; after the answer, the bytes of
/// the stream follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenStream {
    /// The name of the query.
    pub query: String,
    /// The number of the gang.
    pub gang: u64,
    /// The task that sends, on the host that connects.
    pub sender: u32,
    /// The task that receives, on the other host.
    pub receiver: u32,
    /// The size of the buffer of each socket, in bytes.
    pub buffer_bytes: usize,
}

/// The answer to [`OpenStream`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StreamOpened {
    /// False if the task is not on this host or does not wait for this stream: the connection is
    /// closed.
    pub is_open: bool,
}

//! Requests of control to the agent on a host: parts of jobs, and calls of
//! functions. Types without behaviour.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/code` | [`UploadCode`] | [`CodePresence`] |
//! | `POST /v1/jobs` | [`JobPart`] | [`PartOpen`]: the network is there, every instance is started |
//! | `POST /v1/jobs/{id}/ready` | [`ReadyWithin`] | [`PartReady`]: all hosts answer over the network and the code is loaded; or the hosts that do not answer |
//! | `POST /v1/jobs/{id}/calls` | [`PartCalls`] | 204: the ranks of the part are called; a repeated request does nothing more |
//! | `POST /v1/jobs/{id}/ends` | [`EndsFrom`] | [`PartEnds`]: the ends of ranks from a number on, as soon as there is one |
//! | `POST /v1/jobs/{id}/end` | `ErrorReport` | 204: calls that still run end with this error, and nothing waits for what they sent |
//! | `GET /v1/jobs/{id}/network` | | [`snowmelt_api::PartNetwork`] |
//! | `POST /v1/jobs/{id}/route` | [`RouteTo`] | [`RouteFound`] |
//! | `DELETE /v1/jobs/{id}` | | 204: nothing of the part is left |
//! | `GET /v1/functions` | | list of the digests of functions that are prepared |
//! | `PUT /v1/functions/{digest}` | [`PrepareFunction`] | 204: the host can run calls of the function |
//! | `POST /v1/functions/{digest}/calls` | [`FunctionCall`] | [`FunctionEnd`], or `SM-0711` if the function was not prepared, or `SM-0514` if there is no room at once: then the call has not run |
//! | `DELETE /v1/functions/{digest}` | | 204: idle instances of the function are ended |
//! | `GET /v1/leases` | leaves HTTP | an instance that is leased ([`crate::remote::leases`]) |
//! | `POST /v1/images/places` | [`TreePlace`] | 204: the image or file is read from there from now on |
//! | `GET /v1/images/bytes` | | list of [`HeldImage`] |
//! | `GET /v1/host` | | [`snowmelt_api::HostFacts`] |
//!
//! Every request comes from control, as its certificate shows (without encryption: with the token of
//! the cluster). A part that is called
//! has a lease of [`PartCalls::lease_ms`], which each request for its ends renews: control may lose
//! its connection, or be restarted, and ask again. When the lease expires, the part is closed. A
//! part that is never called is closed after [`JobPart::start_within_ms`]. Errors are `ErrorReport`
//! objects, as problem+json (RFC 9457).

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_api::{Answer, FileRefs};
use snowmelt_network::{Counters, JobSpec, Listener, TracedRoute};
pub use snowmelt_node::{HeldImage, HostRanks, SharedFile};
use snowmelt_node::{InstanceLimits, PackageAt, ProgramRequest, RemovalReason, Secrets, TreePlace};
use snowmelt_types::{Digest, ErrorReport, InvocationId, JobId, Tenant};
use snowmelt_wire::{Mode, OnError, SourceCode};

/// The part of a job that one host runs: its ranks, the code that they load and their network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobPart {
    /// The job.
    pub job: JobId,
    /// The code of the job's function.
    pub function: FunctionCode,
    /// The place of this host among the hosts that read the image of the program or package; none
    /// if the image is in no registry.
    #[serde(default)]
    pub place: Option<TreePlace>,
    /// The hosts from which this host reads the function's files; empty for control's own host,
    /// which has the files.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// Values of the function's secrets.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// The number of ranks of the whole job, one for each call.
    pub size: u32,
    /// The first rank on this host, counted over the whole job from 0.
    pub first: u32,
    /// The number of ranks on this host.
    pub count: u32,
    /// The network of the job on this host; none if its functions do not communicate.
    #[serde(default)]
    pub network: Option<JobSpec>,
    /// The hosts of the network, each with its ranks.
    #[serde(default)]
    pub hosts: Vec<HostRanks>,
    /// The time in milliseconds after which a part without calls is closed.
    pub start_within_ms: u64,
}

/// The code of a function, with all that a host needs to start instances of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCode {
    /// The tenant that owns the code.
    pub tenant: Tenant,
    /// The code; empty for a program, whose files were uploaded before.
    pub code: SourceCode,
    /// The program that runs files; none for Python.
    #[serde(default)]
    pub program: Option<ProgramPart>,
    /// The code package that the function runs from instead of code and packages; each host reads
    /// the package itself.
    #[serde(default)]
    pub packed: Option<PackageAt>,
    /// The name of the callable in the code.
    pub handler: String,
    /// The way in which the callable is called.
    pub mode: Mode,
    /// Requirements as pip writes them.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// Files that the function's instances see, by the names under which they see them.
    #[serde(default, skip_serializing_if = "FileRefs::is_empty")]
    pub files: FileRefs,
    /// A digest that tells the function's secrets apart; their values are sent beside this code.
    /// None without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Digest>,
    /// The way in which a function of SQL takes its batches; none for other functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchForm>,
    /// The resources that each instance may use.
    pub limits: InstanceLimits,
}

/// The way in which a function of SQL takes its batches, as in [`snowmelt_wire::Load`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BatchForm {
    /// The format of the batches.
    pub batch: Option<String>,
    /// The fate of rows on which the function raises an error.
    pub on_error: OnError,
}

/// A request that a host prepares a function, so that calls can name the function by its digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrepareFunction {
    /// The code of the function.
    pub function: FunctionCode,
    /// The place of the host among the hosts that read the function's image; none if the image is
    /// in no registry.
    #[serde(default)]
    pub place: Option<TreePlace>,
    /// The hosts from which this host reads the function's files; empty for control's own host,
    /// which has the files.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// Values of secrets that the function's instances have.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// The number of instances to start and load now.
    #[serde(default)]
    pub start: u32,
    /// The number of instances to keep prewarmed from now on; absent: as many as before.
    #[serde(default)]
    pub prewarmed: Option<u32>,
}

/// A call of a function that was prepared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The identifier that names the call in logs and to the function.
    pub invocation: InvocationId,
    /// The argument of the call, as JSON.
    pub event: Box<RawValue>,
    /// The most time for the call, in milliseconds.
    pub timeout_ms: u64,
}

/// The end of a call of a function: its answer or error, and its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionEnd {
    /// The answer of the call, if it succeeded.
    #[serde(default)]
    pub result: Option<Answer>,
    /// The error of the call, if it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// True if the instance ended together with the call.
    pub instance_ended: bool,
    /// The circumstances in which an instance was started for the call; absent if none was started.
    #[serde(default)]
    pub cold: Option<ColdStart>,
    /// The beginning of the call's output, up to the most that is kept.
    pub log: String,
    /// Bytes of output beyond `log`, which were dropped.
    pub log_dropped: u64,
    /// Instances of the function on the host now, idle ones included.
    pub instances: u32,
}

/// Facts that a host knows about why it had to start an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStart {
    /// Other calls and leases of the function that ran on the host when this call came.
    pub others: u32,
    /// The reason why the last idle instance was removed, if one was removed.
    #[serde(default)]
    pub removed: Option<RemovalReason>,
    /// Bytes that idle instances may have on the host.
    pub budget: u64,
}

/// A program of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramPart {
    /// The digest of the program's files.
    pub files: Digest,
    /// The request that names what runs the files.
    pub request: ProgramRequest,
}

/// A request that asks whether the host has the files of a program, or uploads them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadCode {
    /// The digest of the files.
    pub digest: Digest,
    /// The files; absent if the request only asks whether they are there.
    #[serde(default)]
    pub code: Option<SourceCode>,
}

/// An answer that says whether the files of a program are on the host now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CodePresence {
    /// True if no files have to be uploaded.
    pub there: bool,
}

/// An answer about a part whose instances are started, and have not run any code of the user yet.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PartOpen {
    /// Time that it took to make the network, in microseconds; 0 without a network.
    pub network_us: u64,
    /// Requests to the kernel that made the network; their number does not depend on the number of
    /// functions.
    pub network: Counters,
    /// Time from the request until the last instance was started, in microseconds.
    pub started_us: u64,
}

/// A limit of the time that the hosts of a job may take to answer each other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadyWithin {
    /// The limit, in milliseconds.
    pub within_ms: u64,
}

/// An answer about a part whose instances have loaded their code, unless the part does not reach
/// some hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartReady {
    /// Other hosts of the job that did not answer over its network in time, by their addresses
    /// between hosts. Then nothing was loaded, and nothing of the part is left.
    #[serde(default)]
    pub unreached: Vec<IpAddr>,
    /// Time until all other hosts of the job had answered over its network, in microseconds.
    pub reached_us: u64,
    /// Time until the last instance had loaded its code, in microseconds.
    pub loaded_us: u64,
}

/// The calls of a part: one for each rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartCalls {
    /// The events, one for each rank of the part, in the order of the ranks.
    pub events: Vec<Box<RawValue>>,
    /// The most time for each call, in milliseconds.
    pub timeout_ms: u64,
    /// The time in milliseconds without a request for the part's ends after which the part is
    /// closed.
    pub lease_ms: u64,
}

/// A request for the ends of a part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndsFrom {
    /// The number of ends that the caller knows already.
    pub from: usize,
    /// The time to wait for another end, in milliseconds.
    pub within_ms: u64,
}

/// The ends of a part from a number on, in the order in which they happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartEnds {
    /// Ends that follow those that are known, or none if none came in time.
    #[serde(with = "shared")]
    pub ends: Vec<Arc<RankEnd>>,
    /// True if these are the last, and neither instances nor a network are left.
    pub finished: bool,
}

/// The end of the call of one rank: its answer or error, and its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankEnd {
    /// The rank, counted over the whole job.
    pub rank: u32,
    /// The answer of the call, if it succeeded.
    #[serde(default)]
    pub result: Option<Answer>,
    /// The error of the call, if it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// The beginning of the call's output, up to the most that is kept.
    #[serde(default)]
    pub log: String,
    /// Bytes of output beyond `log`, which were dropped.
    #[serde(default)]
    pub log_dropped: u64,
    /// Time from the call to its end, in microseconds.
    pub wall_us: u64,
}

/// A request for the route of a packet from a host of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RouteTo {
    /// The destination of the packet.
    pub to: IpAddr,
    /// The port at which a process should listen, if that host is this one.
    #[serde(default)]
    pub port: Option<u16>,
    /// The time that another host may take to answer, in milliseconds.
    pub within_ms: u64,
}

/// The route of a packet from a host of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteFound {
    /// The way on which the kernel would send the packet.
    pub route: TracedRoute,
    /// The listeners at the port of the request on this host.
    pub listeners: Vec<Listener>,
}

/// Serializes values that are shared in memory as a plain list.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        shared: &[Arc<T>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(shared.iter().map(|one| &**one))
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<T>>, D::Error> {
        Ok(Vec::<T>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

//! Requests of control to the agent on a host: parts of jobs, and calls of
//! functions. Types without behaviour.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/code` | [`UploadCode`] | [`CodePresence`] |
//! | `POST /v1/jobs` | [`JobPart`] | [`PartOpen`]: the network is there, every instance is started |
//! | `POST /v1/jobs/{id}/ready` | [`ReadyWithin`] | [`PartReady`]: all hosts answer over the network and the code is loaded, or which do not |
//! | `POST /v1/jobs/{id}/calls` | [`PartCalls`] | 204: its ranks are called; again: nothing more happens |
//! | `POST /v1/jobs/{id}/ends` | [`EndsFrom`] | [`PartEnds`]: the ends of ranks from a number on, as soon as there is one |
//! | `POST /v1/jobs/{id}/end` | `ErrorReport` | 204: calls that still run end with this error, and nothing waits for what they sent |
//! | `GET /v1/jobs/{id}/network` | | [`snowmelt_api::PartNetwork`] |
//! | `POST /v1/jobs/{id}/route` | [`RouteTo`] | [`RouteFound`] |
//! | `DELETE /v1/jobs/{id}` | | 204: nothing of the part is left |
//! | `GET /v1/functions` | | list of the digests of functions that are prepared |
//! | `PUT /v1/functions/{digest}` | [`PrepareFunction`] | 204: the host can run calls of it |
//! | `POST /v1/functions/{digest}/calls` | [`FunctionCall`] | [`FunctionEnd`], or `SM-0711` if it was not prepared, or `SM-0514` if there is no room at once: then it has not run |
//! | `DELETE /v1/functions/{digest}` | | 204: its idle instances are ended |
//! | `GET /v1/leases` | leaves HTTP | an instance that is leased ([`crate::remote::leases`]) |
//! | `POST /v1/images/places` | [`TreePlace`] | 204: the image or file is read from there from now on |
//! | `GET /v1/images/bytes` | | list of [`HeldImage`] |
//! | `GET /v1/host` | | [`snowmelt_api::HostFacts`] |
//!
//! Every request carries the token of the cluster (`authorization: Bearer`). A part that is called
//! has a lease of [`PartCalls::lease_ms`], which each request for its ends renews: control may lose
//! its connection, or be restarted, and ask again. When the lease expires, the part is closed. A part
//! that is never called is closed after [`JobPart::start_within_ms`]. Errors are `ErrorReport`
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

/// What one host runs of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobPart {
    /// The job.
    pub job: JobId,
    /// Their code.
    pub function: FunctionCode,
    /// The place of this host among those that read the image of the program or package; none if
    /// that is in no registry.
    #[serde(default)]
    pub place: Option<TreePlace>,
    /// From where the host reads the function's files; empty for control's own host, which has them.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// Values of the function's secrets.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// Functions in the whole job.
    pub size: u32,
    /// The first rank on this host.
    pub first: u32,
    /// Ranks on this host.
    pub count: u32,
    /// The network of the job on this host; none if its functions do not communicate.
    #[serde(default)]
    pub network: Option<JobSpec>,
    /// Which hosts of the network have which ranks.
    #[serde(default)]
    pub hosts: Vec<HostRanks>,
    /// After how long without calls the part is closed, in milliseconds.
    pub start_within_ms: u64,
}

/// The code of a function, with all that a host needs to start instances of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCode {
    /// Whose code it is.
    pub tenant: Tenant,
    /// The code; empty for a program, whose files were uploaded before.
    pub code: SourceCode,
    /// The program that runs files; none for Python.
    #[serde(default)]
    pub program: Option<ProgramPart>,
    /// The code package that it runs from instead of code and packages; each host reads it itself.
    #[serde(default)]
    pub packed: Option<PackageAt>,
    /// The callable in the code.
    pub handler: String,
    /// How it is called.
    pub mode: Mode,
    /// Requirements as pip writes them.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// Files that its instances see, by their names.
    #[serde(default, skip_serializing_if = "FileRefs::is_empty")]
    pub files: FileRefs,
    /// What tells its secrets apart, whose values are sent beside it; none without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Digest>,
    /// How a function of SQL takes its batches; none for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchForm>,
    /// What each instance may use.
    pub limits: InstanceLimits,
}

/// How a function of SQL takes its batches, as in [`snowmelt_wire::Load`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BatchForm {
    /// Their format.
    pub batch: Option<String>,
    /// What becomes of rows on which it raises.
    pub on_error: OnError,
}

/// Has a host prepare a function, so that calls name it by its digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrepareFunction {
    /// Its code.
    pub function: FunctionCode,
    /// The place of the host among those that read its image; none if that is in no registry.
    #[serde(default)]
    pub place: Option<TreePlace>,
    /// From where the host reads the function's files; empty for control's own host, which has them.
    #[serde(default)]
    pub files: Vec<SharedFile>,
    /// Values that its instances have.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// Instances to start and load now.
    #[serde(default)]
    pub start: u32,
    /// Instances to keep prewarmed from now on; absent: as many as before.
    #[serde(default)]
    pub prewarmed: Option<u32>,
}

/// A call of a function that was prepared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Names it in logs and to the function.
    pub invocation: InvocationId,
    /// What it is called with.
    pub event: Box<RawValue>,
    /// The most time for it, in milliseconds.
    pub timeout_ms: u64,
}

/// How a call of a function ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionEnd {
    /// Its answer, if it succeeded.
    #[serde(default)]
    pub result: Option<Answer>,
    /// Its error, if it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// True if its instance ended with it.
    pub instance_ended: bool,
    /// What is known of why an instance was started for it; absent if none was.
    #[serde(default)]
    pub cold: Option<ColdStart>,
    /// What it wrote, as much as is kept.
    pub log: String,
    /// Bytes beyond that, which were dropped.
    pub log_dropped: u64,
    /// Instances of the function on the host now, idle ones included.
    pub instances: u32,
}

/// What a host knows of why it had to start an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStart {
    /// Calls of the function that ran on the host already.
    pub others: u32,
    /// Why the last idle instance was removed, if one was.
    #[serde(default)]
    pub removed: Option<RemovalReason>,
    /// Bytes that idle instances may have on the host.
    pub budget: u64,
}

/// A program of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramPart {
    /// Its files.
    pub files: Digest,
    /// What runs them.
    pub request: ProgramRequest,
}

/// Asks whether the host has the files of a program, or uploads them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadCode {
    /// Their digest.
    pub digest: Digest,
    /// The files; absent: it is only asked.
    #[serde(default)]
    pub code: Option<SourceCode>,
}

/// Whether files are there now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CodePresence {
    /// True if no files have to be uploaded.
    pub there: bool,
}

/// A part whose instances are started and have run nothing of the user's yet.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PartOpen {
    /// What the network took, in microseconds; 0 without one.
    pub network_us: u64,
    /// What was asked of the kernel for it: the same however many functions there are.
    pub network: Counters,
    /// From the request to the last instance that was started, in microseconds.
    pub started_us: u64,
}

/// How long the hosts of a job may take to answer each other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadyWithin {
    /// In milliseconds.
    pub within_ms: u64,
}

/// A part whose instances have loaded their code, unless there are hosts that it does not reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartReady {
    /// Other hosts of the job that did not answer over its network in time, by their addresses
    /// between hosts. Then nothing was loaded, and nothing of the part is left.
    #[serde(default)]
    pub unreached: Vec<IpAddr>,
    /// Until all other hosts of the job had answered over its network, in microseconds.
    pub reached_us: u64,
    /// Until the last instance had loaded its code, in microseconds.
    pub loaded_us: u64,
}

/// The calls of a part: one for each rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartCalls {
    /// One event for each rank of the part, in order.
    pub events: Vec<Box<RawValue>>,
    /// The most time for each call, in milliseconds.
    pub timeout_ms: u64,
    /// After how long without a request for its ends the part is closed, in milliseconds.
    pub lease_ms: u64,
}

/// Asks for the ends of a part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndsFrom {
    /// How many are known already.
    pub from: usize,
    /// How long to wait for another one, in milliseconds.
    pub within_ms: u64,
}

/// The ends of a part from a number on, in the order in which they happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartEnds {
    /// Some of them, or none where none was there in time.
    #[serde(with = "shared")]
    pub ends: Vec<Arc<RankEnd>>,
    /// True if these are the last, and neither instances nor a network are left.
    pub finished: bool,
}

/// How the call of one rank ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankEnd {
    /// Which.
    pub rank: u32,
    /// Its answer, once it succeeded.
    #[serde(default)]
    pub result: Option<Answer>,
    /// Its error, once it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// What it wrote, as much as is kept.
    #[serde(default)]
    pub log: String,
    /// Bytes beyond that, which were dropped.
    #[serde(default)]
    pub log_dropped: u64,
    /// From its call to its end, in microseconds.
    pub wall_us: u64,
}

/// Asks for the route of a packet from a host of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RouteTo {
    /// Where it is to go.
    pub to: IpAddr,
    /// The port at which a process should listen, if that host is this one.
    #[serde(default)]
    pub port: Option<u16>,
    /// How long another host may take to answer, in milliseconds.
    pub within_ms: u64,
}

/// The route of a packet from a host of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteFound {
    /// Where the kernel would send it.
    pub route: TracedRoute,
    /// The listeners at that port on this host.
    pub listeners: Vec<Listener>,
}

/// Values that are shared in memory, as a plain list.
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

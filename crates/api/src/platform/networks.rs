//! The networks of jobs as `snowmelt net` shows them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use snowmelt_network::{AddressEnforcement, Counters, JobSpec, NamespaceContents, Range};
use snowmelt_types::{ErrorReport, FunctionName, HostName, JobId, Tenant};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A job with a network, in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkSummary {
    /// The job.
    pub job: JobId,
    /// The tenant that owns the job.
    pub tenant: Tenant,
    /// The function that the job runs.
    pub function: FunctionName,
    /// The hosts that run a part of the job.
    pub hosts: Vec<HostName>,
    /// The number of functions (ranks) of the job.
    pub functions: u32,
    /// The number of the job's overlay, its VXLAN network identifier.
    pub overlay: u32,
    /// The range of the job's IPv4 addresses. Other jobs may have the same one.
    pub range4: Range,
    /// The range of the job's IPv6 addresses.
    pub range6: Range,
    /// When the job was placed, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A job's network on each of its hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkDetail {
    /// The facts of the job that control knows without asking its hosts.
    #[serde(flatten)]
    pub summary: NetworkSummary,
    /// The parts of the job, one for each host.
    pub parts: Vec<NetworkPart>,
}

/// The part of a job that one host runs, with its network.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkPart {
    /// The host.
    pub host: HostName,
    /// The first rank on the host.
    pub first: u32,
    /// The number of ranks on the host.
    pub count: u32,
    /// The network of the job on the host, as it is now; absent if the host did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PartNetwork>,
    /// The reason why the host's part of the network is not known; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}

/// The network of a job on one host, as the kernel has it now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PartNetwork {
    /// The specification of the network, with the other hosts of the job.
    pub spec: JobSpec,
    /// The number of the network namespace, as `/proc/PID/ns/net` shows it.
    pub namespace: u64,
    /// The name of the network device in the host's own namespace; the other end of the pair is in
    /// the network.
    pub device: String,
    /// The most bytes of a packet to another host (MTU).
    pub mtu: u32,
    /// How functions are restricted to their own addresses.
    pub enforcement: AddressEnforcement,
    /// Requests to the kernel that made the network.
    pub counters: Counters,
    /// Numbers of sockets, routes and neighbours in the namespace.
    pub contents: NamespaceContents,
}

/// Asks for the route of a packet between functions of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The rank of the function that would send the packet.
    pub from: u32,
    /// The target of the packet.
    pub to: TraceTo,
    /// The port of the target at which a function should listen; absent: none is checked.
    #[serde(default)]
    pub port: Option<u16>,
    /// True to trace between the IPv6 addresses of the ranks, false between their IPv4 addresses.
    #[serde(default)]
    pub ipv6: bool,
}

/// The target of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceTo {
    /// A function of the job, by its rank.
    Rank(u32),
    /// An address, of the job or not.
    Address(IpAddr),
}

// By hand, because the derive does not support addresses.
impl PartialSchema for TraceTo {
    fn schema() -> RefOr<Schema> {
        let object = |field: &str, kind| {
            let value = ObjectBuilder::new().schema_type(kind);
            ObjectBuilder::new().property(field, value).required(field)
        };
        let rank = object("rank", Type::Integer);
        let address = object("address", Type::String);
        let either = OneOfBuilder::new().item(rank).item(address);
        Schema::OneOf(either.description(Some("The target of a packet.")).build()).into()
    }
}

impl ToSchema for TraceTo {}

/// The route of a packet, each step asked of the kernel of the host that takes the step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The job.
    pub job: JobId,
    /// The sender of the packet.
    pub from: TracePoint,
    /// The target of the packet.
    pub to: TracePoint,
    /// The port of the target, if the request names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The steps of the route, in the order in which a packet takes them.
    pub steps: Vec<TraceStep>,
    /// Whether a packet arrives: no step fails.
    pub arrives: bool,
}

/// An end of a route.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TracePoint {
    /// The rank of the function at the address; absent if no function of the job has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The host whose part of the job's range contains the address; absent if no part does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
}

/// A step of a route: one check on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// The host on which the check was made.
    pub host: HostName,
    /// The name of the check, such as `sender`, `overlay` or `port 80`.
    pub check: String,
    /// Whether a packet gets past it.
    pub ok: bool,
    /// The result of the check, in words: what is there, or why a packet gets no further.
    pub found: String,
}

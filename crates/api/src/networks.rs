//! The networks of jobs as `snowmelt net` shows them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use snowmelt_network::{AddressEnforcement, Counters, JobSpec, NamespaceContents, Range};
use snowmelt_types::{ErrorReport, FunctionName, HostName, JobId, Tenant};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A job whose functions talk, in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkSummary {
    /// The job.
    pub job: JobId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it runs.
    pub function: FunctionName,
    /// Where.
    pub hosts: Vec<HostName>,
    /// How many functions it has.
    pub functions: u32,
    /// The number of its overlay.
    pub overlay: u32,
    /// Its IPv4 addresses; other jobs may have the same.
    pub range4: Range,
    /// Its IPv6 addresses.
    pub range6: Range,
    /// When it was placed, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A job's network on each of its hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkDetail {
    /// What is known without asking.
    #[serde(flatten)]
    pub summary: NetworkSummary,
    /// A host each.
    pub parts: Vec<NetworkPart>,
}

/// The part of one host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkPart {
    /// The host.
    pub host: HostName,
    /// Its first rank.
    pub first: u32,
    /// How many ranks it has.
    pub count: u32,
    /// What it has of the network now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PartNetwork>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}

/// The network of a job on one host, as the kernel has it now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PartNetwork {
    /// What was asked for, with the other hosts.
    pub spec: JobSpec,
    /// The number of its namespace, as `/proc/PID/ns/net` shows it.
    pub namespace: u64,
    /// Its end of a pair in the host's own namespace.
    pub device: String,
    /// The most bytes of a packet to another host.
    pub mtu: u32,
    /// How functions are restricted to their own addresses.
    pub enforcement: AddressEnforcement,
    /// What was asked of the kernel for it.
    pub counters: Counters,
    /// Sockets, routes and neighbours that are in it.
    pub contents: NamespaceContents,
}

/// Asks for the route of a packet between functions of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The rank that would send it.
    pub from: u32,
    /// Where it would go.
    pub to: TraceTo,
    /// The port at which somebody should listen.
    #[serde(default)]
    pub port: Option<u16>,
    /// Between the IPv6 addresses of the ranks.
    #[serde(default)]
    pub ipv6: bool,
}

/// Where a packet would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceTo {
    /// To a function of the job.
    Rank(u32),
    /// To an address, of the job or not.
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

/// The route of a packet, each step asked of the kernel of the host where it is taken.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The job.
    pub job: JobId,
    /// Who would send it.
    pub from: TracePoint,
    /// Where it would go.
    pub to: TracePoint,
    /// At which port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// In order.
    pub steps: Vec<TraceStep>,
    /// Whether no step fails.
    pub arrives: bool,
}

/// An end of a route.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TracePoint {
    /// The function, if the address is one of a function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The host whose part of the job's range it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
}

/// One step of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// The host on which it was looked at.
    pub host: HostName,
    /// What was looked at.
    pub check: String,
    /// Whether a packet gets past it.
    pub ok: bool,
    /// What is there.
    pub found: String,
}

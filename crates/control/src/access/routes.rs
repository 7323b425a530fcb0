//! The table of routes: which right each one needs, and from where it is reached.
//!
//! Invariant: a route that is not in the table is served to nobody. The table is the same for the
//! socket and for the network.

use axum::http::Method;
use snowmelt_types::Right::{self, Administer, Call, Develop, Look, Operate, Read};

use Reach::{Everywhere, Machine, Operators};

/// From where a route is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From the socket and over the network.
    Everywhere,
    /// From the socket, and over the network by operators.
    Operators,
    /// From the socket only: its request names paths of the machine.
    Machine,
}

/// A route with what it needs.
#[derive(Clone, Debug)]
pub(crate) struct RouteRule {
    pub method: Method,
    pub path: &'static str,
    pub right: Right,
    pub reach: Reach,
    /// Whether each request is a line of the audit: it changes or reads something of value.
    pub is_audited: bool,
}

const fn get(path: &'static str, right: Right, reach: Reach) -> RouteRule {
    RouteRule { method: Method::GET, path, right, reach, is_audited: false }
}

/// A route that reads something of value.
const fn read(path: &'static str, right: Right, reach: Reach) -> RouteRule {
    RouteRule { method: Method::GET, path, right, reach, is_audited: true }
}

const fn post(path: &'static str, right: Right, reach: Reach) -> RouteRule {
    RouteRule { method: Method::POST, path, right, reach, is_audited: true }
}

const fn delete(path: &'static str, right: Right, reach: Reach) -> RouteRule {
    RouteRule { method: Method::DELETE, path, right, reach, is_audited: true }
}

#[cfg(test)]
/// Routes that need neither a key nor a right: load balancers have none, and who logs in has none yet.
pub(crate) const OPEN: [&str; 3] = ["/healthz", "/readyz", "/v1/login"];

/// All other routes.
pub(crate) static RULES: [RouteRule; 59] = [
    get("/openapi.json", Look, Everywhere),
    get("/v1/functions", Look, Everywhere),
    post("/v1/functions", Develop, Everywhere),
    get("/v1/functions/{name}", Look, Everywhere),
    delete("/v1/functions/{name}", Develop, Everywhere),
    post("/v1/functions/{name}/invocations", Call, Everywhere),
    post("/v1/functions/{name}/batches", Call, Everywhere),
    post("/v1/functions/{name}/bursts", Call, Everywhere),
    read("/v1/functions/{name}/logs", Read, Everywhere),
    read("/v1/invocations/{id}", Look, Everywhere),
    post("/v1/wheels/{file}", Develop, Everywhere),
    // It sends packages to registries, with the logins of the server's user.
    post("/v1/packages", Develop, Machine),
    get("/v1/udfs", Look, Everywhere),
    post("/v1/udfs", Develop, Everywhere),
    get("/v1/udfs/{name}", Look, Everywhere),
    delete("/v1/udfs/{name}", Develop, Everywhere),
    read("/v1/udfs/{name}/log", Read, Everywhere),
    post("/v1/files", Develop, Everywhere),
    post("/v1/files/{digest}", Develop, Everywhere),
    // A lease of code that the request brings needs the right to bring code as well.
    read("/v1/leases", Call, Everywhere),
    // Its locations are paths of the machine.
    post("/v1/queries", Develop, Everywhere),
    get("/v1/bursts", Look, Everywhere),
    post("/v1/bursts", Develop, Everywhere),
    get("/v1/bursts/{job}", Look, Everywhere),
    delete("/v1/bursts/{job}", Develop, Everywhere),
    read("/v1/bursts/{job}/answer", Look, Everywhere),
    get("/v1/networks", Look, Everywhere),
    get("/v1/networks/{job}", Look, Everywhere),
    post("/v1/networks/{job}/trace", Read, Everywhere),
    get("/metrics", Read, Everywhere),
    post("/v1/prunings", Develop, Everywhere),
    read("/v1/keys", Administer, Everywhere),
    post("/v1/keys", Administer, Everywhere),
    delete("/v1/keys/{id}", Administer, Everywhere),
    post("/v1/keys/{id}/rotations", Administer, Everywhere),
    get("/v1/quotas", Look, Everywhere),
    post("/v1/quotas", Operate, Operators),
    delete("/v1/quotas", Operate, Operators),
    get("/v1/status", Read, Everywhere),
    get("/v1/figures", Read, Everywhere),
    get("/v1/trees", Look, Everywhere),
    // How full each host is says how much others do.
    get("/v1/hosts", Operate, Operators),
    delete("/v1/hosts/{host}", Operate, Operators),
    post("/v1/join-tokens", Operate, Operators),
    post("/v1/hosts/{host}/drain", Operate, Operators),
    delete("/v1/hosts/{host}/drain", Operate, Operators),
    post("/v1/shutdown", Operate, Operators),
    post("/v1/backups", Operate, Operators),
    get("/v1/images", Look, Everywhere),
    get("/v1/images/key", Look, Everywhere),
    post("/v1/images/details", Look, Everywhere),
    post("/v1/images/conversions", Develop, Everywhere),
    // Registries are reached from the machine's network, which belongs to the operator.
    post("/v1/images/pulls", Develop, Operators),
    post("/v1/images/pushes", Develop, Operators),
    post("/v1/images/prefetches", Develop, Operators),
    post("/v1/images/verifications", Develop, Everywhere),
    post("/v1/images/comparisons", Develop, Everywhere),
    post("/v1/images/prunings", Develop, Everywhere),
    delete("/v1/images/{image}", Develop, Everywhere),
];

/// Returns the routes of a path.
pub(crate) fn of_path(path: &str) -> impl Iterator<Item = &'static RouteRule> {
    RULES.iter().filter(move |rule| rule.path == path)
}

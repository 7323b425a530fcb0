//! The routes, each with a valid request and its answer.

use Takes::{Bytes as AnyBytes, Json, MayJson, Nothing, Stream};

/// The body that a route takes.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::gateway) enum Takes {
    Nothing,
    /// JSON, with a valid example.
    Json(&'static str),
    /// JSON, or no body at all.
    MayJson,
    Bytes,
    /// Bytes without a bound.
    Stream,
}

/// A route, and its answer to a valid request while nothing is deployed and nothing runs: the
/// status and, of an error, the code. None: it would start a sandbox or install packages.
pub(in crate::gateway) struct RouteCase {
    pub method: &'static str,
    pub path: &'static str,
    pub takes: Takes,
    pub answer: Option<(u16, &'static str)>,
}

const fn route(
    method: &'static str,
    path: &'static str,
    takes: Takes,
    answer: Option<(u16, &'static str)>,
) -> RouteCase {
    RouteCase { method, path, takes, answer }
}

const OK: Option<(u16, &str)> = Some((200, ""));
const NO_FUNCTION: Option<(u16, &str)> = Some((404, "SM-0220"));
const NO_INVOCATION: Option<(u16, &str)> = Some((404, "SM-0223"));
const NO_BURST: Option<(u16, &str)> = Some((404, "SM-0707"));
const NO_KEY: Option<(u16, &str)> = Some((404, "SM-0519"));
const NO_HOST: Option<(u16, &str)> = Some((404, "SM-0713"));
const NO_NETWORK: Option<(u16, &str)> = Some((404, "SM-0605"));

pub(super) const QUERY: &str = r#"{"sql": "select 1", "working_folder": "/"}"#;
pub(super) const DEPLOY: &str =
    r#"{"name": "f", "code": {"kind": "source", "file": "f.py", "text": ""}}"#;
pub(super) const BURST: &str = r#"{"function": {"name": "f", "code": {"kind": "source", "file": "f.py", "text": ""}}, "events": []}"#;

const REGISTER: &str = r#"{"source": {"code": {"kind": "source", "file": "f.py", "text": ""}}}"#;
const NO_IMAGE: Option<(u16, &str)> = Some((422, "SM-1003"));
const IMAGE: &str = r#"{"image": "nothing:v1"}"#;
pub(super) const PULL: &str = r#"{"from": "registry.example/a", "name": "a"}"#;
const PUSH: &str = r#"{"name": "nothing:v1", "to": "registry.example/a"}"#;
const COMPARE: &str = r#"{"first": "nothing:v1", "second": "nothing:v2"}"#;

pub(in crate::gateway) const ROUTES: [RouteCase; 62] = [
    route("get", "/healthz", Nothing, OK),
    route("get", "/readyz", Nothing, OK),
    route("get", "/v1/login", Nothing, OK),
    route("get", "/v1/status", Nothing, OK),
    route("get", "/v1/figures", Nothing, OK),
    route("get", "/metrics", Nothing, OK),
    route("get", "/openapi.json", Nothing, OK),
    route("post", "/v1/shutdown", MayJson, Some((202, ""))),
    route("post", "/v1/backups", Nothing, Some((201, ""))),
    route("post", "/v1/prunings", Json(r#"{"dry_run": true}"#), OK),
    route("post", "/v1/queries", Json(QUERY), None),
    route("get", "/v1/udfs", Nothing, OK),
    route("post", "/v1/udfs", Json(REGISTER), None),
    route("get", "/v1/udfs/{name}", Nothing, NO_FUNCTION),
    route("delete", "/v1/udfs/{name}", Nothing, NO_FUNCTION),
    route("get", "/v1/udfs/{name}/log", Nothing, NO_FUNCTION),
    route("post", "/v1/files", Json(r#"{"digests": []}"#), OK),
    route("post", "/v1/files/{digest}", Stream, Some((422, "SM-0230"))),
    // The request does not ask for another protocol than HTTP.
    route("get", "/v1/leases", Nothing, Some((426, "SM-0507"))),
    route("get", "/v1/functions", Nothing, OK),
    route("post", "/v1/functions", Json(DEPLOY), None),
    route("post", "/v1/packages", Json(DEPLOY), None),
    route("post", "/v1/wheels/{file}", AnyBytes, None),
    route("get", "/v1/functions/{name}", Nothing, NO_FUNCTION),
    route("delete", "/v1/functions/{name}", Nothing, NO_FUNCTION),
    route("post", "/v1/functions/{name}/invocations", Json(r#"{"event": 1}"#), NO_FUNCTION),
    route("post", "/v1/functions/{name}/batches", Json(r#"{"events": [1]}"#), NO_FUNCTION),
    route("post", "/v1/functions/{name}/bursts", Json(r#"{"events": [1]}"#), NO_FUNCTION),
    route("get", "/v1/functions/{name}/logs", Nothing, NO_FUNCTION),
    route("get", "/v1/invocations/{id}", Nothing, NO_INVOCATION),
    route("post", "/v1/bursts", Json(BURST), None),
    route("get", "/v1/bursts", Nothing, OK),
    route("get", "/v1/bursts/{job}", Nothing, NO_BURST),
    route("delete", "/v1/bursts/{job}", Nothing, NO_BURST),
    route("get", "/v1/bursts/{job}/answer", Nothing, NO_BURST),
    route("get", "/v1/keys", Nothing, OK),
    // Nothing acts for the tenant of root but operators.
    route("post", "/v1/keys", Json(r#"{"role": "operator"}"#), Some((201, ""))),
    route("delete", "/v1/keys/{id}", Nothing, NO_KEY),
    route("post", "/v1/keys/{id}/rotations", MayJson, NO_KEY),
    route("get", "/v1/quotas", Nothing, OK),
    route("post", "/v1/quotas", Json(r#"{"limits": {"calls": {"at_most": 1000}}}"#), OK),
    route("delete", "/v1/quotas", Nothing, Some((204, ""))),
    route("get", "/v1/hosts", Nothing, OK),
    route("delete", "/v1/hosts/{host}", Nothing, Some((400, "SM-0110"))),
    route("post", "/v1/join-tokens", Json("{}"), Some((400, "SM-0110"))),
    route("post", "/v1/hosts/{host}/drain", Nothing, NO_HOST),
    route("delete", "/v1/hosts/{host}/drain", Nothing, NO_HOST),
    route("get", "/v1/trees", Nothing, OK),
    route("get", "/v1/networks", Nothing, OK),
    route("get", "/v1/networks/{job}", Nothing, NO_NETWORK),
    route(
        "post",
        "/v1/networks/{job}/trace",
        Json(r#"{"from": 0, "to": {"rank": 1}}"#),
        NO_NETWORK,
    ),
    route("get", "/v1/images", Nothing, OK),
    route("delete", "/v1/images/{image}", Nothing, NO_IMAGE),
    route("get", "/v1/images/key", Nothing, OK),
    route("post", "/v1/images/details", Json(IMAGE), NO_IMAGE),
    route("post", "/v1/images/conversions", Stream, Some((400, "SM-0110"))),
    route("post", "/v1/images/pulls", Json(PULL), None),
    // The last line of their answers is the failure.
    route("post", "/v1/images/pushes", Json(PUSH), OK),
    route("post", "/v1/images/prefetches", Json(IMAGE), OK),
    route("post", "/v1/images/verifications", Json(IMAGE), OK),
    route("post", "/v1/images/comparisons", Json(COMPARE), OK),
    route("post", "/v1/images/prunings", Json(r#"{"dry_run": true}"#), OK),
];

impl RouteCase {
    /// The path with names that nothing has.
    pub fn url(&self) -> String {
        self.named("nothing")
    }

    pub fn named(&self, name: &str) -> String {
        let path = self.path.replace("{file}", "nothing-1.0-py3-none-any.whl");
        ["{name}", "{id}", "{job}", "{image}", "{digest}", "{host}"]
            .iter()
            .fold(path, |path, place| path.replace(place, name))
    }

    pub fn body(&self) -> &'static str {
        if let Json(valid) = self.takes { valid } else { "" }
    }

    pub fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

//! Each route of the gateway, over the real router in this process: what it refuses, for whom, and
//! with which status and code. What a route does in sandboxes is tested in `tests/e2e`.
//!
//! Invariant: [`routes::ROUTES`] has every route of the router and of the OpenAPI document.

mod access;
mod limits;
mod network;
pub(super) mod routes;
mod tenants;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use snowmelt_api::{
    BurstRequest, FunctionSpec, PackRequest, PullRequest, QueryRequest, TENANT_HEADER,
};
use snowmelt_rpc::Peer;
use snowmelt_rpc::body::MAX_REQUEST_BYTES;
use snowmelt_types::Code;
use tower_service::Service;

use routes::Takes::{Json, MayJson, Nothing, Stream};
use routes::{BURST, DEPLOY, PULL, QUERY, ROUTES};

use super::Door;
use crate::access::routes::OPEN;
use crate::platform::rig::{IdlePlatform, idle_platform, spec};
use crate::state::records::FunctionRecord;

/// Neither root nor the user of the tests.
fn member() -> Peer {
    Peer::User(rustix::process::geteuid().as_raw() + 4321)
}

struct Gateway {
    router: Router,
    idle: Arc<IdlePlatform>,
}

/// A status, the headers, and the body.
struct Answered {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answered {
    /// The code of a problem document; empty if it is none.
    fn code(&self) -> String {
        let kind = self.headers.get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return String::new();
        }
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        problem["code"].as_str().unwrap().to_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is(&self, status: u16, code: &str, what: &str) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!((self.status, &*self.code()), (status, code), "{what}: {text}");
    }
}

impl Gateway {
    async fn new() -> Self {
        let idle = Arc::new(idle_platform().await);
        Self { router: super::router(Arc::clone(&idle.platform), Door::Socket), idle }
    }

    /// The answer to a request of a user, with a header unless that is empty.
    async fn send(
        &self,
        peer: Peer,
        method: &str,
        url: &str,
        header: &str,
        value: &str,
        body: &str,
    ) -> Answered {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let mut request = Request::builder().method(method).uri(url).extension(peer);
        if !header.is_empty() {
            request = request.header(header, value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.clone().call(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answered { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// A request of root.
    async fn root(&self, method: &str, url: &str, body: &str) -> Answered {
        self.send(Peer::User(0), method, url, "", "", body).await
    }
}

#[test]
fn the_examples_that_are_not_sent_are_valid() {
    serde_json::from_str::<QueryRequest>(QUERY).unwrap();
    serde_json::from_str::<FunctionSpec>(DEPLOY).unwrap();
    serde_json::from_str::<PackRequest>(DEPLOY).unwrap();
    serde_json::from_str::<BurstRequest>(BURST).unwrap();
    serde_json::from_str::<PullRequest>(PULL).unwrap();
}

#[tokio::test]
async fn each_route_answers_a_valid_request() {
    let gateway = Gateway::new().await;
    for route in &ROUTES {
        let Some((status, code)) = route.answer else { continue };
        let answered = gateway.root(route.method, &route.url(), route.body()).await;
        answered.is(status, code, &route.shown());
    }
    assert!(gateway.idle.platform.shutdown.is_cancelled());
}

#[tokio::test]
async fn a_name_that_no_function_can_have_is_refused() {
    let gateway = Gateway::new().await;
    for route in ROUTES.iter().filter(|route| route.path.contains("{name}")) {
        let url = route.named("not%20a%20name");
        let answered = gateway.root(route.method, &url, route.body()).await;
        answered.is(400, Code::FUNCTION_NAME.code, &route.shown());
    }
}

#[tokio::test]
async fn trees_are_those_of_a_function_or_of_images() {
    let gateway = Gateway::new().await;
    let tenant = "acme".parse().unwrap();
    let deployed_ms = 1;
    let files = None;
    let packed = None;
    let record = FunctionRecord { tenant, spec: spec(""), deployed_ms, files, packed };
    gateway.idle.records.put_function(&record).await.unwrap();
    let asked = async |of: &str, tenant: &str| {
        let url = format!("/v1/trees?of={of}");
        gateway.send(Peer::User(0), "get", &url, TENANT_HEADER, tenant, "").await
    };
    asked("f", "acme").await.is(200, "", "it has no image and no files");
    asked("f", "default").await.is(404, Code::FUNCTION_MISSING.code, "of another tenant");
    asked("registry.example/app:v1", "acme").await.is(200, "", "an image");
    gateway.root("get", "/v1/trees?off=f", "").await.is(400, Code::OPTION.code, "no such word");
}

#[tokio::test]
async fn a_body_that_is_not_valid_is_refused() {
    let gateway = Gateway::new().await;
    for route in ROUTES.iter().filter(|route| matches!(route.takes, Json(_) | MayJson)) {
        for body in ["", "{", "[]", "1", r#"{"no such field": 1}"#] {
            // All its fields are optional, so nothing and an empty list are valid too.
            if route.takes == MayJson && ["", "[]"].contains(&body) {
                continue;
            }
            let answered = gateway.root(route.method, &route.url(), body).await;
            answered.is(400, Code::OPTION.code, &format!("{} with `{body}`", route.shown()));
        }
    }
    assert!(!gateway.idle.platform.shutdown.is_cancelled());
}

#[tokio::test]
async fn a_question_that_is_not_valid_is_refused() {
    let gateway = Gateway::new().await;
    let answered = gateway.root("get", "/v1/functions/f/logs?tail=many", "").await;
    answered.is(400, Code::OPTION.code, "tail=many");
}

#[tokio::test]
async fn a_longer_request_than_may_be_is_refused_before_its_body_is_sent() {
    let gateway = Gateway::new().await;
    let length = (MAX_REQUEST_BYTES + 1).to_string();
    for route in ROUTES.iter().filter(|route| !matches!(route.takes, Nothing | Stream)) {
        let root = Peer::User(0);
        let url = route.url();
        let sent = gateway.send(root, route.method, &url, "content-length", &length, "");
        let answered = sent.await;
        answered.is(413, Code::REQUEST_SIZE.code, &route.shown());
    }
}

#[tokio::test]
async fn only_root_may_name_the_tenant_of_others() {
    let gateway = Gateway::new().await;
    for route in ROUTES.iter().filter(|route| !OPEN.contains(&route.path)) {
        let url = route.url();
        let sent = async |peer: Peer, tenant: &str| {
            gateway.send(peer, route.method, &url, TENANT_HEADER, tenant, route.body()).await
        };
        let refused = sent(member(), "acme").await;
        refused.is(403, Code::TENANT_REFUSED.code, &route.shown());
        let refused = sent(Peer::User(0), "../acme").await;
        refused.is(400, Code::OPTION.code, &route.shown());
        // Which keys there may be depends on the tenant.
        let is_same = route.shown() != "post /v1/keys";
        if let Some((status, code)) = route.answer.filter(|_| is_same) {
            let answered = sent(Peer::User(0), "acme").await;
            answered.is(status, code, &route.shown());
        }
    }
}

#[tokio::test]
async fn a_body_with_another_tenant_than_the_request_is_refused() {
    let gateway = Gateway::new().await;
    let spec = FunctionSpec { tenant: Some("acme".parse().unwrap()), ..spec("") };
    let spec = serde_json::to_value(&spec).unwrap();
    for (url, body) in [
        ("/v1/queries", json!({"sql": "select 1", "working_folder": "/", "tenant": "acme"})),
        ("/v1/functions", spec.clone()),
        ("/v1/bursts", json!({"function": spec, "events": [1]})),
    ] {
        let answered = gateway.root("post", url, &body.to_string()).await;
        answered.is(403, Code::TENANT_REFUSED.code, url);
    }
}

#[tokio::test]
async fn a_function_is_there_for_its_tenant_only() {
    let gateway = Gateway::new().await;
    let tenant = "acme".parse().unwrap();
    let deployed_ms = 1;
    let files = None;
    let packed = None;
    let record = FunctionRecord { tenant, spec: spec(""), deployed_ms, files, packed };
    gateway.idle.records.put_function(&record).await.unwrap();
    for peer in [member(), Peer::User(0)] {
        for route in ROUTES.iter().filter(|route| route.path.contains("{name}")) {
            let url = route.named("f");
            let answered = gateway.send(peer, route.method, &url, "", "", route.body()).await;
            answered.is(404, Code::FUNCTION_MISSING.code, &route.shown());
        }
        let listed = gateway.send(peer, "get", "/v1/functions", "", "", "").await;
        assert_eq!(listed.json(), json!([]));
    }
    let acting = async |method, url| {
        gateway.send(Peer::User(0), method, url, TENANT_HEADER, "acme", "").await
    };
    let listed = acting("get", "/v1/functions").await;
    assert_eq!(listed.json()[0]["name"], "f");
    for (method, url, status) in [
        ("get", "/v1/functions/f", 200),
        ("get", "/v1/functions/f/logs", 200),
        ("delete", "/v1/functions/f", 204),
        ("get", "/v1/functions/f", 404),
    ] {
        let answered = acting(method, url).await;
        assert_eq!(answered.status, status, "{method} {url}");
    }
}

#[tokio::test]
async fn tenants_remove_their_images_and_operators_the_blocks_of_all() {
    let gateway = Gateway::new().await;
    let url = "/v1/images/prunings";
    let blocks = r#"{"dry_run": true, "blocks": true}"#;
    let refused = gateway.send(member(), "post", url, "", "", blocks).await;
    refused.is(403, Code::RIGHT_MISSING.code, "the cache is one for all");
    let dry = r#"{"dry_run": true}"#;
    gateway.send(member(), "post", url, "", "", dry).await.is(200, "", url);
    let removed = gateway.send(member(), "delete", "/v1/images/nothing", "", "", "").await;
    removed.is(422, Code::IMAGE_MISSING.code, "it has none");
    let listed = gateway.send(member(), "get", "/v1/images", "", "", "").await;
    assert_eq!(listed.json(), json!([]));
}

#[tokio::test]
async fn only_operators_drain_hosts_and_a_drained_one_is_written_down() {
    let gateway = Gateway::new().await;
    let url = "/v1/hosts/this-host/drain";
    let state = async || gateway.root("get", "/v1/hosts", "").await.json()[0]["state"].clone();
    for method in ["post", "delete"] {
        let refused = gateway.send(member(), method, url, "", "", "").await;
        refused.is(403, Code::RIGHT_MISSING.code, url);
    }
    assert_eq!(state().await, "active");
    let records = gateway.idle.platform.functions.records();
    for _ in 0..2 {
        gateway.root("post", url, "").await.is(204, "", url);
        assert_eq!(state().await, "drained");
        assert_eq!(records.drained().await.unwrap(), ["this-host".parse().unwrap()]);
    }
    assert!(gateway.idle.platform.hosts.open().is_empty());
    gateway.root("delete", url, "").await.is(204, "", url);
    assert_eq!(state().await, "active");
    assert!(records.drained().await.unwrap().is_empty());
    assert_eq!(gateway.idle.platform.hosts.open().len(), 1);
}

#[tokio::test]
async fn a_request_without_the_user_of_its_connection_is_refused() {
    let gateway = Gateway::new().await;
    let mut router = gateway.router.clone();
    let request = Request::builder().uri("/v1/status").body(Body::empty()).unwrap();
    let answer = router.call(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn a_path_refuses_other_methods_than_its_own() {
    let gateway = Gateway::new().await;
    for route in &ROUTES {
        let own = ROUTES.iter().filter(|other| other.path == route.path);
        let own: BTreeSet<_> = own.map(|route| route.method).collect();
        for method in ["get", "post", "put", "patch", "delete"] {
            if own.contains(method) {
                continue;
            }
            let answered = gateway.root(method, &route.url(), "").await;
            answered.is(405, Code::REQUEST_UNKNOWN.code, &format!("{method} {}", route.path));
            if OPEN.contains(&route.path) {
                continue;
            }
            let allowed = answered.headers[header::ALLOW].to_str().unwrap().to_lowercase();
            assert!(own.iter().all(|method| allowed.contains(method)), "{allowed} {own:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_refused() {
    let gateway = Gateway::new().await;
    for url in ["/", "/v1", "/v1/", "/v1/function", "/v2/status", "/v1/functions/f/other"] {
        for method in ["get", "post", "delete"] {
            let answered = gateway.root(method, url, "").await;
            answered.is(404, Code::REQUEST_UNKNOWN.code, url);
        }
    }
}

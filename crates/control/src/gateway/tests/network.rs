//! The gateway as clients on other hosts have it, each of which sends a token.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use http::header;
use http_body_util::BodyExt;
use snowmelt_api::TENANT_HEADER;
use snowmelt_rpc::Peer;
use snowmelt_types::{Code, Role, Tenant};
use tower_service::Service;

use crate::access::key::KeyLife;
use crate::access::routes::RULES;
use crate::access::tokens::{self, Tokens};
use crate::gateway::entry::UntilOver;
use crate::gateway::{Door, router};
use crate::platform::rig::{IdlePlatform, idle_platform, spec};
use crate::state::records::tests::call as ended_call;
use crate::state::records::{FunctionRecord, InvocationRecord};

/// A gateway as clients on other hosts have it, with a developer's token of the tenant `acme`.
pub(super) struct RemoteGateway {
    router: Router,
    token: String,
    pub idle: Arc<IdlePlatform>,
    folder: tempfile::TempDir,
}

fn add(folder: &Path, role: Role) -> String {
    let tenant = if role == Role::Operator { "default" } else { "acme" };
    tokens::add(&folder.join("tokens"), &tenant.parse().unwrap(), role, None, None).unwrap()
}

impl RemoteGateway {
    pub async fn new() -> Self {
        Self::over(idle_platform().await)
    }

    pub fn over(idle: impl Into<Arc<IdlePlatform>>) -> Self {
        let idle = idle.into();
        let folder = tempfile::tempdir().unwrap();
        let token = add(folder.path(), Role::Developer);
        let tokens = Arc::new(Tokens::open(&folder.path().join("tokens"), false, None).unwrap());
        let router = router(Arc::clone(&idle.platform), Door::Network(tokens, Arc::default()));
        Self { router, token, idle, folder }
    }

    /// A token of the tenant `acme` with a role, or of an operator.
    pub fn token(&self, role: Role) -> String {
        add(self.folder.path(), role)
    }

    /// The status and the code of an answer, and its text. The request has a header unless
    /// that is empty.
    pub async fn send(
        &self,
        method: &str,
        url: &str,
        token: Option<&str>,
        header: &str,
        value: &str,
        body: &str,
    ) -> (u16, String, String) {
        let method = method.to_uppercase();
        let mut request = Request::builder().method(&*method).uri(url).extension(Peer::Remote);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if !header.is_empty() {
            request = request.header(header, value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.clone().call(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or_default().to_owned();
        (status, code, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test]
async fn no_request_is_served_without_a_valid_token() {
    let remote = RemoteGateway::new().await;
    let rules = RULES.iter().map(|rule| (rule.method.as_str(), rule.path));
    for (method, path) in rules.chain([("get", "/nothing")]) {
        for token in [None, Some(""), Some("snowmelt-0")] {
            let (status, code, text) = remote.send(method, path, token, "", "", "").await;
            assert_eq!((status, &*code), (401, Code::TOKEN_REFUSED.code), "{path} {text}");
            assert!(!text.contains("snowmelt-0"), "{text}");
        }
    }
}

/// An error of the disk has the path of the file.
#[tokio::test]
async fn errors_have_no_paths_of_this_machine() {
    let remote = RemoteGateway::new().await;
    let folder = remote.idle.state_dir();
    // No folder of files can be made in its place.
    std::fs::write(folder.join("files"), "").unwrap();
    let path = format!("/v1/files/{}", "0".repeat(64));
    let sent = remote.send("post", &path, Some(&remote.token), "", "", "content").await;
    let (status, code, text) = sent;
    assert_eq!((status, &*code), (503, Code::STATE.code), "{text}");
    assert!(text.contains("a file of the platform"), "{text}");
    assert!(!text.contains(folder.to_str().unwrap()), "{text}");
}

#[tokio::test]
async fn metrics_are_those_of_the_tenant_alone() {
    let remote = RemoteGateway::new().await;
    let platform = &remote.idle.platform;
    for tenant in ["acme".parse().unwrap(), Tenant::default()] {
        let second = std::time::Duration::from_secs(1);
        platform.functions.durations().record(&tenant, "score", "succeeded", second);
    }
    let shown = remote.send("get", "/metrics", Some(&remote.token), "", "", "").await;
    let (status, _, text) = shown;
    let labels = "tenant=\"acme\",function=\"score\",by=\"call\",outcome=\"succeeded\"";
    let count = format!("snowmelt_call_seconds_count{{{labels}}} 1\n");
    assert!(status == 200 && text.contains(&count), "{status} {text}");
    assert!(!text.contains("default") && !text.contains("snowmelt_memory_bytes"), "{text}");
}

/// Whatever of another tenant may go as well.
#[tokio::test]
async fn a_token_prunes_its_tenant_only() {
    let remote = RemoteGateway::new().await;
    let records = &remote.idle.records;
    let own: Tenant = "acme".parse().unwrap();
    let other: Tenant = "other".parse().unwrap();
    let ours = ended_call("f", "1");
    let theirs = ended_call("f", "2");
    records.end(&own, &ours, u64::MAX).await.unwrap();
    records.end(&other, &theirs, u64::MAX).await.unwrap();
    let request = r#"{"dry_run": false, "results": true}"#;
    let url = "/v1/prunings";
    let token = Some(&*remote.token);
    let (status, _, text) = remote.send("post", url, token, "", "", request).await;
    let parts: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let shown: Vec<_> =
        parts.iter().map(|part| (part["name"].as_str(), part["items"].as_u64())).collect();
    let expected = [("versions", 0), ("results", 1), ("files", 0)];
    assert_eq!((status, shown), (200, expected.map(|(name, n)| (Some(name), Some(n))).into()));
    let has = async |tenant: &Tenant, call: &InvocationRecord| {
        records.invocation(tenant, &call.invocation.id).await.unwrap().is_some()
    };
    assert!(!has(&own, &ours).await && has(&other, &theirs).await);
}

#[tokio::test]
async fn a_token_acts_for_its_tenant_only() {
    let remote = RemoteGateway::new().await;
    for tenant in ["acme".parse().unwrap(), Tenant::default()] {
        let deployed_ms = 1;
        let files = None;
        let packed = None;
        let record = FunctionRecord { tenant, spec: spec(""), deployed_ms, files, packed };
        remote.idle.records.put_function(&record).await.unwrap();
    }
    let url = "/v1/functions";
    let token = Some(&*remote.token);
    for (header, value) in [("", ""), (TENANT_HEADER, "acme")] {
        let (status, _, text) = remote.send("get", url, token, header, value, "").await;
        let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, listed.as_array().unwrap().len()), (200, 1), "{text}");
        assert_eq!(listed[0]["tenant"], "acme");
    }
    for other in ["default", "uid-0", "other"] {
        let sent = remote.send("get", url, token, TENANT_HEADER, other, "").await;
        let (status, code, _) = sent;
        assert_eq!((status, &*code), (403, Code::TENANT_REFUSED.code), "{other}");
    }
}

#[tokio::test]
async fn an_operators_token_acts_for_any_tenant() {
    let remote = RemoteGateway::new().await;
    let operator = remote.token(Role::Operator);
    let tenant: Tenant = "other".parse().unwrap();
    let record =
        FunctionRecord { tenant, spec: spec(""), deployed_ms: 1, files: None, packed: None };
    remote.idle.records.put_function(&record).await.unwrap();
    for (named, count) in [("default", 0), ("other", 1)] {
        let url = "/v1/functions";
        let sent = remote.send("get", url, Some(&operator), TENANT_HEADER, named, "").await;
        let listed: serde_json::Value = serde_json::from_str(&sent.2).unwrap();
        assert_eq!((sent.0, listed.as_array().unwrap().len()), (200, count), "{listed}");
    }
    let (status, _, text) = remote.send("get", "/metrics", Some(&operator), "", "", "").await;
    assert!(status == 200 && text.contains("snowmelt_memory_bytes"), "{text}");
}

#[tokio::test]
async fn who_may_not_deploy_does_not_see_the_environment() {
    let remote = RemoteGateway::new().await;
    let mut spec = spec("");
    spec.options.environment.insert("PASSWORD".to_owned(), "hush".to_owned());
    let tenant = "acme".parse().unwrap();
    let record = FunctionRecord { tenant, spec, deployed_ms: 1, files: None, packed: None };
    remote.idle.records.put_function(&record).await.unwrap();
    for (role, sees) in [(Role::Reader, false), (Role::Caller, false), (Role::Developer, true)] {
        let token = remote.token(role);
        for url in ["/v1/functions", "/v1/functions/f"] {
            let (status, _, text) = remote.send("get", url, Some(&token), "", "", "").await;
            assert_eq!((status, text.contains("hush")), (200, sees), "{role} {text}");
        }
    }
}

#[tokio::test]
async fn what_a_request_over_the_network_may_not_name_is_refused() {
    let remote = RemoteGateway::new().await;
    let code = r#""code": {"kind": "source", "file": "f.py", "text": ""}"#;
    let image = format!(r#"{{"name": "f", {code}, "image": "registry.example/a:v1"}}"#);
    let egress = r#""network": {"egress": [{"to": "10.0.0.0/8"}]}, "events": [1]"#;
    for (url, body) in [
        ("/v1/functions", image.clone()),
        ("/v1/udfs", format!(r#"{{"source": {{{code}, "image": "registry.example/a:v1"}}}}"#)),
        ("/v1/bursts", format!(r#"{{"function": {image}, "events": [1]}}"#)),
        ("/v1/bursts", format!(r#"{{"function": {{"name": "f", {code}}}, {egress}}}"#)),
        ("/v1/functions/f/bursts", format!("{{{egress}}}")),
    ] {
        let (status, code, text) =
            remote.send("post", url, Some(&remote.token), "", "", &body).await;
        assert_eq!((status, &*code), (403, Code::RIGHT_MISSING.code), "{url} {text}");
        assert!(text.contains("over the network"), "{text}");
    }
}

async fn made(remote: &RemoteGateway, by: &str, body: &str) -> serde_json::Value {
    let (status, _, text) = remote.send("post", "/v1/keys", Some(by), "", "", body).await;
    assert_eq!(status, 201, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn an_administrator_makes_keys_and_revokes_them() {
    let remote = RemoteGateway::new().await;
    let administrator = remote.token(Role::Administrator);
    let made = made(&remote, &administrator, r#"{"role": "caller", "grants": ["f*"]}"#).await;
    let id = made["key"]["id"].as_str().unwrap();
    let text = made["text"].as_str().unwrap();
    let asked = async |url: &str| remote.send("get", url, Some(text), "", "", "").await.0;
    assert_eq!(asked("/v1/functions").await, 200);
    assert_eq!(asked("/v1/functions/f1").await, 404);
    assert_eq!(asked("/v1/functions/other").await, 403);
    assert_eq!(asked("/v1/keys").await, 403);
    let listed = remote.send("get", "/v1/keys", Some(&administrator), "", "", "").await.2;
    assert!(listed.contains(id) && !listed.contains(text), "{listed}");
    let url = format!("/v1/keys/{id}");
    assert_eq!(remote.send("delete", &url, Some(&administrator), "", "", "").await.0, 204);
    assert_eq!(asked("/v1/functions").await, 401);
}

#[tokio::test]
async fn a_key_that_revokes_itself_gets_the_answer() {
    let remote = RemoteGateway::new().await;
    let administrator = remote.token(Role::Administrator);
    let made = made(&remote, &administrator, r#"{"role": "administrator"}"#).await;
    let url = format!("/v1/keys/{}", made["key"]["id"].as_str().unwrap());
    let text = made["text"].as_str();
    assert_eq!(remote.send("delete", &url, text, "", "", "").await.0, 204);
    assert_eq!(remote.send("delete", &url, text, "", "", "").await.0, 401);
}

#[tokio::test]
async fn a_key_that_is_over_ends_a_request_and_its_answer() {
    let remote = RemoteGateway::new().await;
    let administrator = remote.token(Role::Administrator);
    let made = made(&remote, &administrator, r#"{"role": "developer", "ttl_ms": 300}"#).await;
    let text = made["text"].as_str();
    // It needs a sandbox, and is never answered.
    let code = r#"{"kind": "source", "file": "f.py", "text": "def f(x): pass"}"#;
    let body = format!(r#"{{"source": {{"code": {code}}}}}"#);
    let (status, refused, _) = remote.send("post", "/v1/udfs", text, "", "", &body).await;
    assert_eq!((status, &*refused), (401, Code::TOKEN_REFUSED.code));
    let (sender, receiver) = tokio::sync::watch::channel(None);
    let stream = futures::stream::pending::<Result<Bytes, std::io::Error>>();
    let body = UntilOver::new(Body::from_stream(stream), KeyLife::Watched(receiver));
    let reading = tokio::spawn(BodyExt::collect(body));
    drop(sender);
    assert!(reading.await.unwrap().is_err());
}

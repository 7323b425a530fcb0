//! Quotas and the audit at the gateway: what a request is answered, and what is written of it.

use std::path::Path;
use std::sync::Arc;

use http::header;
use serde_json::{Value, json};
use snowmelt_api::TENANT_HEADER;
use snowmelt_rpc::Peer;
use snowmelt_types::{ByteSize, Role};

use super::super::Door;
use super::network::RemoteGateway;
use super::{Gateway, member};
use crate::platform::GatewayPlatform;
use crate::platform::rig::idle_platform;
use crate::reports::audit::{Audit, AuditSettings};

const CALL: &str = "/v1/functions/nothing/invocations";
const EVENT: &str = r#"{"event": 1}"#;

fn limit(gateway: &Gateway, limits: Value) -> impl Future<Output = super::Answered> {
    let body = json!({ "limits": limits }).to_string();
    let tenant = format!("uid-{}", number());
    async move { gateway.send(Peer::User(0), "post", "/v1/quotas", TENANT_HEADER, &tenant, &body).await }
}

fn number() -> u32 {
    match member() {
        Peer::User(user) => user,
        _ => unreachable!("a member is a user"),
    }
}

fn used(listed: &Value, kind: &str) -> Value {
    let quotas = listed[0]["quotas"].as_array().unwrap();
    quotas.iter().find(|quota| quota["kind"] == kind).unwrap().clone()
}

#[tokio::test]
async fn a_tenant_sees_its_quotas_and_only_operators_set_them() {
    let gateway = Gateway::new().await;
    let set = limit(&gateway, json!({"calls": {"at_most": 7}, "memory": "unlimited"})).await;
    set.is(200, "", "root sets");
    let listed = gateway.send(member(), "get", "/v1/quotas", "", "", "").await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(
        (&used(&listed, "calls")["limit"], &used(&listed, "calls")["own"]),
        (&7.into(), &true.into())
    );
    let body = r#"{"limits": {"calls": "unlimited"}}"#;
    let refused = gateway.send(member(), "post", "/v1/quotas", "", "", body).await;
    refused.is(403, "SM-0518", "a member sets");
    let unknown = limit(&gateway, json!({"disc": {"at_most": 7}})).await;
    unknown.is(400, "SM-0110", "no such kind");
    let all = gateway.root("get", "/v1/quotas", "").await.json();
    let tenant = format!("uid-{}", number());
    assert!(all.as_array().unwrap().iter().any(|one| one["tenant"] == *tenant), "{all}");
    let reset = gateway.send(Peer::User(0), "delete", "/v1/quotas", TENANT_HEADER, &tenant, "");
    reset.await.is(204, "", "root resets");
    let listed = gateway.send(member(), "get", "/v1/quotas", "", "", "").await.json();
    assert_eq!(used(&listed, "calls")["limit"], Value::Null);
}

#[tokio::test]
async fn a_call_above_a_quota_is_told_when_to_come_again() {
    let gateway = Gateway::new().await;
    limit(&gateway, json!({"calls_per_second": {"at_most": 2}})).await;
    let call = async || gateway.send(member(), "post", CALL, "", "", EVENT).await;
    for _ in 0..2 {
        call().await.is(404, "SM-0220", "there is no such function, but it counts");
    }
    let refused = call().await;
    refused.is(429, "SM-0533", "the third");
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    assert_eq!(refused.json()["retry_after_s"], 1);
    // Others go on.
    gateway.root("post", CALL, EVENT).await.is(404, "SM-0220", "root");
    limit(&gateway, json!({"queries": {"at_most": 0}})).await;
    let query = r#"{"sql": "select 1", "working_folder": "/"}"#;
    let refused = gateway.send(member(), "post", "/v1/queries", "", "", query).await;
    refused.is(403, "SM-0533", "no wait helps against a quota of nothing");
}

#[tokio::test]
async fn bodies_above_the_quota_are_refused_and_leave_nothing() {
    let gateway = Gateway::new().await;
    limit(&gateway, json!({"request_memory": {"at_most": 1000}})).await;
    let long = format!(r#"{{"event": "{}"}}"#, "x".repeat(2000));
    let refused = gateway.send(member(), "post", CALL, "", "", &long).await;
    refused.is(403, "SM-0533", "a body that never fits");
    gateway.send(member(), "post", CALL, "", "", EVENT).await.is(404, "SM-0220", "a short one");
    let listed = gateway.send(member(), "get", "/v1/quotas", "", "", "").await.json();
    assert_eq!(used(&listed, "request_memory")["used"], 0);
}

#[tokio::test]
async fn quotas_outlive_the_server() {
    let idle = idle_platform().await;
    let quotas = &idle.platform.quotas;
    let tenant = "acme".parse().unwrap();
    let request = serde_json::from_value(json!({"limits": {"calls": {"at_most": 3}}})).unwrap();
    quotas.set(&tenant, request).await.unwrap();
    let again = crate::state::quotas::StoredQuotas::open(Default::default(), idle.records.clone());
    let summary = again.await.unwrap().quotas().summary(&tenant);
    let calls = summary.quotas.iter().find(|quota| quota.kind.name() == "calls").unwrap();
    assert_eq!((calls.limit, calls.own), (Some(3), true));
}

fn audited(platform: Arc<GatewayPlatform>, folder: &Path) -> Arc<GatewayPlatform> {
    let settings = AuditSettings {
        folder: folder.to_owned(),
        file_size: ByteSize::mib(1),
        files: 0,
        is_required: false,
        collector: None,
    };
    let mut platform = Arc::into_inner(platform).unwrap();
    platform.audit = Audit::open(settings).unwrap();
    Arc::new(platform)
}

async fn lines(platform: &GatewayPlatform, folder: &Path) -> Vec<Value> {
    platform.audit.close().await;
    crate::verify_audit(folder).unwrap();
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn what_is_done_has_a_line_and_what_is_only_looked_at_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut idle = idle_platform().await;
    idle.platform = audited(idle.platform, folder.path());
    let router = super::super::router(Arc::clone(&idle.platform), Door::Socket);
    let gateway = Gateway { router, idle: idle.into() };
    gateway.send(member(), "get", "/v1/functions", "", "", "").await.is(200, "", "a list");
    gateway.send(member(), "post", CALL, "", "", EVENT).await.is(404, "SM-0220", "a call");
    gateway.send(member(), "post", "/v1/backups", "", "", "").await.is(403, "SM-0518", "a copy");
    let made = gateway.root("post", "/v1/keys", r#"{"role": "operator", "note": "secret"}"#).await;
    let made = made.json();
    let lines = lines(&gateway.idle.platform, folder.path()).await;
    let actions: Vec<_> = lines.iter().filter(|line| line["event"] == "action").collect();
    assert_eq!(actions.len(), 3, "{actions:?}");
    let call = actions[0];
    assert_eq!(call["action"], "POST /v1/functions/{name}/invocations");
    assert_eq!((&call["object"], &call["status"]), (&"nothing".into(), &404.into()));
    assert_eq!((&call["code"], &call["role"]), (&"SM-0220".into(), &"administrator".into()));
    assert_eq!(call["principal"], format!("user {}", number()));
    assert_eq!(call["tenant"], format!("uid-{}", number()));
    assert_eq!((&actions[1]["status"], &actions[1]["code"]), (&403.into(), &"SM-0518".into()));
    assert_eq!(actions[2]["object"], made["key"]["id"]);
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains(made["text"].as_str().unwrap()) && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn failed_logins_are_counted_and_their_keys_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut idle = idle_platform().await;
    idle.platform = audited(idle.platform, folder.path());
    let remote = RemoteGateway::over(idle);
    let token = remote.token(Role::Developer);
    for _ in 0..20 {
        let wrong = remote.send("get", "/v1/functions", Some("snowmelt-not-a-key"), "", "", "");
        assert_eq!(wrong.await.0, 401);
    }
    let called = remote.send("post", CALL, Some(&token), "", "", EVENT);
    assert_eq!(called.await.0, 404);
    let lines = lines(&remote.idle.platform, folder.path()).await;
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let logins = of("login");
    assert_eq!((logins.len(), &logins[0]["code"]), (5, &"SM-0515".into()));
    assert_eq!(of("logins")[0]["count"], 15);
    assert_eq!(of("action")[0]["tenant"], "acme");
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains("not-a-key") && !text.contains(&token), "{text}");
}

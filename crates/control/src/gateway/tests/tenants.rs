//! Two tenants, one on the socket and one over the network: neither sees by a route what the other
//! has or does, and operators see both.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use snowmelt_api::TENANT_HEADER;
use snowmelt_node::TenantImages;
use snowmelt_rpc::Peer;
use snowmelt_types::{Code, Role, Tenant};

use super::network::RemoteGateway;
use super::{Gateway, member};
use crate::access::quotas::{RoomAmount, RoomHolder};
use crate::access::routes::RULES;
use crate::platform::rig::spec;
use crate::state::records::FunctionRecord;

/// The tenant of the tokens, and the one of the member of the socket's group.
const FAR: &str = "acme";

fn near() -> String {
    let Peer::User(user) = member() else { unreachable!() };
    format!("uid-{user}")
}

/// A platform with both doors.
struct TwoDoors {
    far: RemoteGateway,
    near: Gateway,
}

impl TwoDoors {
    async fn new() -> Self {
        let near = Gateway::new().await;
        let far = RemoteGateway::over(Arc::clone(&near.idle));
        Self { far, near }
    }

    /// The answer to the member of the socket's group.
    async fn near(&self, method: &str, url: &str, body: &str) -> Value {
        let answered = self.near.send(member(), method, url, "", "", body).await;
        assert_eq!(answered.status, 200, "{url}");
        answered.json()
    }

    /// The answer to a key over the network.
    async fn far(&self, role: Role, url: &str) -> Value {
        let token = self.far.token(role);
        let (status, _, text) = self.far.send("get", url, Some(&token), "", "", "").await;
        assert_eq!(status, 200, "{url} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn root(&self, url: &str) -> Value {
        self.near.root("get", url, "").await.json()
    }

    async fn deploy(&self, tenant: &str, name: &str, image: Option<&str>) {
        let mut spec = spec("");
        spec.name = name.parse().unwrap();
        spec.image = image.map(str::to_owned);
        let tenant = tenant.parse().unwrap();
        let record = FunctionRecord { tenant, spec, deployed_ms: 1, files: None, packed: None };
        self.near.idle.records.put_function(&record).await.unwrap();
    }
}

fn names(trees: &Value) -> Vec<&str> {
    trees.as_array().unwrap().iter().map(|tree| tree["image"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn trees_are_those_of_the_tenants_own_functions() {
    let doors = TwoDoors::new().await;
    let [ours, theirs, nobodys] =
        ["ours:v1", "theirs:v1", "old:v1"].map(|name| format!("registry.example/{name}"));
    doors.deploy(FAR, "far", Some(&ours)).await;
    doors.deploy(&near(), "near", Some(&theirs)).await;
    let platform = &doors.near.idle.platform;
    for image in [&ours, &theirs, &nobodys] {
        platform.bursts.trees.place(image, &platform.hosts, &[]);
    }
    assert_eq!(names(&doors.root("/v1/trees").await), [&nobodys, &ours, &theirs]);
    assert_eq!(names(&doors.far(Role::Operator, "/v1/trees").await).len(), 3);
    assert_eq!(names(&doors.far(Role::Reader, "/v1/trees").await), [&ours]);
    assert_eq!(names(&doors.near("get", "/v1/trees", "").await), [&theirs]);
    // By the name of an image, which the other one uses.
    let asked = format!("/v1/trees?of={theirs}");
    assert!(names(&doors.far(Role::Caller, &asked).await).is_empty());
    assert_eq!(names(&doors.near("get", &asked, "").await), [&theirs]);
}

#[tokio::test]
async fn numbers_of_the_platform_are_those_of_the_tenants_own_work() {
    let doors = TwoDoors::new().await;
    doors.deploy(FAR, "one", None).await;
    doors.deploy(FAR, "two", None).await;
    doors.deploy(&near(), "three", None).await;
    let platform = &doors.near.idle.platform;
    let far: Tenant = FAR.parse().unwrap();
    let second = std::time::Duration::from_secs(1);
    platform.functions.durations().record(&far, "one", "succeeded", second);
    platform.functions.durations().record(&far, "two", "SM-0201", second);
    let quotas = platform.quotas.quotas();
    let _query = quotas.query(&far, "q-1").unwrap();
    let _calls = quotas.calls(&far, "one", 3).unwrap();
    let amount = RoomAmount { instances: 2, memory: 1 << 20, cpu_millis: 100 };
    let holder = RoomHolder { who: Arc::from("function one"), amount, shared_by: 1 };
    let _room = quotas.room(&far, holder).unwrap();

    let status = doors.far(Role::Reader, "/v1/status").await;
    assert_eq!((&status["functions"], &status["queries"]), (&2.into(), &1.into()));
    assert_eq!(status["instances"][0], 2);
    assert_eq!((&status["memory_bytes"], &status["socket"]), (&0.into(), &"".into()));
    let figures = doors.far(Role::Reader, "/v1/figures").await;
    assert_eq!(figures["calls"], serde_json::json!({"running": 3, "succeeded": 1, "failed": 1}));
    assert_eq!(figures["node"]["busy"], 2);

    let status = doors.near("get", "/v1/status", "").await;
    assert_eq!((&status["functions"], &status["queries"]), (&1.into(), &0.into()));
    assert_eq!(status["instances"][0], 0);
    assert_ne!(status["version"], "");
    let figures = doors.near("get", "/v1/figures", "").await;
    assert_eq!(figures["calls"], serde_json::json!({"running": 0, "succeeded": 0, "failed": 0}));
    assert_eq!(figures["memory_bytes"], 0);

    let all = doors.root("/v1/status").await;
    assert!(all["memory_bytes"].as_u64().unwrap() > 0, "{all}");
    assert!(doors.far(Role::Operator, "/v1/figures").await["memory_bytes"].as_u64() > Some(0));
}

/// How full the machines are is for operators, who see all tenants.
#[tokio::test]
async fn no_route_that_a_tenant_may_read_names_another() {
    let doors = TwoDoors::new().await;
    doors.deploy("secretive", "hidden-function", Some("registry.example/hidden:v1")).await;
    let platform = &doors.near.idle.platform;
    platform.bursts.trees.place("registry.example/hidden:v1", &platform.hosts, &[]);
    let hidden: Tenant = "secretive".parse().unwrap();
    let second = std::time::Duration::from_secs(1);
    platform.functions.durations().record(&hidden, "hidden-function", "succeeded", second);
    let _calls = platform.quotas.quotas().calls(&hidden, "hidden-function", 1).unwrap();
    let lists = RULES.iter().filter(|rule| rule.method == "GET" && !rule.path.contains('{'));
    let mut read = 0;
    for rule in lists {
        let token = doors.far.token(Role::Administrator);
        let far = doors.far.send("get", rule.path, Some(&token), "", "", "").await;
        let near = doors.near.send(member(), "get", rule.path, "", "", "").await;
        let near = String::from_utf8_lossy(&near.body).into_owned();
        for text in [far.2, near] {
            assert!(
                !text.contains("secretive") && !text.contains("hidden"),
                "{}: {text}",
                rule.path
            );
        }
        read += 1;
    }
    assert!(read > 10, "{read} lists were read");
    let named =
        doors.near.send(Peer::User(0), "get", "/v1/functions", TENANT_HEADER, "secretive", "");
    assert_eq!(named.await.json()[0]["name"], "hidden-function");
}

#[tokio::test]
async fn each_tenant_has_its_own_share_of_the_disk() {
    let doors = TwoDoors::new().await;
    let far: Tenant = FAR.parse().unwrap();
    let set = r#"{"limits": {"disk": {"at_most": 1048576}}}"#;
    let sent = doors.near.send(Peer::User(0), "post", "/v1/quotas", TENANT_HEADER, FAR, set).await;
    assert_eq!(sent.status, 200);
    let images = TenantImages::new(&doors.near.idle.state_dir(), &far).layout_folder();
    std::fs::create_dir_all(&images).unwrap();
    std::fs::write(images.join("blob"), vec![1; 2 << 20]).unwrap();
    let token = doors.far.token(Role::Developer);
    let call = r#"{"event": 1, "asynchronous": true}"#;
    let url = format!("/v1/files/{}", "0".repeat(64));
    let deploy = r#"{"name": "f", "code": {"kind": "files", "files": {}}}"#;
    for (url, body) in
        [("/v1/functions", deploy), ("/v1/functions/f/invocations", call), (&*url, "content")]
    {
        let sent = doors.far.send("post", url, Some(&token), "", "", body).await;
        assert_eq!((sent.0, &*sent.1), (403, Code::QUOTA.code), "{url} {}", sent.2);
        assert!(sent.2.contains("2 MiB of images"), "{}", sent.2);
        // Another tenant has its own share.
        let near = doors.near.send(member(), "post", url, "", "", body).await;
        assert_ne!(near.code(), Code::QUOTA.code, "{url}");
    }
    let listed = doors.far(Role::Developer, "/v1/quotas").await;
    let quotas = listed[0]["quotas"].as_array().unwrap();
    let disk = quotas.iter().find(|quota| quota["kind"] == "disk").unwrap();
    assert!(disk["used"].as_u64().unwrap() >= 2 << 20, "{disk}");
    assert_eq!(disk["by"][0]["name"], "images", "{disk}");
    std::fs::remove_dir_all(&images).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let sent = doors.far.send("post", &url, Some(&token), "", "", "content").await;
    assert_ne!(&*sent.1, Code::QUOTA.code, "{}", sent.2);
}

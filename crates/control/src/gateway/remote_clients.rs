//! The routes for clients on other hosts, each of which sends the token of a tenant.
//!
//! Invariant: none of the routes names a path of this machine, shows what other tenants have, or
//! ends the server. A route is served here only if it is in the table of this file: a route that
//! the gateway gets is not served here by itself.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use snowmelt_rpc::Problem;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::tls::{Certificate, TlsListener};
use snowmelt_types::{Code, ErrorReport};
use tokio::net::TcpListener;

use super::{
    files, functions, health, invocation, invoke, invoke_all, keep_wheel, leases, logs,
    own_metrics, prune_all, show, udfs,
};
use crate::access::redaction::hide_paths;
use crate::access::tokens::{Tokens, admit};
use crate::platform::GatewayPlatform;

/// Returns the routes of the gateway that are for clients on other hosts.
pub(crate) fn router(platform: Arc<GatewayPlatform>, tokens: Arc<Tokens>) -> Router {
    let folders = platform.leases.folders().clone();
    let (of_udfs, of_files) =
        (udfs::router(Arc::clone(&platform)), files::router(Arc::clone(&platform)));
    let of_leases = leases::router(Arc::clone(&platform));
    let of_health = health::router(Arc::clone(&platform));
    Router::new()
        .route("/v1/functions", get(functions))
        .route("/v1/functions/{name}", get(show))
        .route("/v1/functions/{name}/invocations", post(invoke))
        .route("/v1/functions/{name}/batches", post(invoke_all))
        .route("/v1/functions/{name}/logs", get(logs))
        .route("/v1/invocations/{id}", get(invocation))
        .route("/v1/wheels/{file}", post(keep_wheel))
        .route("/v1/prunings", post(prune_all))
        .route("/metrics", get(own_metrics))
        .with_state(platform)
        .merge(of_udfs)
        .merge(of_files)
        .merge(of_leases)
        .fallback(not_here)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(tokens, admit))
        // Load balancers have no token.
        .merge(of_health)
        .layer(from_fn_with_state(folders, hide_paths))
}

async fn not_here(request: Request) -> Problem {
    let message =
        format!("{} {} is not served over the network", request.method(), request.uri().path());
    let report = ErrorReport::new(Code::REQUEST_UNKNOWN, message).hint(
        "clients on other hosts register, show and call functions, and remove what their tenant \
         does not use; the rest is done on the platform's machine",
    );
    report.into()
}

async fn not_allowed(request: Request) -> (StatusCode, Problem) {
    (StatusCode::METHOD_NOT_ALLOWED, not_here(request).await)
}

/// Serves over TLS until the server is asked to end.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    certificate: Certificate,
    router: Router,
    ending: Ending,
) -> Result<(), ErrorReport> {
    let failed = |error: std::io::Error| {
        ErrorReport::new(Code::INTERNAL, format!("cannot serve other hosts: {error}"))
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TlsListener::new(TcpListener::from_std(listener).map_err(failed)?, &certificate);
    server::serve(listener, router, server::TENANTS, ending).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::body::Body;
    use http::header;
    use http_body_util::BodyExt;
    use snowmelt_api::TENANT_HEADER;
    use snowmelt_rpc::Peer;
    use snowmelt_types::Tenant;
    use tower_service::Service;

    use super::*;
    use crate::gateway::tests::routes::ROUTES;
    use crate::platform::rig::{IdlePlatform, idle_platform, spec};
    use crate::state::records::tests::call as ended_call;
    use crate::state::records::{FunctionRecord, InvocationRecord};

    /// All routes that are served, by method and path. No others are.
    const SERVED: [(&str, &str); 19] = [
        ("get", "/metrics"),
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/v1/functions"),
        ("get", "/v1/functions/{name}"),
        ("post", "/v1/functions/{name}/invocations"),
        ("post", "/v1/functions/{name}/batches"),
        ("get", "/v1/functions/{name}/logs"),
        ("get", "/v1/invocations/{id}"),
        ("post", "/v1/wheels/{file}"),
        ("post", "/v1/prunings"),
        ("get", "/v1/udfs"),
        ("post", "/v1/udfs"),
        ("get", "/v1/udfs/{name}"),
        ("delete", "/v1/udfs/{name}"),
        ("get", "/v1/udfs/{name}/log"),
        ("post", "/v1/files"),
        ("post", "/v1/files/{digest}"),
        ("get", "/v1/leases"),
    ];

    struct Remote {
        router: Router,
        token: String,
        idle: IdlePlatform,
        _folder: tempfile::TempDir,
    }

    impl Remote {
        async fn new() -> Self {
            let idle = idle_platform().await;
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("tokens");
            let token = crate::access::tokens::add(&file, &"acme".parse().unwrap()).unwrap();
            let tokens = Arc::new(Tokens::open(&file).unwrap());
            let router = router(Arc::clone(&idle.platform), tokens);
            Self { router, token, idle, _folder: folder }
        }

        /// The status and the code of an answer, and its text. The request has a header unless
        /// that is empty.
        async fn send(
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
    async fn only_some_routes_of_the_gateway_are_served() {
        let remote = Remote::new().await;
        let served: BTreeSet<_> = SERVED.into_iter().collect();
        let known: BTreeSet<_> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
        assert!(served.is_subset(&known), "{served:?}");
        for route in &ROUTES {
            let url = route.url();
            // What starts a sandbox or installs packages is sent without a valid body.
            let body = if route.answer.is_some() { route.body() } else { "" };
            let (status, code, text) =
                remote.send(route.method, &url, Some(&remote.token), "", "", body).await;
            let is_unknown = code == Code::REQUEST_UNKNOWN.code;
            assert_eq!(
                !is_unknown,
                served.contains(&(route.method, route.path)),
                "{}: {status} {text}",
                route.shown()
            );
        }
        assert!(!remote.idle.platform.shutdown.is_cancelled());
    }

    #[tokio::test]
    async fn no_request_is_served_without_a_valid_token() {
        let remote = Remote::new().await;
        let others = SERVED.into_iter().filter(|(_, path)| !path.ends_with('z'));
        for (method, path) in others.chain([("get", "/nothing")]) {
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
        let remote = Remote::new().await;
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
        let remote = Remote::new().await;
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
        let remote = Remote::new().await;
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
        let remote = Remote::new().await;
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
}

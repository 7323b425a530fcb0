//! The table of routes: it has every route that is served, each role gets by each door what the
//! table says, and the documents have the same routes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use snowmelt_rpc::Peer;
use snowmelt_types::{Code, Right, Role};

use super::network::RemoteGateway;
use super::routes::{ROUTES, RouteCase};
use super::{Gateway, member};
use crate::access::routes::{OPEN, RULES, Reach, RouteRule};

type Paths = BTreeSet<(String, String)>;

/// The paths and methods of the router's table, read from its file: the router does not list them.
fn served() -> Paths {
    let source = concat!(
        include_str!("../mod.rs"),
        include_str!("../files.rs"),
        include_str!("../health.rs"),
        include_str!("../hosts.rs"),
        include_str!("../images.rs"),
        include_str!("../keys.rs"),
        include_str!("../leases.rs"),
        include_str!("../quotas.rs"),
        include_str!("../doors/login.rs"),
        include_str!("../udfs.rs")
    );
    let routes = source.lines().filter_map(|line| Some(line.split_once(".route(\"")?.1));
    let mut served = BTreeSet::new();
    for (path, handlers) in routes.filter_map(|route| route.split_once("\", ")) {
        for method in ["get", "post", "put", "patch", "delete"] {
            let begins = format!("{method}(");
            if handlers.starts_with(&begins) || handlers.contains(&format!(".{begins}")) {
                served.insert((path.to_owned(), method.to_owned()));
            }
        }
    }
    served
}

fn described(document: &Value) -> Paths {
    let paths = document["paths"].as_object().unwrap().iter();
    let described = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| (path.clone(), method.clone()))
    });
    described.collect()
}

#[test]
fn the_openapi_document_has_the_routes_that_are_served() {
    let document = serde_json::to_value(snowmelt_api::openapi::document("0")).unwrap();
    assert_eq!(described(&document), served());
}

/// A new route fails here until it is in [`ROUTES`].
#[test]
fn every_route_that_is_served_is_tested_here() {
    let tested = ROUTES.iter().map(|route| (route.path.to_owned(), route.method.to_owned()));
    let tested: Paths = tested.collect();
    assert_eq!(tested.len(), ROUTES.len(), "a route is there twice");
    assert_eq!(tested, served());
    let document = include_str!("../../../../../docs/reference/openapi.json");
    assert_eq!(tested, described(&serde_json::from_str(document).unwrap()));
}

fn rule(route: &RouteCase) -> &'static RouteRule {
    let method = route.method.to_uppercase();
    RULES.iter().find(|rule| rule.method == *method && rule.path == route.path).unwrap()
}

/// The body of a request: what would start a sandbox or install packages is sent without a valid
/// one, and nothing is ended.
fn body(route: &RouteCase) -> &'static str {
    if route.answer.is_some() { route.body() } else { "" }
}

#[test]
fn the_table_of_rights_has_the_routes_that_are_served() {
    let rules =
        RULES.iter().map(|rule| (rule.path.to_owned(), rule.method.as_str().to_lowercase()));
    let open = OPEN.map(|path| (path.to_owned(), "get".to_owned()));
    let ruled: Paths = rules.chain(open).collect();
    assert_eq!(ruled.len(), RULES.len() + OPEN.len(), "a route is there twice");
    assert_eq!(ruled, served());
}

/// Whether the table lets a role through.
fn expected(rule: &RouteRule, role: Role, over_the_network: bool) -> Option<(u16, &'static str)> {
    let is_here = match rule.reach {
        Reach::Everywhere => true,
        Reach::Operators => !over_the_network || role == Role::Operator,
        Reach::Machine => !over_the_network,
    };
    if !is_here {
        return Some((404, Code::REQUEST_UNKNOWN.code));
    }
    (!role.has(rule.right)).then_some((403, Code::RIGHT_MISSING.code))
}

#[tokio::test]
async fn each_role_gets_by_the_socket_what_the_table_says() {
    for (peer, role) in [(Peer::User(0), Role::Operator), (member(), Role::Administrator)] {
        let gateway = Gateway::new().await;
        for route in ROUTES.iter().filter(|route| !OPEN.contains(&route.path)) {
            let answered =
                gateway.send(peer, route.method, &route.url(), "", "", body(route)).await;
            let refused = [403, 404].contains(&answered.status).then(|| answered.code());
            check(route, role, false, answered.status, refused.unwrap_or_default());
        }
        assert_eq!(gateway.idle.platform.shutdown.is_cancelled(), role == Role::Operator);
    }
}

#[tokio::test]
async fn each_role_gets_over_the_network_what_the_table_says() {
    for role in Role::ALL {
        let remote = RemoteGateway::new().await;
        let token = remote.token(role);
        for route in ROUTES.iter().filter(|route| !OPEN.contains(&route.path)) {
            let url = route.url();
            let sent = remote.send(route.method, &url, Some(&token), "", "", body(route));
            let (status, code, _) = sent.await;
            check(route, role, true, status, code);
        }
        assert_eq!(remote.idle.platform.shutdown.is_cancelled(), role == Role::Operator);
    }
}

fn check(route: &RouteCase, role: Role, over_the_network: bool, status: u16, code: String) {
    let shown = route.shown();
    match expected(rule(route), role, over_the_network) {
        Some((refused, with)) => assert_eq!((status, &*code), (refused, with), "{role} {shown}"),
        None => {
            let refusals = [Code::REQUEST_UNKNOWN.code, Code::RIGHT_MISSING.code];
            assert!(
                status != 403 && !refusals.contains(&&*code),
                "{role} {shown}: {status} {code}"
            );
        }
    }
}

#[tokio::test]
async fn a_head_request_needs_what_a_get_request_needs() {
    let remote = RemoteGateway::new().await;
    let caller = remote.token(Role::Caller);
    let head = async |url| remote.send("head", url, Some(&caller), "", "", "").await.0;
    assert_eq!(head("/v1/functions").await, 200);
    assert_eq!(head("/metrics").await, 403);
    assert_eq!(head("/v1/hosts").await, 404);
}

/// The tables of `docs/reference/access.md`.
fn tables() -> String {
    let roles = |has: &dyn Fn(Role) -> bool| {
        let roles: Vec<_> = Role::ALL.into_iter().filter(|role| has(*role)).collect();
        roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("| right | roles |\n|---|---|\n");
    for right in Right::ALL {
        writeln!(text, "| {right} | {} |", roles(&|role| role.has(right))).unwrap();
    }
    text.push_str(
        "\n| route | right | on the socket | over the network | audited |\n|---|---|---|---|---|\n",
    );
    for path in OPEN {
        writeln!(text, "| `GET {path}` | none | everybody | everybody, without a key | no |")
            .unwrap();
    }
    for rule in &RULES {
        let RouteRule { method, path, right, reach, is_audited } = rule;
        let audited = if *is_audited { "yes" } else { "no" };
        let here = roles(&|role| {
            [Role::Administrator, Role::Operator].contains(&role) && role.has(*right)
        });
        let there = match reach {
            Reach::Everywhere => roles(&|role| role.has(*right)),
            Reach::Operators => Role::Operator.to_string(),
            Reach::Machine => "nobody".to_owned(),
        };
        writeln!(text, "| `{method} {path}` | {right} | {here} | {there} | {audited} |").unwrap();
    }
    text
}

/// `UPDATE_ACCESS=1` writes the tables.
#[test]
fn the_document_of_access_has_the_tables_of_the_code() {
    let path = Path::new("../../docs/reference/access.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, rest) = document.split_once("<!-- tables of the code -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of the tables -->").unwrap();
    let tables = tables();
    let made = format!(
        "{before}<!-- tables of the code -->\n\n{tables}\n<!-- end of the tables -->{after}"
    );
    if std::env::var_os("UPDATE_ACCESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    assert!(made == document, "UPDATE_ACCESS=1 writes the tables");
}

//! The ways into the gateway: who asks is found out by the connection or by a key, and then the
//! table of routes says whether that is allowed.
//!
//! Invariant: no handler runs before [`allow`] has found the route in the table, and the identity
//! of the request has what the route needs. The socket and the network differ only in how the
//! identity is found out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};
use snowmelt_rpc::body::MAX_REQUEST_BYTES;
use snowmelt_rpc::problem::ErrorCode;
use snowmelt_rpc::{Admission, Peer, Problem};
use snowmelt_types::{Code, ErrorReport};

use crate::access::identity::{Identity, KeyHolder, unknown};
use crate::access::key::{KeyLife, ended};
use crate::access::oidc::{Issuers, Membership};
use crate::access::quotas::Quotas;
use crate::access::routes::{Reach, RouteRule, of_path};
use crate::access::tenant_header::named;
use crate::access::tokens::Tokens;
use crate::reports::audit::{Audit, AuditNote};
use crate::state::keys::Keys;

/// Adds the identity of the connection to each request, or refuses the request.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied().ok_or_else(unknown);
    let named = named(request.headers());
    match peer.and_then(|peer| Identity::new(peer, named?)) {
        Ok(identity) => {
            enter(identity, &mut request);
            next.run(request).await
        }
        Err(refused) => refuse(request.into_body(), Problem::from(refused)).await,
    }
}

/// The keys, tokens and issuers by which clients on other hosts are known.
#[derive(Clone, Debug)]
pub(super) struct Doorkeeper {
    pub keys: Keys,
    pub tokens: Arc<Tokens>,
    pub audit: Audit,
    pub issuers: Arc<Issuers>,
}

/// The identity of a request, and how long it lasts.
struct Entrant {
    identity: Identity,
    life: KeyLife,
}

impl Doorkeeper {
    async fn entrant(
        &self,
        headers: &HeaderMap,
        admission: Option<Admission>,
    ) -> Result<Entrant, ErrorReport> {
        let given = credential(headers)?;
        let of_file = |key| {
            let (holder, until) = self.tokens.holder(key)?;
            Some((holder, KeyLife::Fixed(until)))
        };
        let mut principal = None;
        let (holder, life) = match self.keys.holder(given).or_else(|| of_file(given)) {
            Some(found) => found,
            None if self.issuers.reads(given) => {
                let bearer = self.issuers.bearer(given).await?;
                let Membership { tenant, role, grants } =
                    bearer.membership(named(headers)?.as_ref())?;
                principal = Some(bearer.principal);
                (KeyHolder { tenant, role, grants, key: None }, bearer.life)
            }
            None => return Err(not_accepted("the key of the request is not accepted")),
        };
        if life.is_over() {
            return Err(ended());
        }
        admission.map_or(Ok(()), |admission| admission.give(Some(holder.tenant.as_str())))?;
        let identity = Identity::of_key(holder, headers)?;
        let identity = match principal {
            Some(principal) => identity.of_principal(&principal),
            None => identity,
        };
        Ok(Entrant { identity, life })
    }
}

/// Returns the key or the token in the header of a request, the only place where one is looked for.
fn credential(headers: &HeaderMap) -> Result<&str, ErrorReport> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let first = given.next().ok_or_else(|| not_accepted("the request has no key"))?;
    if given.next().is_some() {
        // A proxy may have looked at another one than this server.
        return Err(not_accepted("the request has more than one key"));
    }
    let text = first.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let text = text.ok_or_else(|| not_accepted("the key of the request is not accepted"))?;
    Ok(text.trim())
}

fn not_accepted(message: &str) -> ErrorReport {
    ErrorReport::new(Code::TOKEN_REFUSED, message)
        .hint("`snowmelt token new TENANT` makes one on the platform's machine")
}

/// Adds the identity of its key to each request, or refuses the request. The end of the key is the
/// end of the request and of its answer.
pub(super) async fn admit(
    State(doorkeeper): State<Doorkeeper>,
    mut request: Request,
    next: Next,
) -> Response {
    // The body of a request that is refused is not read.
    let close = [(header::CONNECTION, "close")];
    let admission = request.extensions().get::<Admission>().cloned();
    let source = admission.as_ref().and_then(Admission::source);
    let Entrant { identity, mut life } =
        match doorkeeper.entrant(request.headers(), admission).await {
            Ok(found) => found,
            Err(refused) => {
                doorkeeper.audit.failed_login(source, &refused.code);
                return (close, Problem::from(refused)).into_response();
            }
        };
    enter(identity, &mut request);
    request.extensions_mut().insert(life.clone());
    let path = request.extensions().get::<MatchedPath>();
    let is_key = path.is_some_and(|path| path.as_str().starts_with("/v1/keys/"));
    if is_key && request.method() == Method::DELETE {
        // Who revokes its own key gets the answer.
        return next.run(request).await;
    }
    tokio::select! {
        response = next.run(request) => response.map(|body| Body::new(UntilOver::new(body, life))),
        () = life.over() => (close, Problem::from(ended())).into_response(),
    }
}

/// The body of an answer, which breaks off when a key is over.
pub(in crate::gateway) struct UntilOver {
    body: Body,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl UntilOver {
    pub fn new(body: Body, mut life: KeyLife) -> Self {
        Self { body, over: Box::pin(async move { life.over().await }) }
    }
}

impl hyper::body::Body for UntilOver {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(ended()))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn enter(identity: Identity, request: &mut Request) {
    // The span of the request is the current one.
    tracing::Span::current().record("snowmelt.tenant", identity.tenant.as_str());
    request.extensions_mut().insert(identity);
}

/// The gate that every request passes before its handler.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub quotas: Quotas,
    pub audit: Audit,
}

/// Adds the status and the code of an answer to the note of its request.
fn answered(note: Option<&AuditNote>, response: &Response) {
    if let Some(note) = note {
        let code = response.extensions().get::<ErrorCode>();
        note.answered(response.status().as_u16(), code.map_or("", |ErrorCode(code)| code));
    }
}

/// Lets a request through to its handler if the table of routes allows it. Its body counts for its
/// tenant.
pub(super) async fn allow(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Some(identity) = parts.extensions.get::<Identity>() {
        let counted = gate.quotas.bodies(&identity.tenant);
        parts.extensions.insert(counted);
    }
    match check(&mut parts, &gate).await {
        Ok(note) => {
            if let Some(note) = note.clone() {
                parts.extensions.insert(note);
            }
            let response = next.run(Request::from_parts(parts, body)).await;
            answered(note.as_ref(), &response);
            response
        }
        Err(refused) => refuse(body, refused).await,
    }
}

/// The route that ends the server.
const SHUTDOWN: &str = "/v1/shutdown";

/// Finds the route of a request in the table, and returns the note of what it begins.
async fn check(parts: &mut Parts, gate: &Gate) -> Result<Option<AuditNote>, Response> {
    let answer = |report: ErrorReport| Problem::from(report).into_response();
    // No route has this path: the fallback answers.
    let Some(path) = parts.extensions.get::<MatchedPath>().cloned() else { return Ok(None) };
    let identity = parts.extensions.get::<Identity>().cloned();
    let identity = identity.ok_or_else(|| answer(unknown()))?;
    let reached = |rule: &&RouteRule| is_reached(rule, &identity);
    if of_path(path.as_str()).find(reached).is_none() {
        return Err(no_route(&identity, &parts.method, parts.uri.path()).into_response());
    }
    let method = if parts.method == Method::HEAD { &Method::GET } else { &parts.method };
    let Some(rule) = of_path(path.as_str()).find(|rule| rule.method == *method) else {
        return Err(not_allowed(&identity, parts, of_path(path.as_str()).filter(reached)));
    };
    if !is_reached(rule, &identity) {
        return Err(no_route(&identity, &parts.method, parts.uri.path()).into_response());
    }
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(IntoResponse::into_response)?;
    let object = params.iter().next().map_or("", |(_, object)| object);
    let action = format!("{} {}", rule.method, rule.path);
    let address = parts.extensions.get::<Admission>().and_then(Admission::source);
    let note = rule.is_audited.then(|| identity.note(&gate.audit, address, &action, object));
    let note = note.flatten();
    let allowed = check_rule(rule, &action, &identity, &params);
    // A server whose disk is full can still be ended.
    let needs_line = rule.is_audited && rule.path != SHUTDOWN;
    let allowed = allowed.and_then(|()| if needs_line { gate.audit.check() } else { Ok(()) });
    allowed.map_err(|refused| {
        let refused = answer(refused);
        answered(note.as_ref(), &refused);
        refused
    })?;
    Ok(note)
}

fn check_rule(
    rule: &RouteRule,
    action: &str,
    identity: &Identity,
    params: &RawPathParams,
) -> Result<(), ErrorReport> {
    identity.check_right(rule.right, action)?;
    let name = params.iter().find(|(param, _)| *param == "name").map(|(_, name)| name);
    match name {
        Some(name) if rule.path.starts_with("/v1/udfs/") => identity.check_udf_name(name),
        Some(name) => identity.check_name(name),
        None => Ok(()),
    }
}

fn is_reached(rule: &RouteRule, identity: &Identity) -> bool {
    match rule.reach {
        Reach::Everywhere => true,
        Reach::Operators => !identity.is_remote() || identity.is_operator(),
        Reach::Machine => !identity.is_remote(),
    }
}

/// Makes the error of a path that is not there, or not for this client.
pub(in crate::gateway) fn no_route(identity: &Identity, method: &Method, path: &str) -> Problem {
    let report = |message, hint| ErrorReport::new(Code::REQUEST_UNKNOWN, message).hint(hint);
    let report = if identity.is_remote() {
        report(
            format!("{method} {path} is not served over the network"),
            "docs/reference/access.md has the routes for clients on other hosts; the rest is done \
             on the platform's machine",
        )
    } else {
        report(
            format!("there is no {method} {path}"),
            "requests begin with /v1/; /v1/status is one, and docs/reference/functions.md lists \
             those of functions",
        )
    };
    report.into()
}

/// Answers a request to a known path with a method that it does not have. The header `allow` lists
/// its methods.
fn not_allowed<'a>(
    identity: &Identity,
    parts: &Parts,
    rules: impl Iterator<Item = &'a RouteRule>,
) -> Response {
    let mut methods = Vec::new();
    for rule in rules {
        methods.push(rule.method.as_str());
        if rule.method == Method::GET {
            methods.push("HEAD");
        }
    }
    let problem = no_route(identity, &parts.method, parts.uri.path());
    let allowed = [(header::ALLOW, methods.join(","))];
    (StatusCode::METHOD_NOT_ALLOWED, allowed, problem).into_response()
}

/// Reads the body of a refused request. Otherwise the connection would be closed while a client
/// still sends, and the client would not get the answer.
async fn refuse(body: Body, answer: impl IntoResponse) -> Response {
    let mut body = Limited::new(body, MAX_REQUEST_BYTES);
    while let Some(Ok(_)) = body.frame().await {}
    answer.into_response()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use snowmelt_api::TENANT_HEADER;
    use snowmelt_rpc::server::{self, Ending};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;

    async fn answer(socket: &Path, header: &str) -> String {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        // More than the buffers of a connection hold.
        let body = vec![b'x'; 4 << 20];
        let head = format!(
            "POST / HTTP/1.1\r\nhost: x\r\n{TENANT_HEADER}: {header}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_refused_request_is_answered_after_its_body_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let tenant = async |identity: Identity, _: Bytes| identity.tenant.to_string();
        let router = Router::new().route("/", post(tenant)).layer(from_fn(identify));
        tokio::spawn(server::serve(listener, router, server::LOCAL, Ending::default()));
        assert!(answer(&socket, "acme").await.ends_with("acme"));
        let refused = answer(&socket, "../acme").await;
        assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("SM-0110"), "{refused}");
    }
}

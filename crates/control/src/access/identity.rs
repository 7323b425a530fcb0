//! The identity of a request: the user of the connection and the tenant that it acts for.
//!
//! Invariant: the tenant comes from the credentials of the connection, never from the body of the
//! request. Root, the user of the server and hosts with the token of the cluster may name any
//! tenant; every other user of the socket, and every token of a tenant, has exactly one.

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use snowmelt_api::TENANT_HEADER;
use snowmelt_kernel::file_user::FileUser;
use snowmelt_rpc::body::MAX_REQUEST_BYTES;
use snowmelt_rpc::{Peer, Problem};
use snowmelt_tasks::FileRights;
use snowmelt_types::{Code, ErrorReport, Tenant};

/// The identity of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    peer: Peer,
    /// The tenant that the request acts for.
    pub tenant: Tenant,
}

/// Returns whether a peer may act for any tenant.
fn is_operator(peer: Peer) -> bool {
    match peer {
        Peer::User(user) => user == 0 || user == rustix::process::geteuid().as_raw(),
        Peer::Cluster => true,
        Peer::Remote => false,
    }
}

/// Returns the tenant of a request without the header; `None` for a peer whose tenant only a token
/// tells.
fn own_tenant(peer: Peer) -> Option<Tenant> {
    match peer {
        // The name of a tenant may contain digits, so this cannot fail.
        Peer::User(user) if !is_operator(peer) => {
            Some(format!("uid-{user}").parse().unwrap_or_default())
        }
        Peer::User(_) | Peer::Cluster => Some(Tenant::default()),
        Peer::Remote => None,
    }
}

impl Identity {
    /// Makes the identity of a peer that acts for a named tenant, or for its own.
    pub fn new(peer: Peer, named: Option<Tenant>) -> Result<Self, ErrorReport> {
        let own = own_tenant(peer).ok_or_else(unknown)?;
        let tenant = named.unwrap_or_else(|| own.clone());
        if tenant != own && !is_operator(peer) {
            let message = format!("this user acts for tenant `{own}` and not for `{tenant}`");
            let hint = format!("omit the tenant, or name `{own}`; root may name any");
            return Err(ErrorReport::new(Code::TENANT_REFUSED, message).hint(hint));
        }
        Ok(Self { peer, tenant })
    }

    /// Makes the identity of a request with the token of a tenant, which may name no other tenant.
    pub fn of_token(tenant: Tenant, headers: &HeaderMap) -> Result<Self, ErrorReport> {
        if let Some(named) = named(headers)?.filter(|named| *named != tenant) {
            let message = format!("this token acts for tenant `{tenant}` and not for `{named}`");
            let hint = format!("omit the tenant, or name `{tenant}`");
            return Err(ErrorReport::new(Code::TENANT_REFUSED, message).hint(hint));
        }
        Ok(Self { peer: Peer::Remote, tenant })
    }

    /// Refuses a body that names another tenant. Older clients send the tenant in the body.
    pub fn check(&self, in_body: Option<&Tenant>) -> Result<(), ErrorReport> {
        match in_body.filter(|named| **named != self.tenant) {
            None => Ok(()),
            Some(named) => {
                let own = &self.tenant;
                let message =
                    format!("the request is for tenant `{own}`, its body names `{named}`");
                Err(ErrorReport::new(Code::TENANT_REFUSED, message)
                    .hint(format!("name the tenant in the header `{TENANT_HEADER}` only")))
            }
        }
    }

    /// Returns the number of a user who is not an operator. A user of another host has a number
    /// that no user of this machine has.
    pub fn member(&self) -> Option<u32> {
        match self.peer {
            Peer::User(user) if !is_operator(self.peer) => Some(user),
            Peer::Remote => Some(u32::MAX),
            Peer::User(_) | Peer::Cluster => None,
        }
    }

    /// Returns the tenant to which changes of the request are limited; `None` for an operator who
    /// names no tenant and may change the things of all.
    pub fn only(&self) -> Option<&Tenant> {
        let is_all = is_operator(self.peer) && self.tenant == Tenant::default();
        (!is_all).then_some(&self.tenant)
    }

    /// Refuses what only root and the user of the server may do.
    pub fn check_operator(&self, what: &str) -> Result<(), ErrorReport> {
        if is_operator(self.peer) {
            return Ok(());
        }
        let message = format!("only root and the user of the server may {what}");
        Err(ErrorReport::new(Code::TENANT_REFUSED, message))
    }

    /// Returns the rights with which files of this machine are opened for the request of a user.
    pub fn file_rights(&self, user: Option<FileUser>) -> FileRights {
        match self.peer {
            Peer::Remote => FileRights::None,
            peer if is_operator(peer) => FileRights::Server,
            _ => user.map_or(FileRights::None, FileRights::User),
        }
    }

    /// Returns whether the request may read the state of a tenant.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant == *tenant || is_operator(self.peer)
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unknown().into())
    }
}

/// A layer that adds the identity to each request, or refuses the request.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    match identity(&request) {
        Ok(identity) => {
            // The span of the request is the current one.
            tracing::Span::current().record("snowmelt.tenant", identity.tenant.as_str());
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(refused) => {
            discard(request.into_body()).await;
            Problem::from(refused).into_response()
        }
    }
}

fn identity(request: &Request) -> Result<Identity, ErrorReport> {
    let peer = request.extensions().get::<Peer>().copied().ok_or_else(unknown)?;
    Identity::new(peer, named(request.headers())?)
}

/// Reads the body of a refused request. Otherwise the connection would be closed while a client
/// still sends, and the client would not get the answer.
async fn discard(body: Body) {
    let mut body = Limited::new(body, MAX_REQUEST_BYTES);
    while let Some(Ok(_)) = body.frame().await {}
}

/// Makes the error of a request without a peer or identity. That is a defect: every listener adds a
/// peer, and the layer adds an identity.
fn unknown() -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, "the user of the connection is not known")
}

fn named(headers: &HeaderMap) -> Result<Option<Tenant>, ErrorReport> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let wrong = |why: &str| ErrorReport::new(Code::OPTION, format!("`{TENANT_HEADER}`: {why}"));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(wrong("a request is for one tenant")),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| wrong("the name is not text"))?;
            text.parse().map(Some).map_err(|why: String| wrong(&why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::Router;
    use axum::body::Bytes;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use snowmelt_rpc::server::{self, Ending};

    /// Neither root nor the user of the tests.
    fn member() -> Peer {
        Peer::User(rustix::process::geteuid().as_raw() + 4321)
    }

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn refused<T: std::fmt::Debug>(done: Result<T, ErrorReport>) {
        assert_eq!(done.unwrap_err().code, Code::TENANT_REFUSED.code);
    }

    #[test]
    fn only_an_operator_who_names_no_tenant_changes_what_all_have() {
        assert_eq!(Identity::new(Peer::User(0), None).unwrap().only(), None);
        let named = Identity::new(Peer::User(0), Some(tenant("acme"))).unwrap();
        assert_eq!(named.only(), Some(&tenant("acme")));
        let own = Identity::new(member(), None).unwrap();
        assert_eq!(own.only(), Some(&own.tenant));
        let remote = Identity::of_token(Tenant::default(), &HeaderMap::new()).unwrap();
        assert_eq!(remote.only(), Some(&Tenant::default()));
    }

    #[test]
    fn root_the_user_of_the_server_and_hosts_may_name_any_tenant() {
        for peer in [Peer::User(0), Peer::User(rustix::process::geteuid().as_raw()), Peer::Cluster]
        {
            assert_eq!(Identity::new(peer, None).unwrap().tenant, Tenant::default());
            let named = Identity::new(peer, Some(tenant("acme"))).unwrap();
            assert_eq!(named.tenant, tenant("acme"));
            assert!(named.sees(&tenant("other")));
        }
    }

    #[test]
    fn every_other_user_has_exactly_one_tenant() {
        let Peer::User(user) = member() else { unreachable!() };
        let own = tenant(&format!("uid-{user}"));
        assert_eq!(Identity::new(member(), None).unwrap().tenant, own);
        let named = Identity::new(member(), Some(own.clone())).unwrap();
        assert!(named.sees(&own) && !named.sees(&Tenant::default()));
        refused(Identity::new(member(), Some(Tenant::default())));
        refused(Identity::new(member(), Some(tenant("uid-0"))));
    }

    #[test]
    fn members_are_no_operators() {
        let of = |peer| Identity::new(peer, None).unwrap();
        let Peer::User(user) = member() else { unreachable!() };
        assert_eq!(of(member()).member(), Some(user));
        refused(of(member()).check_operator("remove images"));
        for peer in [Peer::User(0), Peer::Cluster] {
            assert_eq!(of(peer).member(), None);
            of(peer).check_operator("remove images").unwrap();
        }
    }

    #[test]
    fn files_are_opened_with_the_rights_of_the_user() {
        let Peer::User(user) = member() else { unreachable!() };
        let user = FileUser { user, group: 7, groups: vec![8] };
        let rights = |peer: Peer| Identity { peer, tenant: tenant("acme") };
        let of_member = rights(member()).file_rights(Some(user.clone()));
        assert_eq!(of_member, FileRights::User(user.clone()));
        assert_eq!(rights(member()).file_rights(None), FileRights::None);
        assert_eq!(rights(Peer::Remote).file_rights(Some(user.clone())), FileRights::None);
        assert_eq!(rights(Peer::User(0)).file_rights(Some(user)), FileRights::Server);
    }

    #[test]
    fn a_token_has_exactly_one_tenant() {
        let mut headers = HeaderMap::new();
        let identity = Identity::of_token(tenant("acme"), &headers).unwrap();
        assert!(identity.sees(&tenant("acme")) && !identity.sees(&Tenant::default()));
        assert_eq!(identity.member(), Some(u32::MAX));
        refused(identity.check_operator("remove images"));
        headers.insert(TENANT_HEADER, "acme".parse().unwrap());
        assert_eq!(Identity::of_token(tenant("acme"), &headers).unwrap(), identity);
        headers.insert(TENANT_HEADER, "other".parse().unwrap());
        refused(Identity::of_token(tenant("acme"), &headers));
        assert!(Identity::new(Peer::Remote, None).is_err(), "only a token says who it is");
    }

    #[test]
    fn a_body_with_another_tenant_is_refused() {
        let identity = Identity::new(Peer::User(0), Some(tenant("acme"))).unwrap();
        identity.check(None).unwrap();
        identity.check(Some(&tenant("acme"))).unwrap();
        refused(identity.check(Some(&Tenant::default())));
    }

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

    #[test]
    fn the_header_contains_one_valid_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(named(&headers).unwrap(), None);
        headers.insert(TENANT_HEADER, "acme".parse().unwrap());
        assert_eq!(named(&headers).unwrap(), Some(tenant("acme")));
        headers.append(TENANT_HEADER, "other".parse().unwrap());
        assert!(named(&headers).is_err());
        headers.insert(TENANT_HEADER, "../acme".parse().unwrap());
        assert!(named(&headers).is_err());
    }
}

//! The secret of a cluster without encryption, and the check of who asks on each request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use snowmelt_types::{Code, Digest, ErrorReport};

use super::terms::TERM;
use super::{Credential, PeerSlot};
use crate::Problem;
use crate::version::check_header;

/// The secret that the hosts of a cluster share. It is never logged.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token from the text of a file.
    ///
    /// # Errors
    /// A text that is not a token: it needs at least 16 printable characters.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has at least 16 printable characters and no space".to_owned());
        }
        Ok(Self(text.into()))
    }

    /// The value of the `authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request carries the token. Digests are compared, so that the time of the
    /// comparison does not depend on the token.
    pub fn is_in(&self, header: Option<&str>) -> bool {
        header.is_some_and(|header| Digest::of(header) == Digest::of(self.header()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The mark whether a request with a token has arrived on a connection. The server puts it into the
/// extensions of each request of the connection, and may close connections without a token.
#[derive(Clone, Debug, Default)]
pub struct Admission(Arc<TokenConnection>);

#[derive(Debug, Default)]
struct TokenConnection {
    given: AtomicBool,
    source: Option<IpAddr>,
    holders: Option<Holders>,
    /// The holder for which the connection is counted.
    holder: OnceLock<String>,
}

impl Admission {
    /// Makes the admission of a connection from this address, which counts for the holder of its
    /// token.
    pub(crate) fn new(source: Option<IpAddr>, holders: Option<Holders>) -> Self {
        let given = AtomicBool::default();
        let holder = OnceLock::new();
        Self(Arc::new(TokenConnection { given, source, holders, holder }))
    }

    /// Whether the connection is authenticated.
    pub fn is_given(&self) -> bool {
        self.0.given.load(Ordering::Relaxed)
    }

    /// The address from which the connection comes.
    pub fn source(&self) -> Option<IpAddr> {
        self.0.source
    }

    /// Notes that a request with a token has arrived: with the token of a tenant, or with that of
    /// the cluster, whose hosts are told apart by their addresses.
    ///
    /// # Errors
    /// `SM-0514` if the holder of the token has as many connections as allowed.
    pub fn give(&self, tenant: Option<&str>) -> Result<(), ErrorReport> {
        let connection = &self.0;
        if let Some(holders) = connection.holders.as_ref().filter(|_| !self.is_given()) {
            let source = || connection.source.map(|source| source.to_string());
            if let Some(holder) = tenant.map(str::to_owned).or_else(source) {
                holders.take(&holder)?;
                if let Err(holder) = connection.holder.set(holder) {
                    holders.give_back(&holder);
                }
            }
        }
        connection.given.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for TokenConnection {
    fn drop(&mut self) {
        if let (Some(holders), Some(holder)) = (&self.holders, self.holder.get()) {
            holders.give_back(holder);
        }
    }
}

/// The number of connections of each holder of a token at a listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Holders {
    most: usize,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl Holders {
    /// Allows each holder this number of connections.
    pub fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    fn take(&self, holder: &str) -> Result<(), ErrorReport> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(holder.to_owned()).or_insert(0);
        if *count >= self.most {
            let message = format!("{holder} has {} connections, which are the most", self.most);
            return Err(ErrorReport::new(Code::NO_ROOM, message)
                .hint("close some of them, or send several requests over one"));
        }
        *count += 1;
        Ok(())
    }

    fn give_back(&self, holder: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(holder) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(holder);
            }
        }
    }
}

/// Middleware that refuses requests of others than hosts of the cluster.
pub async fn admit(State(credential): State<Credential>, request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let known = match credential.token() {
        Some(token) => {
            let given = request.headers().get(header::AUTHORIZATION);
            let given = given.and_then(|value| value.to_str().ok());
            let message = "the request does not carry our token";
            let wrong = || {
                ErrorReport::new(Code::HOST_REFUSED, message)
                    .hint("all hosts of a cluster without encryption need the same token file")
            };
            token.is_in(given).then_some(()).ok_or_else(wrong)
        }
        None => credential.check(extensions.get::<PeerSlot>()),
    };
    // The body of a request that is refused is not read.
    let close = [(header::CONNECTION, "close")];
    if let Err(report) = known {
        return (close, Problem { status: StatusCode::UNAUTHORIZED, report }).into_response();
    }
    let given = extensions.get::<Admission>().map_or(Ok(()), |admission| admission.give(None));
    let peer = extensions.get::<PeerSlot>().and_then(PeerSlot::certificate);
    // A host must not end the rule of a leader with a term that it has invented.
    let may_lead = peer.is_none_or(|peer| peer.is_control);
    let terms = credential.terms();
    let whose = peer.map_or("a process", |peer| peer.name.as_str());
    let spoken = given.and_then(|()| check_header(request.headers(), whose));
    match spoken.and_then(|()| terms.learn(request.headers(), may_lead)) {
        Ok(()) => {
            let mut answer = next.run(request).await;
            answer.headers_mut().extend(terms.own().map(|term| (TERM, term.into())));
            answer
        }
        Err(refused) => (close, Problem::from(refused)).into_response(),
    }
}

/// Middleware that refuses requests of others than control. Put it behind [`admit`]: a cluster
/// without encryption cannot tell its processes apart.
pub async fn of_control(
    State(credential): State<Credential>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<PeerSlot>().and_then(PeerSlot::certificate);
    match peer {
        Some(peer) if !peer.is_control && credential.is_encrypted() => {
            let message = format!("the host `{}` gives orders, which only control may", peer.name);
            let report = ErrorReport::new(Code::HOST_REFUSED, message);
            Problem { status: StatusCode::FORBIDDEN, report }.into_response()
        }
        _ => next.run(request).await,
    }
}

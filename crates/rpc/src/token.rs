//! The secret of a cluster, and its check on each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use snowmelt_types::{Code, Digest, ErrorReport};

use crate::Problem;

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

/// Whether a request with the token has arrived on a connection. The server puts one into the
/// extensions of each request of the connection, and may close connections without one.
#[derive(Clone, Debug, Default)]
pub struct Admission(Arc<AtomicBool>);

impl Admission {
    /// Whether the connection is authenticated.
    pub fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A request with a token has arrived.
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Middleware that refuses requests without the token of the cluster.
pub async fn admit(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if token.is_in(given) {
        if let Some(admission) = request.extensions().get::<Admission>() {
            admission.give();
        }
        return next.run(request).await;
    }
    let report = ErrorReport::new(Code::HOST_REFUSED, "the request does not carry our token")
        .hint("all hosts of a cluster need the same token file");
    // The body of the request is not read.
    let close = [(header::CONNECTION, "close")];
    (close, Problem { status: StatusCode::UNAUTHORIZED, report }).into_response()
}

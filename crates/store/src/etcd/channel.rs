//! The way to etcd: one connection to one of its servers, another one when that fails.
//!
//! Invariant: an operation is repeated only if etcd has certainly not done it, or if doing it twice
//! is the same as doing it once; the caller says which.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

use super::connection::EtcdConnection;
use super::grpc::{CallFailure, GrpcCall, GrpcStatus, UNAUTHENTICATED};
use super::messages::{AuthenticateRequest, AuthenticateResponse};
use super::settings::EtcdSettings;
use crate::{Error, Result};

/// Time for one attempt, after which another server is tried.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// The way to etcd.
#[derive(Debug)]
pub(super) struct EtcdChannel {
    settings: EtcdSettings,
    tls: Option<TlsDebug>,
    // Locked while a connection is made: all calls wait for it.
    route: Mutex<Route>,
}

struct TlsDebug(TlsConnector);

impl std::fmt::Debug for TlsDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TLS")
    }
}

#[derive(Debug, Default)]
struct Route {
    connection: Option<Arc<EtcdConnection>>,
    /// The server to try first, by its place in the settings.
    first: usize,
    token: Option<Arc<str>>,
}

/// A connection, and the token of the user.
#[derive(Clone, Debug)]
pub(super) struct Via {
    connection: Arc<EtcdConnection>,
    token: Option<Arc<str>>,
}

impl EtcdChannel {
    pub fn new(settings: EtcdSettings) -> Result<Self> {
        let wrong = |what| Error::Settings { what };
        settings.check().map_err(wrong)?;
        let tls = settings.connector().map_err(wrong)?.map(TlsDebug);
        settings.login().map_err(wrong)?;
        Ok(Self { settings, tls, route: Mutex::default() })
    }

    pub fn settings(&self) -> &EtcdSettings {
        &self.settings
    }

    /// The end of the time of an operation that begins now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    /// Calls a method until it answers: the request is repeated if its answer is lost.
    pub async fn repeat<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, CallFailure> {
        let until = self.deadline();
        loop {
            match self.once(method, request, until).await {
                Err(failure) if failure.passes() && Instant::now() < until => pause().await,
                done => return done,
            }
        }
    }

    /// Calls a method once.
    pub async fn once<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        until: Instant,
    ) -> Result<A, CallFailure> {
        let via = self.via(until).await?;
        let left = until.saturating_duration_since(Instant::now());
        let within = ATTEMPT_TIMEOUT.min(left).max(PAUSE);
        let token = via.token.as_deref();
        let done = via.connection.unary(method, request, token, within).await;
        self.seen(&via, done).await
    }

    /// Begins a call of several messages.
    pub async fn begin<A: Message + Default>(
        &self,
        method: &str,
    ) -> Result<(GrpcCall<A>, Via), CallFailure> {
        let via = self.via(self.deadline()).await?;
        let begun = via.connection.begin(method, via.token.as_deref()).await;
        Ok((self.seen(&via, begun).await?, via))
    }

    /// Leaves a connection that has failed, and forgets a token that is not accepted.
    pub async fn seen<T>(&self, via: &Via, done: Result<T, CallFailure>) -> Result<T, CallFailure> {
        let Err(failure) = &done else { return done };
        let is_token = is_about_token(failure);
        if !failure.passes() && !is_token {
            return done;
        }
        let mut route = self.route.lock().await;
        let same = |now: &Arc<EtcdConnection>| Arc::ptr_eq(now, &via.connection);
        if route.connection.as_ref().is_some_and(same) {
            route.connection = None;
            route.token = None;
            if !is_token {
                route.first += 1;
            }
        }
        drop(route);
        match done {
            // A request without a valid token is not done, and another one gets a new token.
            Err(CallFailure::Refused(status)) if is_token && via.token.is_some() => {
                Err(CallFailure::NotSent(status.message))
            }
            done => done,
        }
    }

    /// The connection, which is made within the time of the operation: others may be waiting for it.
    async fn via(&self, until: Instant) -> Result<Via, CallFailure> {
        in_time(until, self.route()).await
    }

    async fn route(&self) -> Result<Via, CallFailure> {
        let mut route = self.route.lock().await;
        if let Some(connection) = route.connection.as_ref().filter(|open| open.is_open()) {
            let connection = Arc::clone(connection);
            return Ok(Via { connection, token: route.token.clone() });
        }
        let mut failed = CallFailure::NotSent("no server is named".to_owned());
        for _ in 0..self.settings.servers.len() {
            let number = route.first;
            // Whoever comes after an attempt that took too long tries the next server.
            route.first += 1;
            match self.enter(number).await {
                Ok(via) => {
                    route.first = number;
                    route.connection = Some(Arc::clone(&via.connection));
                    route.token.clone_from(&via.token);
                    return Ok(via);
                }
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    /// Connects to a server, and logs in.
    async fn enter(&self, number: usize) -> Result<Via, CallFailure> {
        let server = &self.settings.servers[number % self.settings.servers.len()];
        let tls = self.tls.as_ref().map(|tls| &tls.0);
        let connection = Arc::new(EtcdConnection::open(server, tls).await?);
        let refused = |message| CallFailure::Refused(GrpcStatus { code: UNAUTHENTICATED, message });
        let Some(login) = self.settings.login().map_err(refused)? else {
            return Ok(Via { connection, token: None });
        };
        let request = AuthenticateRequest { name: login.name, password: login.password };
        let answer = connection
            .unary::<AuthenticateResponse>("Auth/Authenticate", &request, None, ATTEMPT_TIMEOUT)
            .await;
        let answer = answer.map_err(|failure| match failure {
            CallFailure::Refused(status) if status.is_definite() => refused(status.message),
            other => CallFailure::NotSent(other.reason().to_owned()),
        })?;
        Ok(Via { connection, token: Some(answer.token.into()) })
    }

    /// The error of an operation whose failure says that it was not done.
    pub fn error(&self, failure: &CallFailure) -> Error {
        let place = self.settings.place();
        let what = failure.reason().to_owned();
        match failure {
            CallFailure::NotSent(_) | CallFailure::Lost(_) => Error::Unreachable { place, what },
            CallFailure::Refused(_) if failure.says("space exceeded") => Error::Quota { place },
            CallFailure::Refused(_)
                if failure.says("request is too large") || failure.says("message larger") =>
            {
                Error::TooLarge { what: format!("{place} refuses a transaction"), limit: what }
            }
            CallFailure::Refused(status) if !status.is_definite() => {
                Error::Unreachable { place, what }
            }
            CallFailure::Refused(_) => Error::Refused { place, what },
        }
    }
}

/// Whether another token would help: etcd forgets tokens, and all of them when users change.
fn is_about_token(failure: &CallFailure) -> bool {
    failure.says("invalid auth token") || failure.says("revision of auth store is old")
}

/// Waits before another attempt.
pub(super) async fn pause() {
    sleep(PAUSE).await;
}

/// Waits for a part of an operation, at most until the time of the operation is over.
pub(super) async fn in_time<T>(
    until: Instant,
    part: impl Future<Output = Result<T, CallFailure>>,
) -> Result<T, CallFailure> {
    let until = until.max(Instant::now() + PAUSE);
    let late = |_| Err(CallFailure::NotSent("no server answers in time".to_owned()));
    tokio::time::timeout_at(until, part).await.unwrap_or_else(late)
}

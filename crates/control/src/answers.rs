//! What the gateway reads of a request and answers: bodies, status codes, problems.
//!
//! Invariant: every refusal or failure is a problem document (RFC 9457) with a code, and only a
//! success has a status below 400.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_api::{FailedCall, Held as Account, Invocation, MOST_REQUEST_BYTES};
use snowmelt_types::{ByteSize, Code, ErrorReport, ExitClass};

/// How long a client that does not read may occupy the memory of an answer.
const ROOM_AT_MOST: Duration = Duration::from_secs(30);

pub(crate) type Answer = Result<Response, Problem>;

/// An error on its way to a client, as problem+json.
pub(crate) struct Problem(pub ErrorReport);

impl From<ErrorReport> for Problem {
    fn from(report: ErrorReport) -> Self {
        Self(report)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        problem(status_of(&self.0), &self.0)
    }
}

fn problem(status: StatusCode, body: &impl Serialize) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, headers, serde_json::to_vec(body).unwrap_or_default()).into_response()
}

/// The status of a request that was refused or failed; docs/functions.md has the table.
fn status_of(report: &ErrorReport) -> StatusCode {
    let code = report.known_code();
    let special = [
        (Code::FUNCTION_MISSING, StatusCode::NOT_FOUND),
        (Code::INVOCATION_MISSING, StatusCode::NOT_FOUND),
        (Code::NETWORK_MISSING, StatusCode::NOT_FOUND),
        (Code::REQUEST_UNKNOWN, StatusCode::NOT_FOUND),
        (Code::TENANT_REFUSED, StatusCode::FORBIDDEN),
        (Code::REQUEST_SIZE, StatusCode::PAYLOAD_TOO_LARGE),
        (Code::CALLS_WAITING, StatusCode::TOO_MANY_REQUESTS),
        (Code::INTERNAL, StatusCode::INTERNAL_SERVER_ERROR),
    ];
    if let Some((_, status)) = special.iter().find(|(special, _)| *special == code) {
        return *status;
    }
    match code.exit {
        ExitClass::Input => StatusCode::UNPROCESSABLE_ENTITY,
        ExitClass::Usage => StatusCode::BAD_REQUEST,
        ExitClass::Platform | ExitClass::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        ExitClass::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// The status of a call that failed. Towards its caller a function is a server of its own: it
/// answers badly, not in time, or cannot be reached.
fn status_of_call(report: &ErrorReport) -> StatusCode {
    match report.known_code().exit {
        ExitClass::Input | ExitClass::Usage => StatusCode::BAD_GATEWAY,
        _ => status_of(report),
    }
}

/// The body of a request.
pub(crate) struct Sent(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // A client that announces the length need not send the body to be refused.
        if length.is_some_and(|length| length > MOST_REQUEST_BYTES as u64) {
            return Err(Problem(too_long()));
        }
        Bytes::from_request(request, state).await.map(Self).map_err(|rejected| {
            if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return Problem(too_long());
            }
            Problem(ErrorReport::new(Code::OPTION, rejected.body_text()))
        })
    }
}

/// The error for a request that is too long.
pub(crate) fn too_long() -> ErrorReport {
    let most = ByteSize(MOST_REQUEST_BYTES as u64);
    let message = format!("the request is longer than the {most} that one may have");
    ErrorReport::new(Code::REQUEST_SIZE, message)
        .hint("send less at once, or put data where the function or the query reads it from")
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    Ok(crate::request::parse(body)?)
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value)
        .map_err(|error| Problem(ErrorReport::new(Code::INTERNAL, error.to_string())))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A call that has ended: itself, or the error that it failed with.
pub(crate) fn answered(mut invocation: Invocation) -> Answer {
    let Some(error) = invocation.error.take() else {
        let room = take_room(&mut invocation).into_iter().collect();
        return Ok(hold(json(StatusCode::OK, &invocation)?, room));
    };
    let status = status_of_call(&error);
    Ok(problem(status, &FailedCall { report: error, invocation }))
}

/// The memory that the answer of a call takes.
pub(crate) fn take_room(invocation: &mut Invocation) -> Option<Account> {
    invocation.result.as_mut()?.take_held()
}

/// Holds the memory of answers until they are sent.
pub(crate) fn hold(response: Response, rooms: Vec<Account>) -> Response {
    if rooms.is_empty() {
        return response;
    }
    let held = Arc::new(Mutex::new(rooms));
    let late = Arc::downgrade(&held);
    tokio::spawn(async move {
        tokio::time::sleep(ROOM_AT_MOST).await;
        if let Some(late) = late.upgrade() {
            late.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    });
    response.map(|body| Body::new(Held { body, _rooms: held }))
}

/// A body, and a value that is dropped once the body is sent.
struct Held {
    body: Body,
    _rooms: Arc<Mutex<Vec<Account>>>,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_has_a_status_of_its_own() {
        let call = |code| status_of_call(&ErrorReport::new(code, "")).as_u16();
        let request = |code| status_of(&ErrorReport::new(code, "")).as_u16();
        assert_eq!([call(Code::FUNCTION_RAISED), call(Code::FUNCTION_MEMORY)], [502, 502]);
        assert_eq!([call(Code::FUNCTION_TIMEOUT), call(Code::SPAWNER_LOST)], [504, 503]);
        assert_eq!([request(Code::FUNCTION_MISSING), request(Code::REQUEST_UNKNOWN)], [404, 404]);
        assert_eq!([request(Code::REQUEST_SIZE), request(Code::CALLS_WAITING)], [413, 429]);
        assert_eq!([request(Code::OPTION), request(Code::FUNCTION_LOAD)], [400, 422]);
    }
}

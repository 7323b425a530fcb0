//! Responses of the gateway to calls: their status codes, and the memory that they take.
//!
//! Invariant: only a success has a status below 400.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use snowmelt_api::{AnswerGuard as Account, FailedCall, Invocation};
use snowmelt_rpc::body::json;
use snowmelt_rpc::problem::{self, ErrorCode, Problem, status_of};
use snowmelt_types::{ErrorReport, ExitClass};
use tokio_util::task::AbortOnDropHandle;

/// How long a client that does not read may occupy the memory of an answer.
const ROOM_AT_MOST: Duration = Duration::from_secs(30);

pub(crate) type HandlerResult = Result<Response, Problem>;

/// Returns the status of a call that failed. Towards its caller a function is a server of its own:
/// it answers badly, not in time, or cannot be reached.
fn status_of_call(report: &ErrorReport) -> StatusCode {
    match report.known_code().exit {
        ExitClass::Input | ExitClass::Usage => StatusCode::BAD_GATEWAY,
        _ => status_of(report),
    }
}

/// Makes the response to a call that has ended: the call itself, or the error that it failed with.
pub(crate) fn answered(mut invocation: Invocation) -> HandlerResult {
    let Some(error) = invocation.error.take() else {
        let room = take_room(&mut invocation).into_iter().collect();
        return Ok(hold(json(StatusCode::OK, &invocation)?, room));
    };
    let status = status_of_call(&error);
    let again = error.retry_after_s;
    let code = ErrorCode(error.code.clone());
    let mut response = problem::document(status, &FailedCall { report: error, invocation });
    if let Some(seconds) = again {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(code);
    Ok(response)
}

/// Takes the account of the memory that the answer of a call uses out of the answer.
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
    let clearing = AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::time::sleep(ROOM_AT_MOST).await;
        if let Some(late) = late.upgrade() {
            late.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }));
    response.map(|body| Body::new(GuardedBody { body, _rooms: held, _clearing: clearing }))
}

/// A body, and values that are dropped once the body is sent.
struct GuardedBody {
    body: Body,
    _rooms: Arc<Mutex<Vec<Account>>>,
    /// A task that ends with the body: one for each of many fast answers would take megabytes.
    _clearing: AbortOnDropHandle<()>,
}

impl hyper::body::Body for GuardedBody {
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
    use snowmelt_types::Code;

    use super::*;

    #[test]
    fn a_failed_call_has_the_status_of_a_failed_server() {
        let call = |code| status_of_call(&ErrorReport::new(code, "")).as_u16();
        assert_eq!([call(Code::FUNCTION_RAISED), call(Code::FUNCTION_MEMORY)], [502, 502]);
        assert_eq!([call(Code::FUNCTION_TIMEOUT), call(Code::SPAWNER_LOST)], [504, 503]);
    }
}

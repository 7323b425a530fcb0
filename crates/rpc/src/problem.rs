//! Errors over HTTP: the status of each, and its body, a problem document (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use snowmelt_types::{Code, ErrorReport, ExitClass};

/// An error as the response to a request.
#[derive(Debug)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    /// The body of the response.
    pub report: ErrorReport,
}

/// The code of an error, in the extensions of its response: for the span of the request, and for the
/// audit.
#[derive(Clone, Debug)]
pub struct ErrorCode(pub String);

impl From<ErrorReport> for Problem {
    fn from(report: ErrorReport) -> Self {
        Self { status: status_of(&report), report }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = document(self.status, &self.report);
        if let Some(seconds) = self.report.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(ErrorCode(self.report.code));
        response
    }
}

/// A response with a problem document.
pub fn document(status: StatusCode, body: &impl Serialize) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, headers, serde_json::to_vec(body).unwrap_or_default()).into_response()
}

/// Returns the status of a request that was refused or failed; docs/reference/functions.md has the
/// table.
pub fn status_of(report: &ErrorReport) -> StatusCode {
    let code = report.known_code();
    if code == Code::QUOTA {
        // Waiting helps, or it does not.
        return if report.retryable {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::FORBIDDEN
        };
    }
    let special = [
        (Code::FUNCTION_MISSING, StatusCode::NOT_FOUND),
        (Code::INVOCATION_MISSING, StatusCode::NOT_FOUND),
        (Code::NETWORK_MISSING, StatusCode::NOT_FOUND),
        (Code::JOB_MISSING, StatusCode::NOT_FOUND),
        (Code::PART_MISSING, StatusCode::NOT_FOUND),
        (Code::HOST_UNKNOWN, StatusCode::NOT_FOUND),
        (Code::REQUEST_UNKNOWN, StatusCode::NOT_FOUND),
        (Code::TENANT_REFUSED, StatusCode::FORBIDDEN),
        (Code::RIGHT_MISSING, StatusCode::FORBIDDEN),
        (Code::KEY_MISSING, StatusCode::NOT_FOUND),
        (Code::KEYS_MOST, StatusCode::TOO_MANY_REQUESTS),
        (Code::TOKEN_REFUSED, StatusCode::UNAUTHORIZED),
        (Code::REQUEST_SIZE, StatusCode::PAYLOAD_TOO_LARGE),
        (Code::CALLS_WAITING, StatusCode::TOO_MANY_REQUESTS),
        (Code::PRUNING_RUNS, StatusCode::TOO_MANY_REQUESTS),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_follows_from_the_code() {
        let status = |code| Problem::from(ErrorReport::new(code, "")).status.as_u16();
        assert_eq!([status(Code::FUNCTION_MISSING), status(Code::REQUEST_UNKNOWN)], [404, 404]);
        assert_eq!([status(Code::REQUEST_SIZE), status(Code::CALLS_WAITING)], [413, 429]);
        assert_eq!([status(Code::TENANT_REFUSED), status(Code::RIGHT_MISSING)], [403, 403]);
        assert_eq!([status(Code::KEY_MISSING), status(Code::KEYS_MOST)], [404, 429]);
        assert_eq!([status(Code::OPTION), status(Code::FUNCTION_LOAD)], [400, 422]);
        assert_eq!([status(Code::SPAWNER_LOST), status(Code::QUERY_TIMEOUT)], [503, 504]);
    }

    #[test]
    fn a_quota_says_when_to_come_again_if_waiting_helps() {
        let reached = || ErrorReport::new(Code::QUOTA, "");
        let later = Problem::from(reached().retry_after(7)).into_response();
        assert_eq!(
            (later.status().as_u16(), &later.headers()[header::RETRY_AFTER]),
            (429, &"7".parse().unwrap())
        );
        let never = Problem::from(reached().not_retryable()).into_response();
        assert_eq!(never.status().as_u16(), 403);
        assert!(!never.headers().contains_key(header::RETRY_AFTER));
    }
}

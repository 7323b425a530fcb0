//! Failures of requests to a registry: what its answers and the HTTP client's errors mean.
//!
//! Invariant: a failure that may pass is [`Error::Unreachable`], so that it is retried, and no
//! other is.

use std::time::{Duration, SystemTime};

use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::{Error, Result};

/// Converts a failure status to an error, which includes the beginning of the body.
pub(super) async fn check_status(registry: &str, what: &str, answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let after = after.and_then(|text| wait(text, SystemTime::now()));
    let reason = reason(status, answer).await;
    Err(match status {
        StatusCode::NOT_FOUND => Error::missing(what),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => denied(registry, what, &reason),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Error::Unreachable { what: what.to_owned(), reason, after }
        }
        _ if status.is_server_error() => {
            Error::Unreachable { what: what.to_owned(), reason, after }
        }
        _ => Error::refused(what, reason),
    })
}

/// Returns the error for an operation that the registry denies.
pub(super) fn denied(registry: &str, what: &str, reason: &str) -> Error {
    Error::Denied {
        registry: registry.to_owned(),
        what: what.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Returns the error for a request without a complete response.
pub(super) fn failed(what: &str, error: &reqwest::Error) -> Error {
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        reason = deeper.to_string();
        cause = deeper.source();
    }
    // Matched by text, because the error's type belongs to the TLS library, which is not a
    // dependency.
    if reason.contains("invalid peer certificate") {
        let reason = reason.replace("UnknownIssuer", "it is not signed by a known authority");
        return Error::Untrusted { what: what.to_owned(), reason };
    }
    if reason.contains("InvalidContentType") {
        reason =
            "it uses plain HTTP, which is allowed only for registries on this machine".to_owned();
    }
    Error::unreachable(what, reason)
}

/// Parses the value of `Retry-After`: seconds or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
        }
    }
}

async fn reason(status: StatusCode, mut answer: Response) -> String {
    let start = answer.chunk().await.ok().flatten().unwrap_or_default();
    format!("status {}: {}", status.as_u16(), error_text(&String::from_utf8_lossy(&start)))
}

/// Returns the text of a failure: the messages of the registry's error list, or the beginning of
/// any other body, on one line.
fn error_text(body: &str) -> String {
    #[derive(Deserialize)]
    struct ErrorEntry {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    #[derive(Deserialize)]
    struct List {
        errors: Vec<ErrorEntry>,
    }
    let listed = serde_json::from_str::<List>(body).ok();
    let text = |ErrorEntry { code, message }: &ErrorEntry| match (code.as_str(), message.as_str()) {
        ("", text) | (text, "") => text.to_owned(),
        (code, message) => format!("{message} ({code})"),
    };
    let text = match listed.filter(|list| !list.errors.is_empty()) {
        Some(list) => list.errors.iter().map(text).collect::<Vec<_>>().join("; "),
        None => body.trim().to_owned(),
    };
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(200).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_retry_after_as_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        assert_eq!(wait("7", now), Some(Duration::from_secs(7)));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait(date, now), Some(Duration::from_secs(7)));
        assert_eq!(wait(date, now + Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(wait("soon", now), None);
    }

    #[test]
    fn failures_contain_the_registrys_messages() {
        let listed = r#"{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required",
            "detail": [{"Type": "repository"}]}, {"message": "who are you?"}]}"#;
        assert_eq!(error_text(listed), "authentication required (UNAUTHORIZED); who are you?");
        assert_eq!(error_text("<h1>\u{1b}No\n</h1>"), "<h1> No </h1>");
        assert_eq!(error_text(r#"{"errors": []}"#), r#"{"errors": []}"#);
        assert_eq!(error_text(""), "");
        assert_eq!(error_text(&"x".repeat(1000)).len(), 200);
    }
}

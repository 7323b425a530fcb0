//! Bodies of requests and responses: JSON, with an error that names the part that is wrong.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::Problem;
use crate::body_timeout::TooSlow;

/// The largest body of a request: code, UDF files and events travel by value, data does not.
pub const MAX_REQUEST_BYTES: usize = 256 << 20;

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RequestBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // A request that announces its length is refused before its body is sent.
        if length.is_some_and(|length| length > MAX_REQUEST_BYTES as u64) {
            return Err(too_long().into());
        }
        Bytes::from_request(request, state).await.map(Self).map_err(|rejected| {
            if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return too_long().into();
            }
            if is_too_slow(&rejected) {
                return ErrorReport::new(Code::OPTION, TooSlow.to_string())
                    .hint("send it over a faster line, or in several requests")
                    .into();
            }
            ErrorReport::new(Code::OPTION, rejected.body_text()).into()
        })
    }
}

fn is_too_slow(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<TooSlow>() || error.source().is_some_and(is_too_slow)
}

/// The error for a request that is too long.
pub fn too_long() -> ErrorReport {
    let most = ByteSize(MAX_REQUEST_BYTES as u64);
    let message = format!("the request is longer than the {most} that one may have");
    ErrorReport::new(Code::REQUEST_SIZE, message)
        .hint("send less at once, or put data where the function or the query reads it from")
}

/// A response of JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value)
        .map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Decodes the body of a request.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReport> {
    serde_json::from_slice(body).map_err(|error| {
        // Decodes again to find the place, which would slow down every valid request.
        let mut reader = serde_json::Deserializer::from_slice(body);
        let (place, words) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => (error.path().to_string(), error.into_inner().to_string()),
            Ok(_) => (".".to_owned(), error.to_string()),
        };
        ErrorReport::new(Code::OPTION, explain(&place, &words))
    })
}

fn explain(place: &str, words: &str) -> String {
    let reason = words.split(" at line ").next().unwrap_or(words);
    let subject = match place {
        "." => "the request".to_owned(),
        named => format!("`{named}` of the request"),
    };
    let wrong = ["invalid value: ", "invalid type: "];
    let wrong = wrong.iter().find_map(|start| reason.strip_prefix(start));
    match wrong.and_then(|reason| reason.split_once(", expected ")) {
        Some((found, wanted)) => format!("{subject} is {found} and must be {}", named(wanted)),
        None => format!("{subject} is not valid: {reason}"),
    }
}

/// Describes a type in words for users who do not write Rust.
fn named(wanted: &str) -> String {
    let most = match wanted {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => u64::MAX,
        other => return other.to_owned(),
    };
    format!("a whole number from 0 to {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Query {
        #[expect(dead_code)]
        sql: String,
        #[expect(dead_code)]
        options: Options,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Options {
        #[expect(dead_code)]
        workers: u32,
    }

    fn refused(body: &str) -> String {
        let report = parse::<Query>(body.as_bytes()).unwrap_err();
        assert_eq!(report.code, "SM-0110");
        report.message
    }

    #[test]
    fn an_error_names_the_field_that_is_wrong() {
        let options =
            |options: &str| refused(&format!("{{\"sql\": \"\", \"options\": {options}}}"));
        assert_eq!(
            options("{\"workers\": -1}"),
            "`options.workers` of the request is integer `-1` and must be a whole number from 0 \
             to 4294967295"
        );
        assert!(options("{\"workers\": \"4\"}").contains("must be a whole number"));
        assert!(options("{\"wrokers\": 4}").contains("unknown field `wrokers`"));
        assert!(refused("{}").starts_with("the request is not valid: missing field `sql`"));
        assert!(refused("{\"sql\": ").contains("is not valid"));
    }
}

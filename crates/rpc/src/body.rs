//! Bodies of requests and responses: JSON, with an error that names the part that is wrong.

use std::fmt;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::Problem;
use crate::body_timeout::TooSlow;

/// The largest body of a request: code, UDF files and events travel by value, data does not.
pub const MAX_REQUEST_BYTES: usize = 256 << 20;

/// The body of a request. Where bodies are counted, it counts until the last copy is dropped.
#[derive(Debug)]
pub struct RequestBody(pub Bytes);

/// The count of the bytes of a body that is held in memory. They count until it is dropped.
pub trait BodyCount: Send + Sync {
    /// Counts as many bytes as are needed to have this many.
    ///
    /// # Errors
    /// The reason why there may not be that many.
    fn grow_to(&mut self, bytes: u64) -> Result<(), ErrorReport>;
}

/// A function that begins to count a body; in the extensions of a request whose body counts.
#[derive(Clone)]
pub struct CountedBodies(pub Arc<dyn Fn() -> Box<dyn BodyCount> + Send + Sync>);

impl fmt::Debug for CountedBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountedBodies")
    }
}

/// Bytes that count as long as they are held.
struct CountedBytes {
    bytes: Bytes,
    _count: Box<dyn BodyCount>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<S: Send + Sync> FromRequest<S> for RequestBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // A request that announces its length is refused before its body is sent.
        if length.is_some_and(|length| length > MAX_REQUEST_BYTES as u64) {
            return Err(too_long().into());
        }
        if let Some(counted) = request.extensions().get::<CountedBodies>() {
            let count = (counted.0)();
            return self::counted(request.into_body(), count, length.unwrap_or_default())
                .await
                .map(Self);
        }
        Bytes::from_request(request, state).await.map(Self).map_err(|rejected| {
            if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return too_long().into();
            }
            broken(&rejected, rejected.body_text()).into()
        })
    }
}

/// Reads a body whose bytes count: those that it announces at once, before they are sent.
async fn counted(
    mut body: Body,
    mut count: Box<dyn BodyCount>,
    announced: u64,
) -> Result<Bytes, Problem> {
    if let Err(refused) = count.grow_to(announced) {
        discard(body).await;
        return Err(refused.into());
    }
    let mut whole = Bytes::new();
    let mut parts = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error, error.to_string()))?;
        let Ok(part) = frame.into_data() else { continue };
        let length = parts.len().max(whole.len()) + part.len();
        if length > MAX_REQUEST_BYTES {
            return Err(too_long().into());
        }
        if let Err(refused) = count.grow_to(length as u64) {
            discard(body).await;
            return Err(refused.into());
        }
        // Most bodies are one part, which is not copied.
        if whole.is_empty() && parts.is_empty() {
            whole = part;
            continue;
        }
        if parts.is_empty() {
            parts.reserve(usize::try_from(announced).unwrap_or_default().max(length));
            parts.extend_from_slice(&whole);
        }
        parts.extend_from_slice(&part);
    }
    let bytes = if parts.is_empty() { whole } else { parts.into() };
    Ok(Bytes::from_owner(CountedBytes { bytes, _count: count }))
}

/// Reads the rest of a body that is refused, and keeps none of it: a client that still sends would
/// not read the answer.
async fn discard(mut body: Body) {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
        if length > MAX_REQUEST_BYTES {
            return;
        }
    }
}

fn broken(error: &(dyn std::error::Error + 'static), text: String) -> ErrorReport {
    if is_too_slow(error) {
        return ErrorReport::new(Code::OPTION, TooSlow.to_string())
            .hint("send it over a faster line, or in several requests");
    }
    ErrorReport::new(Code::OPTION, text)
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

    /// A count with a limit, whose bytes are seen from outside.
    struct Limited(Arc<std::sync::atomic::AtomicU64>, u64);

    impl BodyCount for Limited {
        fn grow_to(&mut self, bytes: u64) -> Result<(), ErrorReport> {
            if bytes > self.1 {
                return Err(ErrorReport::new(Code::QUOTA, "full").retry_after(1));
            }
            self.0.fetch_max(bytes, std::sync::atomic::Ordering::SeqCst);
            Ok(())
        }
    }

    impl Drop for Limited {
        fn drop(&mut self) {
            self.0.store(0, std::sync::atomic::Ordering::SeqCst);
        }
    }

    async fn read(parts: &[&'static str], most: u64) -> Result<(u64, String, u64), String> {
        let now = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = Arc::clone(&now);
        let stream = futures::stream::iter(
            parts
                .iter()
                .map(|part| Ok::<_, std::io::Error>(Bytes::from(*part)))
                .collect::<Vec<_>>(),
        );
        let mut request = Request::new(Body::from_stream(stream));
        let counted = CountedBodies(Arc::new(move || Box::new(Limited(Arc::clone(&count), most))));
        request.extensions_mut().insert(counted);
        let read = RequestBody::from_request(request, &()).await;
        let RequestBody(bytes) = read.map_err(|problem| problem.report.code)?;
        let held = now.load(std::sync::atomic::Ordering::SeqCst);
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        drop(bytes);
        Ok((held, text, now.load(std::sync::atomic::Ordering::SeqCst)))
    }

    #[tokio::test]
    async fn a_body_counts_as_long_as_it_is_held() {
        assert_eq!(read(&["abc"], 10).await, Ok((3, "abc".to_owned(), 0)));
        assert_eq!(read(&["abc", "de", "f"], 6).await, Ok((6, "abcdef".to_owned(), 0)));
        assert_eq!(read(&[], 6).await, Ok((0, String::new(), 0)));
        assert_eq!(read(&["abc", "de", "f"], 5).await, Err("SM-0533".to_owned()));
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

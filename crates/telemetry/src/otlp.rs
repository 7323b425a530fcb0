//! Spans in the JSON encoding of OTLP 1.x: `POST /v1/traces`.
//!
//! Identifiers are lower-case hexadecimal, and 64-bit numbers are text, as the encoding requires.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::settings::Settings;
use crate::span::{Span, Value};

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// The process that records spans.
#[derive(Debug)]
pub struct Resource(Json);

impl Resource {
    pub fn new(settings: &Settings) -> Self {
        let attributes: Vec<_> = settings
            .resource
            .iter()
            .map(|(name, value)| attribute(name, &Value::Text(value.clone())))
            .collect();
        Self(json!({ "attributes": attributes }))
    }

    /// The body of a request with these spans.
    pub fn request(&self, spans: &[Span]) -> Vec<u8> {
        let spans: Vec<_> = spans.iter().map(encoded).collect();
        let scope = json!({ "name": "snowmelt", "version": env!("CARGO_PKG_VERSION") });
        let body = json!({
            "resourceSpans": [{
                "resource": self.0,
                "scopeSpans": [{ "scope": scope, "spans": spans }],
            }],
        });
        body.to_string().into_bytes()
    }
}

fn encoded(span: &Span) -> Json {
    let attributes: Vec<_> =
        span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut encoded = json!({
        "traceId": span.trace.to_string(),
        "spanId": hexadecimal(span.id),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = hexadecimal(parent).into();
    }
    if span.has_failed {
        encoded["status"] = json!({ "code": ERROR });
    }
    encoded
}

fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Integer(number) => json!({ "intValue": number.to_string() }),
        Value::Boolean(boolean) => json!({ "boolValue": boolean }),
    };
    json!({ "key": name, "value": value })
}

fn hexadecimal(id: u64) -> String {
    format!("{id:016x}")
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snowmelt_rpc::RequestId;

    use super::*;
    use crate::settings::Settings;
    use crate::span::SpanKind;

    #[test]
    fn a_span_is_encoded_as_the_protocol_says() {
        let trace = RequestId::new();
        let mut span = Span::begin(trace, Some(0xab), "GET /v1/hosts");
        (span.id, span.kind, span.has_failed) = (0xcd, SpanKind::Server, true);
        span.began = UNIX_EPOCH + Duration::from_secs(1);
        span.ended = span.began + Duration::from_nanos(5);
        span.attributes = vec![("http.response.status_code", Value::Integer(503))];
        let settings = Settings::new("http://localhost:4318/v1/traces".parse().unwrap());
        let body = Resource::new(&settings).request(&[span]);
        let body: Json = serde_json::from_slice(&body).unwrap();
        let found = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let attributes =
            json!([{ "key": "http.response.status_code", "value": { "intValue": "503" } }]);
        let expected = json!({
            "traceId": trace.to_string(),
            "spanId": "00000000000000cd",
            "parentSpanId": "00000000000000ab",
            "name": "GET /v1/hosts",
            "kind": 2,
            "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "1000000005",
            "attributes": attributes,
            "status": { "code": 2 },
        });
        assert_eq!(*found, expected);
    }
}

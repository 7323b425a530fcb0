//! The place where spans are sent, and the description of the process in them.

use std::fmt;
use std::str::FromStr;

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use snowmelt_rpc::trace::Sampler;

/// The name of the service if none is configured.
const SERVICE: &str = "snowmelt";

/// The settings of an export.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to which spans are sent.
    pub endpoint: Endpoint,
    /// The headers that are sent with each request.
    pub headers: HeaderMap,
    /// The attributes of this process.
    pub resource: Vec<(String, String)>,
    /// The rule that decides which requests are recorded.
    pub sampler: Sampler,
}

impl Settings {
    /// The default settings for an endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        let mut settings = Self {
            endpoint,
            headers: HeaderMap::new(),
            resource: Vec::new(),
            sampler: Sampler::default(),
        };
        settings.describe("service.name", SERVICE);
        settings.describe("service.version", snowmelt_rpc::version());
        settings
    }

    /// Sets an attribute of this process.
    pub fn describe(&mut self, name: &str, value: &str) {
        self.resource.retain(|(known, _)| known != name);
        self.resource.push((name.to_owned(), value.to_owned()));
    }

    /// Adds a header. Returns false if the text is not a header.
    pub fn send(&mut self, name: &str, value: &str) -> bool {
        let header = (HeaderName::from_str(name), HeaderValue::from_str(value));
        let (Ok(name), Ok(mut value)) = header else { return false };
        // It is often a secret, and must not be in the log of the HTTP client.
        value.set_sensitive(true);
        self.headers.insert(name, value);
        true
    }
}

/// The URL to which spans are posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// The URL.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reason why a URL is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongEndpoint {
    /// The text is not a URL with a host.
    #[error("it is not a URL like http://127.0.0.1:4318/v1/traces")]
    Form,
    /// The URL is not plain HTTP: spans are sent without TLS.
    #[error(
        "spans are sent over plain http only: put a collector on this machine, which forwards them with TLS"
    )]
    Tls,
    /// The URL has a user or password, and URLs are shown by commands and in logs.
    #[error("it contains a password: send it in a header, with OTEL_EXPORTER_OTLP_HEADERS")]
    Password,
}

impl FromStr for Endpoint {
    type Err = WrongEndpoint;

    fn from_str(text: &str) -> Result<Self, WrongEndpoint> {
        let uri: Uri = text.trim().parse().map_err(|_| WrongEndpoint::Form)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(WrongEndpoint::Password);
        }
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP && uri.host().is_some() => Ok(Self(uri)),
            Some(scheme) if *scheme == Scheme::HTTPS => Err(WrongEndpoint::Tls),
            _ => Err(WrongEndpoint::Form),
        }
    }
}

/// Splits a list like `name=value,other=value`, in which `%2C` is a comma, into pairs. Parts that
/// are not pairs are left out.
pub fn pairs(list: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((decoded(name.trim())?, decoded(value.trim())?))
    };
    list.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
}

/// A text without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        (rest, bytes) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                (after, bytes)
            }
            _ => {
                bytes.push(*first);
                (after, bytes)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_url_without_a_password_is_an_endpoint() {
        let endpoint: Endpoint = "http://127.0.0.1:4318/v1/traces".parse().unwrap();
        assert_eq!(endpoint.to_string(), "http://127.0.0.1:4318/v1/traces");
        for (text, wrong) in [
            ("https://collector.example/v1/traces", WrongEndpoint::Tls),
            ("http://ada:secret@collector/v1/traces", WrongEndpoint::Password),
            ("127.0.0.1:4318", WrongEndpoint::Form),
            ("/v1/traces", WrongEndpoint::Form),
            ("", WrongEndpoint::Form),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(wrong), "{text}");
        }
    }

    #[test]
    fn pairs_are_decoded() {
        let found = pairs("authorization=Bearer%20x=y, a=1%2C2,,wrong,=x,bad=%zz");
        let expected = [("authorization", "Bearer x=y"), ("a", "1,2")];
        assert_eq!(found, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused() {
        let mut settings = Settings::new("http://127.0.0.1:4318".parse().unwrap());
        assert!(settings.send("x-scope", "a") && !settings.send("x scope", "a"));
        assert!(!settings.send("x-scope", "a\nb"));
    }
}

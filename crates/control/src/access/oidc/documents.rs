//! Requests to an issuer: its configuration, its keys, and what a client posts to log in.
//!
//! Invariants: an issuer is reached over TLS, and without it only on this machine. Nothing leads a
//! request elsewhere. A document has a limit of bytes, and an answer a limit of time.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, Client, Response, StatusCode, redirect};
use serde::Deserialize;
use url::{Host, Url};

/// The most bytes of a document of an issuer.
const MAX_DOCUMENT_BYTES: usize = 512 << 10;

/// How long an issuer may take for an answer.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of an issuer (OpenID Connect Discovery 1.0, RFC 8414).
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct IssuerMetadata {
    issuer: String,
    pub jwks_uri: Option<String>,
    pub token_endpoint: Option<String>,
    pub device_authorization_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
}

/// Sends requests to an issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerHttp(Client);

/// An answer of an issuer to a form.
#[derive(Debug)]
pub(crate) struct FormAnswer {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

impl IssuerHttp {
    /// Trusts the authorities of a PEM text, or those of the system.
    pub fn new(authorities: Option<&[u8]>) -> Result<Self, String> {
        let mut builder = Client::builder()
            .timeout(ISSUER_TIMEOUT)
            .redirect(redirect::Policy::none())
            .user_agent("snowmelt");
        if let Some(pem) = authorities {
            let found = Certificate::from_pem_bundle(pem).map_err(reason)?;
            if found.is_empty() {
                return Err("there is no PEM certificate".to_owned());
            }
            builder = builder.tls_built_in_root_certs(false);
            builder =
                found.into_iter().fold(builder, |builder, one| builder.add_root_certificate(one));
        }
        builder.build().map(Self).map_err(reason)
    }

    /// Reads the configuration of an issuer, which must be its own.
    pub async fn discover(&self, issuer: &str) -> Result<IssuerMetadata, String> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let body = self.get(&url).await?;
        let metadata: IssuerMetadata =
            serde_json::from_slice(&body).map_err(|error| format!("{url}: {error}"))?;
        if metadata.issuer != issuer {
            return Err(format!("{url} is the configuration of another issuer"));
        }
        Ok(metadata)
    }

    /// Reads a document.
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let request = self.0.get(address(url)?).header(ACCEPT, "application/json");
        let failed = |error| format!("{url}: {}", reason(error));
        let response = request.send().await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(format!("{url} answers {}", response.status()));
        }
        body(response).await.map_err(|problem| format!("{url}: {problem}"))
    }

    /// Posts a form.
    pub async fn post(&self, url: &str, fields: &[(&str, &str)]) -> Result<FormAnswer, String> {
        let form =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self
            .0
            .post(address(url)?)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let response = request.send().await.map_err(|error| format!("{url}: {}", reason(error)))?;
        let status = response.status();
        let body = body(response).await.map_err(|problem| format!("{url}: {problem}"))?;
        Ok(FormAnswer { status, body })
    }
}

/// Reads a URL of an issuer.
///
/// # Errors
/// A text that says why the URL is not one to which a secret may be sent.
pub(crate) fn address(url: &str) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|error| format!("`{url}`: {error}"))?;
    let is_here = match parsed.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let is_safe = parsed.scheme() == "https" || parsed.scheme() == "http" && is_here;
    if !is_safe || !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(format!("`{url}` is not an https:// address"));
    }
    Ok(parsed)
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    while let Some(part) = response.chunk().await.map_err(reason)? {
        if read.len() + part.len() > MAX_DOCUMENT_BYTES {
            return Err(format!("the answer has more than {MAX_DOCUMENT_BYTES} bytes"));
        }
        read.extend_from_slice(&part);
    }
    Ok(read)
}

/// Returns the first cause of an error: the errors above it say only that a request failed.
fn reason(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("there is no answer within {} s", ISSUER_TIMEOUT.as_secs());
    }
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_reached_over_tls_or_on_this_machine() {
        for url in [
            "https://login.example/a",
            "http://127.0.0.1:1/",
            "http://[::1]:1",
            "http://localhost:80",
        ] {
            address(url).unwrap();
        }
        for url in [
            "http://login.example",
            "http://127.0.0.1.login.example",
            "https://user:password@login.example",
            "file:///etc/passwd",
            "login.example",
        ] {
            assert!(address(url).is_err(), "{url}");
        }
    }
}

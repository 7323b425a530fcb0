//! Answers authentication challenges of registries: with a user name and password, or with a token
//! that the registry's token server issues for them (Docker's token and OAuth 2 specifications).
//!
//! Invariant: a secret is sent only to the registry and to the token server that it names, and
//! encrypted unless they run on this machine.

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, Url};
use serde::Deserialize;
use url::form_urlencoded;

use super::Credentials;
use super::failure::{check_status, denied, failed};
use crate::{Error, Result};

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

/// The user's account at a registry, as far as it is needed to answer a challenge.
pub(super) struct RegistryAccount<'a> {
    /// The client, for requests to the token server.
    pub http: &'a reqwest::Client,
    /// The host of the registry, for errors.
    pub registry: &'a str,
    /// The user's credentials. `None` for anonymous access.
    pub credentials: Option<&'a Credentials>,
}

impl RegistryAccount<'_> {
    /// Makes the `Authorization` header that a challenge requires.
    pub async fn authorize(&self, answer: &Response) -> Result<String> {
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        for challenge in challenges.filter_map(|value| value.to_str().ok()) {
            let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(parameters).await;
            }
            if scheme.eq_ignore_ascii_case("basic")
                && let Some(login) = self.credentials
            {
                return Ok(basic(login));
            }
        }
        Err(denied(self.registry, "it", "it requires a login"))
    }

    async fn token(&self, parameters: &str) -> Result<String> {
        let realm = parameter(parameters, "realm").and_then(|realm| Url::parse(&realm).ok());
        let Some(realm) = realm else {
            return Err(denied(self.registry, "it", "its challenge is malformed"));
        };
        // A malicious answer must not cause the secret to be sent unencrypted.
        if realm.scheme() != "https" && !realm.host_str().is_some_and(is_loopback) {
            return Err(denied(self.registry, "it", "it requests the login over plain HTTP"));
        }
        let what = format!("a token from {}", realm.host_str().unwrap_or_default());
        let request = self.request(realm, parameters);
        let answer = request.send().await.map_err(|error| failed(&what, &error))?;
        let answer = check_status(self.registry, &what, answer).await?;
        let bytes = answer.bytes().await.map_err(|error| failed(&what, &error))?;
        let token: TokenResponse = serde_json::from_slice(&bytes)
            .map_err(|error| Error::refused(&what, error.to_string()))?;
        match token.token.or(token.access_token).filter(|token| !token.is_empty()) {
            Some(token) => Ok(format!("Bearer {token}")),
            None => Err(denied(self.registry, "it", "it returns no token")),
        }
    }

    /// Makes the request to the token server. For an identity token, which `docker login` stores
    /// for some registries, the OAuth 2 form is used; otherwise the older GET request, which every
    /// token server supports.
    fn request(&self, mut realm: Url, parameters: &str) -> RequestBuilder {
        let asked = ["service", "scope"];
        let asked = asked.into_iter().filter_map(|key| Some((key, parameter(parameters, key)?)));
        let login = self.credentials;
        if let Some(login) = login.filter(|login| login.user.is_empty()) {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("client_id", "snowmelt");
            form.append_pair("refresh_token", &login.secret);
            form.extend_pairs(asked);
            let request = self.http.post(realm);
            return request
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.finish());
        }
        realm.query_pairs_mut().extend_pairs(asked);
        let request = self.http.get(realm);
        match login {
            Some(login) => request.header(AUTHORIZATION, basic(login)),
            None => request,
        }
    }
}

fn basic(login: &Credentials) -> String {
    use base64::Engine;
    let text = format!("{}:{}", login.user, login.secret);
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Returns the value of `key="value"` in a challenge.
fn parameter(parameters: &str, key: &str) -> Option<String> {
    let mut rest = parameters;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        if name.trim_start_matches([',', ' ']).eq_ignore_ascii_case(key) {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

/// Returns whether a host is this machine, to which a secret may be sent unencrypted.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_challenges() {
        let challenge =
            r#"realm="https://auth/token",service="r",scope="repository:a/b:pull,push""#;
        assert_eq!(parameter(challenge, "scope").unwrap(), "repository:a/b:pull,push");
        assert_eq!(parameter(challenge, "realm").unwrap(), "https://auth/token");
        assert_eq!(parameter(challenge, "error"), None);
        assert_eq!(parameter("realm=\"x", "realm"), None);
    }

    #[test]
    fn plain_http_is_allowed_on_this_machine_only() {
        for host in ["localhost:5000", "127.0.0.1:1", "[::1]:5000", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry-1.docker.io", "10.0.0.1:5000", "localhost.example:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}

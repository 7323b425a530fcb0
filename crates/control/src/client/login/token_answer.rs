//! Answers of the token endpoint of an issuer (RFC 6749, section 5).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use snowmelt_api::TokenKind;
use snowmelt_types::{Code, ErrorReport};

use crate::access::oidc::documents::FormAnswer;
use crate::now_ms;

/// How long a token lasts whose issuer does not say it.
const UNKNOWN_LIFE_MS: u64 = 300_000;

/// Tokens of an issuer.
#[derive(Deserialize)]
pub(super) struct IssuedTokens {
    access_token: Option<String>,
    id_token: Option<String>,
    pub refresh_token: Option<String>,
    expires_in: Option<f64>,
}

/// A token for the platform, and its end in milliseconds since 1970.
pub(super) struct PlatformToken {
    pub text: String,
    pub expires_ms: u64,
}

/// Why an issuer gives no tokens.
#[derive(Debug, Deserialize)]
pub(super) struct TokenRefusal {
    /// A word of the standard.
    pub error: String,
    error_description: Option<String>,
}

#[derive(Deserialize)]
struct ExpiryClaim {
    exp: f64,
}

impl IssuedTokens {
    /// Reads an answer.
    pub fn read(answer: &FormAnswer) -> Result<Self, TokenRefusal> {
        if answer.status.is_success() {
            return serde_json::from_slice(&answer.body)
                .map_err(|_| TokenRefusal::of("an answer without tokens"));
        }
        Err(serde_json::from_slice(&answer.body)
            .unwrap_or_else(|_| TokenRefusal::of(&format!("the answer {}", answer.status))))
    }

    /// Returns the token that the platform takes.
    pub fn for_platform(&self, kind: TokenKind) -> Result<PlatformToken, ErrorReport> {
        let text = match kind {
            TokenKind::Access => &self.access_token,
            TokenKind::Id => &self.id_token,
        };
        let text = text.clone().ok_or_else(|| {
            let named = if kind == TokenKind::Id { "identity" } else { "access" };
            ErrorReport::new(Code::ISSUER, format!("the issuer gives no {named} token"))
                .hint("the scopes of the login need `openid` for identity tokens")
        })?;
        let life = self.expires_in.filter(|seconds| (0.0..1e9).contains(seconds));
        let life = life.map_or(UNKNOWN_LIFE_MS, |seconds| (seconds * 1000.0) as u64);
        let expires_ms = expiry(&text).unwrap_or_else(|| now_ms().saturating_add(life));
        Ok(PlatformToken { text, expires_ms })
    }
}

impl TokenRefusal {
    fn of(error: &str) -> Self {
        Self { error: error.to_owned(), error_description: None }
    }

    /// Makes the error of a login that the issuer refuses.
    pub fn report(&self, issuer: &str) -> ErrorReport {
        let why = self.error_description.as_ref().unwrap_or(&self.error);
        // The text of another program is shown on a terminal.
        let why: String = why.chars().filter(|c| !c.is_control()).take(300).collect();
        ErrorReport::new(Code::LOGIN, format!("{issuer} refuses the login: {why}"))
    }
}

/// Returns the end that a token itself has.
fn expiry(token: &str) -> Option<u64> {
    let claims = token.split('.').nth(1)?;
    let claims: ExpiryClaim = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    (0.0..1e12).contains(&claims.exp).then_some((claims.exp * 1000.0) as u64)
}

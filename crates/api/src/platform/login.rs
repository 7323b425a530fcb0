//! How people log in to a platform, at an issuer of tokens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The issuers at which clients may log in. Whoever asks needs no key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LoginOffer {
    /// The issuers; none: the platform has keys only.
    pub issuers: Vec<LoginIssuer>,
}

/// An issuer of tokens that the platform accepts, and how a client asks for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginIssuer {
    /// The URL of the issuer, as in its tokens.
    pub issuer: String,
    /// The name of the command line at the issuer, a client without a secret.
    pub client_id: String,
    /// The scopes to ask for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The token to send to the platform.
    #[serde(default)]
    pub token: TokenKind,
    /// The audience to ask for, where the issuer wants it named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// The tokens of an issuer that tell who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// The access token.
    #[default]
    Access,
    /// The identity token, where access tokens are not signed texts.
    Id,
}

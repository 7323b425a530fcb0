//! Why a token of an issuer is not accepted.

use thiserror::Error;

/// The first flaw that was found in a token. Nothing of the token is in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TokenFlaw {
    #[error("it is too long")]
    Length,
    #[error("it is not three parts of base64url with JSON in the first two")]
    Form,
    #[error(
        "its algorithm is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA"
    )]
    Algorithm,
    #[error("it is of a type that is no access token and no identity token")]
    Type,
    #[error("its header has `crit`, which nothing here understands")]
    Critical,
    #[error("its issuer is not configured")]
    Issuer,
    #[error("its issuer has no key with this `kid`")]
    Key,
    #[error("the key of its issuer is not one for its algorithm")]
    KeyType,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is for another audience")]
    Audience,
    #[error("it has no `exp`, or one that is no time")]
    Times,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet (`nbf`)")]
    Early,
    #[error("it was issued in the future (`iat`)")]
    Issued,
    #[error("its `sub` is missing, too long or not plain text")]
    Subject,
}

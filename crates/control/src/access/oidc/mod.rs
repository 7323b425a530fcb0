//! Tokens of issuers (OpenID Connect): who brings one, and what it may do here.
//!
//! | part | file |
//! |---|---|
//! | the file of issuers | `issuer_file` |
//! | rules that give tenants and roles by claims | `rules` |
//! | the form of tokens, and their signatures | `jwt` |
//! | audience and times of tokens, and texts of their claims | `claims` |
//! | public keys of an issuer | `jwks` |
//! | keys that are kept, and when they are read again | `key_cache` |
//! | requests to issuers | `documents` |
//! | why a token is not accepted | `flaw` |
//!
//! Invariants: no claim counts before the signature was checked, except that `iss` chooses among the
//! configured issuers. A token is in no log and no error.

mod claims;
pub(crate) mod documents;
mod flaw;
mod issuer_file;
mod jwks;
mod jwt;
mod key_cache;
mod rules;

use std::path::Path;

use snowmelt_api::{LoginIssuer, LoginOffer};
use snowmelt_types::{Code, ErrorReport, Tenant};

use super::key::KeyLife;
use crate::now_ms;
use claims::TokenClaims;
use flaw::TokenFlaw;
use issuer_file::IssuerSettings;
use jwt::SignedToken;
use key_cache::IssuerKeys;
pub(crate) use rules::Membership;
use rules::memberships;

/// The issuers whose tokens are accepted.
#[derive(Debug, Default)]
pub struct Issuers(Vec<TokenIssuer>);

#[derive(Debug)]
struct TokenIssuer {
    settings: IssuerSettings,
    keys: IssuerKeys,
}

/// The holder of a token, as issuer and rules know it.
#[derive(Clone, Debug)]
pub(crate) struct TokenBearer {
    /// The subject at its issuer.
    pub principal: String,
    memberships: Vec<Membership>,
    pub life: KeyLife,
}

impl Issuers {
    /// Reads the issuers of a file, which may belong to `server`, the user that the server becomes.
    /// Asks none of them yet.
    ///
    /// # Errors
    /// `SM-0110`.
    pub fn open(path: &Path, server: Option<u32>) -> Result<Self, ErrorReport> {
        let read = issuer_file::read(path, server).map_err(|problem| {
            ErrorReport::new(Code::OPTION, format!("{}: {problem}", path.display()))
                .hint("docs/reference/login.md describes the file of issuers")
        })?;
        let issuers = read.into_iter().map(|settings| {
            let keys = IssuerKeys::new(&settings.url, settings.http.clone(), settings.keys_kept);
            TokenIssuer { settings, keys }
        });
        Ok(Self(issuers.collect()))
    }

    /// Returns whether a text looks like the token of an issuer, and there are issuers.
    pub(crate) fn reads(&self, text: &str) -> bool {
        !self.0.is_empty() && text.starts_with("ey") && text.split('.').count() == 3
    }

    /// Returns how people log in.
    pub(crate) fn offer(&self) -> LoginOffer {
        let offered = self.0.iter().filter_map(|TokenIssuer { settings, .. }| {
            Some(LoginIssuer {
                issuer: settings.url.clone(),
                client_id: settings.client_id.clone()?,
                scopes: settings.scopes.clone(),
                token: settings.token,
                audience: settings.audiences.first().cloned(),
            })
        });
        LoginOffer { issuers: offered.collect() }
    }

    /// Returns the holder of a token.
    ///
    /// # Errors
    /// `SM-0515` for a token that is not accepted, `SM-0524` if its issuer does not answer.
    pub(crate) async fn bearer(&self, text: &str) -> Result<TokenBearer, ErrorReport> {
        let token = SignedToken::parse(text).map_err(refused)?;
        let claims = TokenClaims::parse(&token.claims).map_err(refused)?;
        let named = claims.issuer().map_err(refused)?;
        let found = self.0.iter().find(|issuer| issuer.settings.url == named);
        let TokenIssuer { settings, keys } = found.ok_or_else(|| refused(TokenFlaw::Issuer))?;
        // Before the keys: a token that is over does not lead to a request to its issuer.
        let end = claims.check(&settings.audiences, settings.clock_skew, now_ms());
        let end = end.map_err(refused)?;
        let kid = token.kid.as_deref();
        let keys = keys.with(kid).await.map_err(|problem| {
            let message = format!("the token of the request cannot be checked: {problem}");
            ErrorReport::new(Code::ISSUER, message).hint("try again; a key works meanwhile")
        })?;
        token.verify(keys.named(kid)).map_err(refused)?;
        let subject = claims.subject().map_err(refused)?;
        Ok(TokenBearer {
            principal: format!("{subject} at {}", settings.url),
            memberships: memberships(&settings.rules, &claims),
            life: KeyLife::Fixed(Some(end)),
        })
    }
}

impl TokenBearer {
    /// Returns what the holder may do for a tenant that the request names, or for its first one.
    ///
    /// # Errors
    /// `SM-0513` if no rule gives the holder this tenant, or any.
    pub fn membership(&self, named: Option<&Tenant>) -> Result<Membership, ErrorReport> {
        let is_operator = |given: &&Membership| given.tenant == Tenant::default();
        let found = match named {
            None => self.memberships.first(),
            Some(named) => {
                let own = self.memberships.iter().find(|given| given.tenant == *named);
                // An operator acts for every tenant.
                own.or_else(|| self.memberships.iter().find(is_operator))
            }
        };
        found.cloned().ok_or_else(|| {
            let who = &self.principal;
            let tenants: Vec<_> =
                self.memberships.iter().map(|given| format!("`{}`", given.tenant)).collect();
            let message = match named {
                Some(named) if !tenants.is_empty() => {
                    format!("{who} acts for {} and not for `{named}`", tenants.join(", "))
                }
                _ => format!("no rule gives {who} a tenant"),
            };
            ErrorReport::new(Code::TENANT_REFUSED, message)
                .hint("the operator of the platform writes rules for claims of tokens")
        })
    }
}

fn refused(flaw: TokenFlaw) -> ErrorReport {
    let message = format!("the token of the request is not accepted: {flaw}");
    ErrorReport::new(Code::TOKEN_REFUSED, message).hint("`snowmelt login` gets another one")
}

#[cfg(test)]
mod tests;

//! The claims of a token whose signature was checked: for whom it is, when it is valid, and texts
//! that rules compare.

use std::time::Duration;

use serde_json::{Map, Value};

use super::flaw::TokenFlaw;

/// The most bytes of a subject.
const MAX_SUBJECT: usize = 255;

/// Claims whose text is a list of words (RFC 8693).
const WORD_LISTS: [&str; 2] = ["scope", "scp"];

/// The claims of a token.
#[derive(Debug)]
pub(super) struct TokenClaims(Map<String, Value>);

impl TokenClaims {
    /// Reads the JSON of a token's claims.
    pub fn parse(bytes: &[u8]) -> Result<Self, TokenFlaw> {
        serde_json::from_slice(bytes).map(Self).map_err(|_| TokenFlaw::Form)
    }

    /// Returns the issuer that the token names.
    pub fn issuer(&self) -> Result<&str, TokenFlaw> {
        self.0.get("iss").and_then(Value::as_str).ok_or(TokenFlaw::Issuer)
    }

    /// Returns the name of the user at the issuer.
    pub fn subject(&self) -> Result<&str, TokenFlaw> {
        let subject = self.0.get("sub").and_then(Value::as_str);
        let is_plain = |subject: &&str| {
            !subject.is_empty()
                && subject.len() <= MAX_SUBJECT
                && !subject.chars().any(char::is_control)
        };
        subject.filter(is_plain).ok_or(TokenFlaw::Subject)
    }

    /// Checks audience and times. Returns the end of the token, in milliseconds since 1970.
    pub fn check(
        &self,
        audiences: &[String],
        clock_skew: Duration,
        now_ms: u64,
    ) -> Result<u64, TokenFlaw> {
        let is_ours = |value: &Value| {
            value.as_str().is_some_and(|name| audiences.iter().any(|own| own == name))
        };
        let is_for_us = match self.0.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
        if !is_for_us {
            return Err(TokenFlaw::Audience);
        }
        let skew_ms = u64::try_from(clock_skew.as_millis()).unwrap_or(u64::MAX);
        let end = self.time("exp")?.ok_or(TokenFlaw::Times)?.saturating_add(skew_ms);
        if end <= now_ms {
            return Err(TokenFlaw::Expired);
        }
        let latest = now_ms.saturating_add(skew_ms);
        if self.time("nbf")?.is_some_and(|begin| begin > latest) {
            return Err(TokenFlaw::Early);
        }
        if self.time("iat")?.is_some_and(|issued| issued > latest) {
            return Err(TokenFlaw::Issued);
        }
        Ok(end)
    }

    /// Returns a time in milliseconds since 1970; the claim has seconds, perhaps with a fraction.
    fn time(&self, claim: &str) -> Result<Option<u64>, TokenFlaw> {
        /// The year 9999.
        const MAX_SECONDS: f64 = 253_402_300_800.0;
        let Some(value) = self.0.get(claim) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
        seconds.map(|seconds| Some((seconds * 1000.0) as u64)).ok_or(TokenFlaw::Times)
    }

    /// Returns the texts of a claim: itself, or the entries of its list. A name with points that no
    /// claim has leads into objects, as `realm_access.roles`.
    pub fn texts(&self, claim: &str) -> Vec<String> {
        let found = self.0.get(claim).or_else(|| {
            let mut names = claim.split('.');
            let first = self.0.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        });
        match found {
            Some(Value::String(words)) if WORD_LISTS.contains(&claim) => {
                words.split_whitespace().map(str::to_owned).collect()
            }
            Some(Value::Array(all)) => all.iter().filter_map(text).collect(),
            Some(one) => text(one).into_iter().collect(),
            None => Vec::new(),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

//! Logins that are kept: a file for each context, with its tokens.
//!
//! Invariant: a refresh token is used by one process at a time. An issuer that replaces it at each
//! use would take a second use for a theft, and end the login.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport};

use super::contexts::{ContextLogin, check_name};
use super::issuer_client::{http, unanswered};
use super::private_file;
use super::token_answer::{IssuedTokens, PlatformToken};
use crate::now_ms;

/// The life that a token has left when a command begins with it, if the whole life is longer than
/// twice this.
const LEAST_LEFT_MS: u64 = 60_000;

/// The folder with logins of a user.
#[derive(Clone, Debug)]
pub struct LoginStore {
    folder: PathBuf,
}

/// The tokens of a login. They are not shown by `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub struct SavedLogin {
    issuer: String,
    client_id: String,
    token: String,
    /// When the token was got and when it ends, in milliseconds since 1970.
    obtained_ms: u64,
    /// The end of the token, in milliseconds since 1970.
    pub expires_ms: u64,
    refresh_token: Option<String>,
    token_endpoint: String,
}

impl std::fmt::Debug for SavedLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLogin").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl SavedLogin {
    pub(super) fn new(
        login: &ContextLogin,
        tokens: &IssuedTokens,
        token_endpoint: &str,
    ) -> Result<Self, ErrorReport> {
        let issuer = &login.issuer;
        let PlatformToken { text, expires_ms } = tokens.for_platform(issuer.token)?;
        Ok(Self {
            issuer: issuer.issuer.clone(),
            client_id: issuer.client_id.clone(),
            token: text,
            obtained_ms: now_ms(),
            expires_ms,
            refresh_token: tokens.refresh_token.clone(),
            token_endpoint: token_endpoint.to_owned(),
        })
    }

    /// Returns the token for the platform.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns whether the login can be renewed.
    pub fn is_renewable(&self) -> bool {
        self.refresh_token.is_some()
    }

    fn is_of(&self, login: &ContextLogin) -> bool {
        self.issuer == login.issuer.issuer && self.client_id == login.issuer.client_id
    }

    /// Returns whether the token is to be renewed before a command begins: a command lasts no longer
    /// than its token.
    fn is_due(&self, now_ms: u64) -> bool {
        let half = self.expires_ms.saturating_sub(self.obtained_ms) / 2;
        self.expires_ms.saturating_sub(now_ms) < half.clamp(1, LEAST_LEFT_MS)
    }
}

impl LoginStore {
    /// A folder, which is made when it is needed.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn file(&self, context: &str, extension: &str) -> Result<PathBuf, ErrorReport> {
        check_name(context)?;
        // The name of a context may have points.
        Ok(self.folder.join(format!("{context}.{extension}")))
    }

    /// Returns the login of a context, if there is one.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be read.
    pub fn find(&self, context: &str) -> Result<Option<SavedLogin>, ErrorReport> {
        let path = self.file(context, "json")?;
        let text = private_file::read(&path)?;
        // What an older version or an editor has left is no login.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Keeps the login of a context.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be written.
    pub async fn save(&self, context: &str, login: &SavedLogin) -> Result<(), ErrorReport> {
        let _lock = private_file::lock(&self.file(context, "lock")?).await?;
        self.write(context, login)
    }

    fn write(&self, context: &str, login: &SavedLogin) -> Result<(), ErrorReport> {
        let text = serde_json::to_string(login).map_err(|error| {
            ErrorReport::new(Code::INTERNAL, format!("the login cannot be written: {error}"))
        })?;
        private_file::replace(&self.file(context, "json")?, &text)
    }

    /// Forgets the login of a context, and tells its issuer. Returns whether there was one.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be removed.
    pub async fn forget(
        &self,
        context: &str,
        login: Option<&ContextLogin>,
    ) -> Result<bool, ErrorReport> {
        let _lock = private_file::lock(&self.file(context, "lock")?).await?;
        let found = self.find(context)?;
        let removed = private_file::remove(&self.file(context, "json")?)?;
        let refresh = found.and_then(|found| found.refresh_token);
        if let (Some(login), Some(refresh)) = (login, refresh) {
            revoke(login, &refresh).await;
        }
        Ok(removed)
    }

    /// Returns the login of a context with a token that lasts, renewed if it is due.
    ///
    /// # Errors
    /// `SM-0525` if a person has to log in again, `SM-0524` for an issuer that fails.
    pub async fn current(
        &self,
        context: &str,
        login: &ContextLogin,
    ) -> Result<SavedLogin, ErrorReport> {
        let usable = |found: &SavedLogin| found.is_of(login) && !found.is_due(now_ms());
        if let Some(found) = self.find(context)?.filter(usable) {
            return Ok(found);
        }
        let _lock = private_file::lock(&self.file(context, "lock")?).await?;
        // Another process may have renewed it meanwhile.
        let found = self.find(context)?.filter(|found| found.is_of(login));
        let found = found.ok_or_else(|| needed(context, "nobody has logged in"))?;
        if !found.is_due(now_ms()) {
            return Ok(found);
        }
        match renewed(&found, context, login).await {
            Ok(renewed) => {
                self.write(context, &renewed)?;
                Ok(renewed)
            }
            // It lasts for a while still.
            Err(_) if found.expires_ms > now_ms() => Ok(found),
            Err(report) => Err(report),
        }
    }
}

async fn renewed(
    found: &SavedLogin,
    context: &str,
    login: &ContextLogin,
) -> Result<SavedLogin, ErrorReport> {
    let refresh = found.refresh_token.as_deref();
    let refresh = refresh.ok_or_else(|| needed(context, "the login has expired"))?;
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("client_id", &*found.client_id),
    ];
    let answer = http(login)?.post(&found.token_endpoint, &fields).await.map_err(unanswered)?;
    if answer.status.is_server_error() {
        return Err(unanswered(format!("{} answers {}", found.token_endpoint, answer.status)));
    }
    let tokens = IssuedTokens::read(&answer).map_err(|refusal| {
        let why = refusal.report(&found.issuer).message;
        needed(context, &format!("the login is over: {why}"))
    })?;
    let renewed = SavedLogin::new(login, &tokens, &found.token_endpoint)?;
    // Some issuers replace the refresh token, and others leave it.
    let refresh_token = renewed.refresh_token.or_else(|| found.refresh_token.clone());
    Ok(SavedLogin { refresh_token, ..renewed })
}

/// Has the issuer end a login (RFC 7009). An issuer that cannot, or does not answer, ends it later.
async fn revoke(login: &ContextLogin, refresh: &str) {
    let revoked = async {
        let http = http(login).ok()?;
        let metadata = http.discover(&login.issuer.issuer).await.ok()?;
        let fields = [("token", refresh), ("client_id", &*login.issuer.client_id)];
        http.post(&metadata.revocation_endpoint?, &fields).await.ok()
    };
    revoked.await;
}

fn needed(context: &str, why: &str) -> ErrorReport {
    ErrorReport::new(Code::LOGIN, format!("context `{context}`: {why}"))
        .hint(format!("log in: snowmelt login --context {context}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(obtained_ms: u64, expires_ms: u64) -> SavedLogin {
        SavedLogin {
            issuer: "https://login.example".to_owned(),
            client_id: "cli".to_owned(),
            token: "token".to_owned(),
            obtained_ms,
            expires_ms,
            refresh_token: None,
            token_endpoint: "https://login.example/token".to_owned(),
        }
    }

    #[test]
    fn a_token_is_renewed_in_its_last_minute_or_half() {
        let long = lasting(0, 3_600_000);
        assert!(!long.is_due(0) && !long.is_due(3_530_000) && long.is_due(3_550_000));
        let short = lasting(0, 10_000);
        assert!(!short.is_due(4_000) && short.is_due(6_000) && short.is_due(20_000));
        assert!(lasting(5, 5).is_due(5));
        assert!(!format!("{short:?}").contains("\"token\""));
    }
}

//! The device flow (RFC 8628): a person opens a page on any device, and types a code there, while the
//! command asks the issuer whether that has happened.

use std::time::Duration;

use serde::Deserialize;
use snowmelt_api::TokenKind;
use snowmelt_types::{Code, ErrorReport};
use tokio::time::Instant;

use super::contexts::ContextLogin;
use super::issuer_client::{http, unanswered};
use super::store::SavedLogin;
use super::token_answer::IssuedTokens;
use crate::access::oidc::documents::{IssuerHttp, IssuerMetadata, address};

/// How often the issuer is asked, unless it says otherwise.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// By how much the interval grows when the issuer wants to be asked less often.
const SLOWER_BY: Duration = Duration::from_secs(5);

/// How long a person may take, whatever the issuer says.
const MAX_LOGIN_TIME: Duration = Duration::from_secs(3600);

/// The kind of grant of the flow.
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A login that has begun.
#[derive(Debug)]
pub struct DeviceLogin {
    http: IssuerHttp,
    login: ContextLogin,
    token_endpoint: String,
    code: DeviceCode,
}

/// The page and the code for a person.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceCode {
    device_code: String,
    /// The code to type.
    pub user_code: String,
    /// The page.
    pub verification_uri: String,
    /// The page with the code typed already.
    pub verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceLogin {
    /// Asks the issuer for a code.
    ///
    /// # Errors
    /// `SM-0524` if the issuer does not answer as it should, `SM-0525` if it refuses.
    pub async fn begin(login: &ContextLogin) -> Result<Self, ErrorReport> {
        let http = http(login)?;
        let issuer = &login.issuer;
        let metadata = http.discover(&issuer.issuer).await.map_err(unanswered)?;
        let IssuerMetadata { token_endpoint, device_authorization_endpoint, .. } = metadata;
        let missing = || {
            let message = format!("{} has no login by the device flow", issuer.issuer);
            ErrorReport::new(Code::ISSUER, message).hint("its client has to be allowed to use it")
        };
        let endpoint = device_authorization_endpoint.ok_or_else(missing)?;
        let token_endpoint = token_endpoint.ok_or_else(missing)?;
        let scope = issuer.scopes.join(" ");
        let mut fields = vec![("client_id", &*issuer.client_id), ("scope", &*scope)];
        let audience = issuer.audience.as_deref().filter(|_| issuer.token == TokenKind::Access);
        fields.extend(audience.map(|audience| ("audience", audience)));
        let answer = http.post(&endpoint, &fields).await.map_err(unanswered)?;
        if !answer.status.is_success() {
            return Err(match IssuedTokens::read(&answer) {
                Err(refusal) => refusal.report(&issuer.issuer),
                Ok(_) => missing(),
            });
        }
        let code: DeviceCode = serde_json::from_slice(&answer.body)
            .map_err(|error| unanswered(format!("{endpoint}: {error}")))?;
        // Shown to a person, who opens it.
        address(&code.verification_uri).map_err(unanswered)?;
        if let Some(url) = &code.verification_uri_complete {
            address(url).map_err(unanswered)?;
        }
        Ok(Self { http, login: login.clone(), token_endpoint, code })
    }

    /// Returns the page and the code for the person.
    pub fn code(&self) -> &DeviceCode {
        &self.code
    }

    /// Waits until the person has approved the login.
    ///
    /// # Errors
    /// `SM-0525` if the person refuses or takes too long, `SM-0524` for an issuer that fails.
    pub async fn wait(&self) -> Result<SavedLogin, ErrorReport> {
        let issuer = &self.login.issuer;
        let seconds = self.code.interval.map(|seconds| seconds.clamp(1, 60));
        let mut interval = seconds.map_or(POLL_INTERVAL, Duration::from_secs);
        let life = Duration::from_secs(self.code.expires_in).min(MAX_LOGIN_TIME);
        let until = Instant::now() + life;
        let fields = [
            ("grant_type", DEVICE_GRANT),
            ("device_code", &*self.code.device_code),
            ("client_id", &*issuer.client_id),
        ];
        loop {
            if Instant::now() + interval > until {
                return Err(self.too_late());
            }
            tokio::time::sleep(interval).await;
            let Ok(answer) = self.http.post(&self.token_endpoint, &fields).await else {
                // The standard wants an issuer that does not answer to be asked less often.
                interval = interval.saturating_mul(2);
                continue;
            };
            match IssuedTokens::read(&answer) {
                Ok(tokens) => {
                    return SavedLogin::new(&self.login, &tokens, &self.token_endpoint);
                }
                Err(refusal) => match &*refusal.error {
                    "authorization_pending" => {}
                    "slow_down" => interval += SLOWER_BY,
                    "expired_token" => return Err(self.too_late()),
                    _ => return Err(refusal.report(&issuer.issuer)),
                },
            }
        }
    }

    fn too_late(&self) -> ErrorReport {
        let message = "nobody has approved the login while its code was valid";
        ErrorReport::new(Code::LOGIN, message).hint("try again: snowmelt login")
    }
}

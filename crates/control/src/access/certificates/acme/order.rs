//! The steps of an order, from the account to the certificate.
//!
//! Invariant: each name of the order is proved by this order's own digests, which are shown until the
//! authority has decided.

use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use snowmelt_rpc::tls::{Certificate, ProofOfName};

use super::AcmeSettings;
use super::folder::{AcmeFolder, KeptAccount};
use super::http::AcmeHttp;

/// How long an authority may take to check names, and to sign.
const DECISION_TIMEOUT: Duration = Duration::from_secs(180);
/// The time after which all controls show a proof.
const ALL_SHOW_AFTER: Duration = Duration::from_secs(5);
/// The end of the type of an error about an account that an authority does not know.
const NO_ACCOUNT: &str = ":accountDoesNotExist";
/// The ends of the types of errors that another attempt does not cost anything for.
const PASSING: [&str; 2] = [":badNonce", ":serverInternal"];

/// A certificate and its key, as PEM texts.
pub(super) struct SignedCertificate {
    pub chain: String,
    pub key: String,
}

/// The reason why an order did not succeed.
#[derive(Debug)]
pub(super) struct OrderFailure {
    pub message: String,
    /// Whether the authority has refused, which counts against limits of rate. Otherwise it was not
    /// reached, or did not answer as it should.
    pub is_refusal: bool,
    /// How long the authority asked to wait.
    pub wait: Option<Duration>,
}

/// An order that is under way.
pub(super) struct OrderWork<'w> {
    pub settings: &'w AcmeSettings,
    pub folder: &'w AcmeFolder,
    pub http: &'w AcmeHttp,
    pub shown: &'w Certificate,
    /// Whether the authority may reach another control.
    pub has_standbys: bool,
}

impl OrderWork<'_> {
    /// Orders a certificate.
    pub async fn done(&self) -> Result<SignedCertificate, OrderFailure> {
        let asked = self.asked().await;
        let is_unknown = |failure: &OrderFailure| failure.message.contains(NO_ACCOUNT);
        if asked.as_ref().is_err_and(is_unknown) {
            // The next order makes a new account.
            self.folder.forget_account(&self.settings.ordered.directory).map_err(local)?;
        }
        let wait = self.http.asked_to_wait();
        asked.map_err(|failure| match is_unknown(&failure) {
            true => OrderFailure { is_refusal: false, wait, ..failure },
            false => OrderFailure { wait, ..failure },
        })
    }

    async fn asked(&self) -> Result<SignedCertificate, OrderFailure> {
        let account = self.account().await?;
        let names = &self.settings.ordered.names;
        let names: Vec<_> = names.iter().map(|name| Identifier::Dns(name.clone())).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        self.prove(&proofs(&mut order).await?).map_err(local)?;
        if self.has_standbys {
            tokio::time::sleep(ALL_SHOW_AFTER).await;
        }
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Pending
                && let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01)
            {
                challenge.set_ready().await?;
            }
        }
        let policy = RetryPolicy::new().timeout(DECISION_TIMEOUT);
        let ready = order.poll_ready(&policy).await;
        if !matches!(ready, Ok(OrderStatus::Ready)) {
            let reasons = reasons(&mut order).await;
            let failure =
                ready.map(|_| refused("the names were not proved")).unwrap_or_else(Into::into);
            return Err(match reasons.is_empty() {
                true => failure,
                false => refused(&reasons.join("; ")),
            });
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&policy).await?;
        Ok(SignedCertificate { chain, key })
    }

    /// Shows proofs of names, in this control and in those that stand by.
    pub fn prove(&self, proofs: &[ProofOfName]) -> Result<(), String> {
        self.folder.keep_proofs(proofs).map_err(|error| error.to_string())?;
        self.shown.prove(proofs)
    }

    /// Returns the account, which is made where there is none.
    async fn account(&self) -> Result<Account, OrderFailure> {
        let directory = &self.settings.ordered.directory;
        let contact: Vec<_> = self.settings.contact.iter().map(String::as_str).collect();
        let Some(mut kept) = self.folder.account(directory) else {
            let asked = NewAccount {
                contact: &contact,
                // That of the directory, which the administrator has named.
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let (account, credentials) =
                self.builder().create(&asked, directory.clone(), None).await?;
            let credentials = serde_json::to_value(credentials).map_err(local)?;
            let kept = KeptAccount { contact: self.settings.contact.clone(), credentials };
            self.folder.keep_account(directory, &kept).map_err(local)?;
            return Ok(account);
        };
        let credentials = serde_json::from_value(kept.credentials.clone()).map_err(local)?;
        let account = self.builder().from_credentials(credentials).await?;
        if kept.contact != self.settings.contact {
            account.update_contacts(&contact).await?;
            kept.contact.clone_from(&self.settings.contact);
            self.folder.keep_account(directory, &kept).map_err(local)?;
        }
        Ok(account)
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.http.clone()))
    }
}

/// The proofs of the names that are not proved yet.
async fn proofs(order: &mut Order) -> Result<Vec<ProofOfName>, OrderFailure> {
    let mut proofs = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            _ => return Err(refused("a name may not be proved any more")),
        }
        let name = authorization.identifier().to_string();
        let Some(challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(refused(&format!("`{name}` cannot be proved by tls-alpn-01")));
        };
        let digest = challenge.key_authorization().digest();
        let digest = digest.as_ref().try_into().map_err(local)?;
        proofs.push(ProofOfName { name, digest });
    }
    Ok(proofs)
}

/// Returns what the authority says of names that it did not find proved.
async fn reasons(order: &mut Order) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let name = authorization.identifier().to_string();
        let failed = authorization.challenges.iter().filter_map(|of| of.error.as_ref());
        reasons.extend(failed.map(|error| format!("{name}: {error}")));
    }
    reasons
}

fn refused(message: &str) -> OrderFailure {
    OrderFailure { message: message.to_owned(), is_refusal: true, wait: None }
}

/// The failure of this side.
pub(super) fn local(error: impl std::fmt::Display) -> OrderFailure {
    OrderFailure { message: error.to_string(), is_refusal: false, wait: None }
}

impl From<Error> for OrderFailure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let Error::Api(problem) = error else { return local(message) };
        let kind = problem.r#type.unwrap_or_default();
        let is_refusal = !PASSING.iter().any(|end| kind.ends_with(end));
        Self { message, is_refusal, wait: None }
    }
}

//! The authority of the cluster: which hosts are in it, and what proves that they are.
//!
//! | part | file |
//! |---|---|
//! | the authority at control: joins, renewals, removals | here |
//! | the text of a join token | `join_token` |
//! | the certificate of a host, in its state folder | `member` |
//!
//! Invariants: the authority's key is in one file that only the server's user can read. A join token
//! admits one host, once, before its end. Each certificate is in the store before it is given, so
//! that its host can be removed. Nobody gets the name of a host that is there, unless the token is
//! for this name.

mod join_token;
pub(crate) mod member;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_api::{JoinTokenMade, JoinTokenRequest};
use snowmelt_rpc::membership::authority::{Authority, SigningRequest};
use snowmelt_rpc::membership::{self, Anonymous, Credential, Removed};
use snowmelt_types::{Code, Digest, ErrorReport, HostName};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::access::key::is_same;
use crate::now_ms;
use crate::state::records::{JoinTokenRecord, JoinUse, MemberRecord, Records};
use join_token::JoinToken;
pub use member::{HostIdentity, JoinText};

/// How long a join token lasts if nobody says otherwise, and at most.
const TOKEN_LIFE: Duration = Duration::from_secs(600);
const MAX_TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// How long a token that is over is known, so that its error says why.
const TOKEN_KEPT_MS: u64 = 24 * 3600 * 1000;

/// The most join tokens at a time.
const MAX_TOKENS: usize = 10_000;

/// The request of a host to join.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinAsk {
    /// The text of the join token.
    pub token: String,
    /// The name that the host wants.
    pub name: HostName,
    /// The key of the host.
    pub request: SigningRequest,
}

/// The certificate that a host gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Certified {
    pub certificate: String,
    pub authority: String,
    /// How long the certificate lasts.
    pub life_ms: u64,
}

/// The authority of a cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ClusterAuthority(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authority: Authority,
    credential: Credential,
    records: Records,
    /// The name of control's own host, which no other gets.
    own: HostName,
    life: Duration,
    /// Locked while a host joins or is removed.
    changes: Mutex<()>,
}

/// The authority, as its file has it.
#[derive(Serialize, Deserialize)]
struct AuthorityFile {
    certificate: String,
    key: String,
}

impl ClusterAuthority {
    /// Reads the authority in the folder of a platform, or makes it at the first start. Certificates
    /// that it gives last for `life`.
    pub async fn open(
        folder: &Path,
        own: HostName,
        life: Duration,
        records: Records,
    ) -> Result<Self, ErrorReport> {
        let authority = open_file(folder)?;
        let credential = control_credential(&authority, &own, life)?;
        let changes = Mutex::default();
        let opened = Self(Arc::new(Inner { authority, credential, records, own, life, changes }));
        opened.0.credential.refuse(opened.removed().await?);
        Ok(opened)
    }

    /// The credential of control.
    pub fn credential(&self) -> &Credential {
        &self.0.credential
    }

    /// Makes a join token. Its text is in the answer, and nowhere else.
    pub async fn make_token(&self, ask: JoinTokenRequest) -> Result<JoinTokenMade, ErrorReport> {
        let life = ask.ttl_ms.map_or(TOKEN_LIFE, Duration::from_millis);
        if life.is_zero() || life > MAX_TOKEN_LIFE {
            return Err(ErrorReport::new(Code::OPTION, "a join token lasts up to a day"));
        }
        if ask.name.as_ref() == Some(&self.0.own) {
            return Err(taken(&self.0.own, "control itself has it"));
        }
        let now = now_ms();
        self.0.records.forget_join_tokens(now.saturating_sub(TOKEN_KEPT_MS)).await?;
        if self.0.records.join_tokens().await?.len() >= MAX_TOKENS {
            let message = format!("there are {MAX_TOKENS} join tokens, which are the most");
            return Err(ErrorReport::new(Code::KEYS_MOST, message));
        }
        let token = JoinToken::make(self.0.authority.fingerprint())?;
        let expires_ms = now.saturating_add(member::milliseconds(life));
        let record = JoinTokenRecord {
            id: token.id().to_owned(),
            digest: token.digest(),
            name: ask.name.clone(),
            expires_ms,
            used: None,
        };
        self.0.records.add_join_token(&record).await?;
        Ok(JoinTokenMade { token: token.text(), name: ask.name, expires_ms })
    }

    /// Admits a host with a join token. `is_there` says whether there is a host of this name.
    pub async fn join(&self, ask: &JoinAsk, is_there: bool) -> Result<Certified, ErrorReport> {
        let unknown = || {
            ErrorReport::new(Code::JOIN_TOKEN, "the join token is not one of this cluster")
                .hint("make a new one on control's host: `snowmelt cluster join-token`")
        };
        let token = JoinToken::read(&ask.token)?;
        let _changes = self.0.changes.lock().await;
        let seen = self.0.records.join_token(token.id()).await?;
        let record = seen.value.filter(|record| is_same(&record.digest, &token.digest()));
        let record = record.ok_or_else(unknown)?;
        let over = |why: &str| {
            ErrorReport::new(Code::JOIN_TOKEN_OVER, format!("the join token {why}"))
                .hint("each is for one host: make a new one with `snowmelt cluster join-token`")
        };
        let used = JoinUse { name: ask.name.clone(), key: Digest::of(&ask.request.key) };
        // A host whose answer was lost asks again.
        if record.used.as_ref().is_some_and(|before| *before != used) {
            return Err(over("was used already"));
        }
        if record.expires_ms <= now_ms() {
            return Err(over("has expired"));
        }
        if let Some(name) = record.name.as_ref().filter(|name| **name != ask.name) {
            let message = format!("the join token is for the host `{name}`, not `{}`", ask.name);
            return Err(ErrorReport::new(Code::JOIN_NAME, message)
                .hint("start the host with --name, or make a token for its name"));
        }
        if ask.name == self.0.own {
            return Err(taken(&ask.name, "control itself has it"));
        }
        if is_there && record.name.is_none() && record.used.is_none() {
            let why = "a host that is there has it; make a token for this name to replace it";
            // One that it replaces may not count as lost yet.
            return Err(ErrorReport { retryable: true, ..taken(&ask.name, why) });
        }
        let member = self.0.records.member(&ask.name).await?;
        let before = member.value;
        let serial = next_serial(before.as_ref());
        let certified = self.certify(&ask.request, &ask.name, serial)?;
        // Certificates of a longer life may have been given before.
        let until_ms = before.as_ref().map_or(0, |before| before.until_ms).max(self.until_ms());
        // A host that had the name is another one, or has lost its key.
        let refused_below = match record.used {
            None => before.map_or(0, |_| serial),
            Some(_) => before.map_or(0, |before| before.refused_below),
        };
        let now = MemberRecord { name: ask.name.clone(), serial, refused_below, until_ms };
        let record = JoinTokenRecord { used: Some(used), ..record };
        self.0.records.put_joined(&record, seen.expect, &now, member.expect).await?;
        self.0.credential.refuse(self.removed().await?);
        tracing::info!(host = %ask.name, serial, "a host got its first certificate");
        Ok(certified)
    }

    /// Gives a host its next certificate. The caller knows that the host asks, and the serial number
    /// of the certificate that it has shown.
    pub async fn renew(
        &self,
        name: &HostName,
        shown: u64,
        request: &SigningRequest,
    ) -> Result<Certified, ErrorReport> {
        let _changes = self.0.changes.lock().await;
        let member = self.0.records.member(name).await?;
        let Some(before) = member.value else {
            let message = format!("the host `{name}` is not known to the authority");
            return Err(ErrorReport::new(Code::HOST_REMOVED, message)
                .hint("start it with a new join token: `snowmelt cluster join-token`"));
        };
        if shown < before.refused_below {
            return Err(membership::removed(name));
        }
        let serial = next_serial(Some(&before));
        let certified = self.certify(request, name, serial)?;
        let until_ms = self.until_ms().max(before.until_ms);
        let now = MemberRecord { serial, until_ms, ..before };
        self.0.records.put_member(&now, member.expect).await?;
        tracing::debug!(host = %name, serial, "a host got another certificate");
        Ok(certified)
    }

    /// Removes a host: its certificates are refused from now on, and its connections end.
    ///
    /// # Errors
    /// `SM-0713` for a name that no host ever had.
    pub async fn remove(&self, name: &HostName) -> Result<(), ErrorReport> {
        let _changes = self.0.changes.lock().await;
        let member = self.0.records.member(name).await?;
        let before = member.value.ok_or_else(|| {
            let message = format!("no host `{name}` has joined");
            ErrorReport::new(Code::HOST_UNKNOWN, message).hint("`snowmelt hosts` lists them")
        })?;
        let refused_below = before.serial.saturating_add(1);
        let now = MemberRecord { refused_below, ..before };
        self.0.records.put_member(&now, member.expect).await?;
        self.0.credential.refuse(self.removed().await?);
        tracing::info!(host = %name, "a host was removed from the cluster");
        Ok(())
    }

    /// Returns the hosts whose certificates are refused although they have not ended.
    pub async fn removed(&self) -> Result<Removed, ErrorReport> {
        let now = now_ms();
        let members = self.0.records.members().await?.into_iter();
        let refused = members.filter(|member| member.refused_below > 0 && member.until_ms > now);
        Ok(refused.map(|member| (member.name, member.refused_below)).collect())
    }

    /// Gives control another certificate long before the last one ends, until the server ends.
    pub async fn keep(self, node: snowmelt_node::Node, over: CancellationToken) {
        let Inner { authority, credential, own, life, .. } = &*self.0;
        while over.run_until_cancelled(tokio::time::sleep(*life / 4)).await.is_some() {
            renew_control(authority, credential, own, *life);
            if let Err(error) = node.renew_certificate().await {
                tracing::warn!(%error, "the daemon of images has an old certificate");
            }
        }
    }

    fn certify(
        &self,
        request: &SigningRequest,
        name: &HostName,
        serial: u64,
    ) -> Result<Certified, ErrorReport> {
        let Inner { authority, life, .. } = &*self.0;
        let certificate = authority.certify(request, name, serial, *life);
        let certificate = certificate.map_err(|reason| ErrorReport::new(Code::PROTOCOL, reason))?;
        let authority = authority.certificate().to_owned();
        Ok(Certified { certificate, authority, life_ms: member::milliseconds(*life) })
    }

    fn until_ms(&self) -> u64 {
        now_ms().saturating_add(member::milliseconds(self.0.life))
    }
}

/// Reads the authority in the folder of a platform, or makes it. Of several controls that begin at
/// the same time, one makes it for all.
pub(crate) fn open_file(folder: &Path) -> Result<Authority, ErrorReport> {
    let path = folder.join("cluster").join("authority.json");
    let read = |file: AuthorityFile| Authority::read(&file.certificate, &file.key);
    if let Some(file) = member::read(&path)? {
        return read(file).map_err(internal);
    }
    let (authority, key) = Authority::make().map_err(internal)?;
    let certificate = authority.certificate().to_owned();
    if member::write_first(&path, &AuthorityFile { certificate, key })? {
        tracing::info!(fingerprint = authority.fingerprint(), "made a cluster's authority");
        return Ok(authority);
    }
    let other = member::read(&path)?;
    let other = other.ok_or_else(|| internal("its file is gone".to_owned()))?;
    read(other).map_err(internal)
}

/// Makes the credential of a control of this name.
pub(crate) fn control_credential(
    authority: &Authority,
    own: &HostName,
    life: Duration,
) -> Result<Credential, ErrorReport> {
    let text = authority.for_control(own, now_ms(), life).map_err(internal)?;
    Credential::certified(text, Anonymous::MayJoin).map_err(internal)
}

/// Gives control another certificate. One that cannot be made is tried again the next time.
pub(crate) fn renew_control(
    authority: &Authority,
    credential: &Credential,
    own: &HostName,
    life: Duration,
) {
    let renewed = authority.for_control(own, now_ms(), life);
    if let Err(error) = renewed.and_then(|text| credential.replace(text)) {
        tracing::warn!(error, "control cannot renew its certificate");
    }
}

/// Serial numbers of a host grow, also where the clock goes back.
fn next_serial(before: Option<&MemberRecord>) -> u64 {
    before.map_or(0, |before| before.serial.saturating_add(1)).max(now_ms())
}

fn taken(name: &HostName, why: &str) -> ErrorReport {
    ErrorReport::new(Code::JOIN_NAME, format!("a host may not be named `{name}`: {why}"))
        .hint("choose another name with --name")
}

fn internal(reason: String) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("the authority of the cluster failed: {reason}"))
}

//! The certificate of a host, in its state folder: how the host gets it, and renews it.
//!
//! Invariant: the private key of a host is made on the host, in a file that only its user can read,
//! and is sent nowhere.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_rpc::Meant;
use snowmelt_rpc::membership::authority::HostKey;
use snowmelt_rpc::membership::{Anonymous, CertificateText, Credential};
use snowmelt_types::{Code, ErrorReport, HostName};
use tempfile::NamedTempFile;

use super::join_token::JoinToken;
use super::{Certified, JoinAsk};
use crate::cluster::hosts::{BEAT, Remote};
use crate::now_ms;

/// How often a host looks for the file with its join token.
const FILE_INTERVAL: Duration = Duration::from_millis(50);

/// How long a host asks again if another one has its name. A host that it replaces counts as lost
/// before.
pub(crate) const NAME_TAKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A host's proof that it is of a cluster.
#[derive(Debug)]
pub struct HostIdentity {
    path: PathBuf,
    name: HostName,
    kept: IdentityFile,
    credential: Credential,
}

/// The text of a join token.
#[derive(Clone)]
pub enum JoinText {
    /// Here. It is never logged.
    Given(String),
    /// In a file, for which a host waits that has no certificate.
    InFile(PathBuf),
}

impl std::fmt::Debug for JoinText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinText")
    }
}

impl JoinText {
    /// Returns the token; `None` for a file that is not there.
    fn read(&self) -> Result<Option<JoinToken>, ErrorReport> {
        match self {
            Self::Given(text) => JoinToken::read(text).map(Some),
            Self::InFile(path) => match std::fs::read_to_string(path) {
                Ok(text) => JoinToken::read(&text).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unusable(path, &error)),
            },
        }
    }

    async fn wait(&self) -> Result<JoinToken, ErrorReport> {
        if let Self::InFile(path) = self {
            tracing::info!(file = %path.display(), "waiting for a join token");
        }
        loop {
            if let Some(token) = self.read()? {
                return Ok(token);
            }
            tokio::time::sleep(FILE_INTERVAL).await;
        }
    }
}

/// The certificate of a host, as its file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct IdentityFile {
    text: CertificateText,
    /// When it came, by the host's clock, and how long it lasts.
    since_ms: u64,
    life_ms: u64,
    /// The join token with which the host joined: its identifier.
    joined_with: String,
}

impl IdentityFile {
    fn new(answer: Certified, key: &HostKey, joined_with: &str) -> Self {
        let Certified { certificate, authority, life_ms } = answer;
        let text = CertificateText { certificate, key: key.text(), authority };
        Self { text, since_ms: now_ms(), life_ms, joined_with: joined_with.to_owned() }
    }

    fn has_ended(&self) -> bool {
        now_ms() >= self.since_ms.saturating_add(self.life_ms)
    }
}

impl HostIdentity {
    /// Reads the certificate of a host from its state folder, or joins the cluster of these controls.
    /// Waits as long as none of them can be reached.
    ///
    /// # Errors
    /// The host has no certificate that is valid, and no token that gives one.
    pub async fn obtain(
        state: &Path,
        name: &HostName,
        controls: &[SocketAddr],
        text: Option<&JoinText>,
    ) -> Result<Self, ErrorReport> {
        let path = state.join("cluster").join("host.json");
        let mut token = text.map(JoinText::read).transpose()?.flatten();
        let kept = read::<IdentityFile>(&path)?;
        let meant = Meant::Host(name.clone());
        let kept = match kept {
            Some(kept) if !meant.is_named_by(&kept.text.certificate) && text.is_none() => {
                let message = format!("the state folder is that of another host than `{name}`");
                return Err(ErrorReport::new(Code::JOIN_NAME, message)
                    .hint("use its name, or join with a token: --join TOKEN"));
            }
            kept => kept.filter(|kept| meant.is_named_by(&kept.text.certificate)),
        };
        let kept = kept.filter(|kept| !kept.has_ended());
        if let (None, None, Some(text)) = (&kept, &token, text) {
            token = Some(text.wait().await?);
        }
        let kept = match (kept, token) {
            (Some(kept), None) => kept,
            // The command that started the host the first time starts it again.
            (Some(kept), Some(token)) if kept.joined_with == token.id() => kept,
            (kept, Some(token)) => match join(name, controls, &token).await {
                Ok(joined) => {
                    write(&path, &joined)?;
                    joined
                }
                Err(refused) => kept.ok_or(refused)?,
            },
            (None, None) => {
                let message = "this host has no certificate of a cluster, or its has ended";
                return Err(ErrorReport::new(Code::HOST_REFUSED, message).hint(
                    "run `snowmelt cluster join-token` on control's host, and start this one with --join TOKEN",
                ));
            }
        };
        let credential = Credential::certified(kept.text.clone(), Anonymous::Refused);
        let credential = credential.map_err(|reason| unusable(&path, &io::Error::other(reason)))?;
        Ok(Self { path, name: name.clone(), kept, credential })
    }

    /// The credential of the host.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Whether the certificate should be replaced: before half of its life is over. Also where the
    /// clock went back.
    pub fn is_due(&self) -> bool {
        let now = now_ms();
        now < self.kept.since_ms || now >= self.kept.since_ms + self.kept.life_ms / 7 * 3
    }

    /// Replaces the certificate by a new one, of a new key.
    pub async fn renew(&mut self, control: &Remote) -> Result<(), ErrorReport> {
        let key = HostKey::make().map_err(internal)?;
        let request = key.request().map_err(internal)?;
        let renewed = control.renew(&self.name, &request).await?;
        let kept = IdentityFile::new(renewed, &key, &self.kept.joined_with);
        write(&self.path, &kept)?;
        self.credential.replace(kept.text.clone()).map_err(internal)?;
        self.kept = kept;
        Ok(())
    }
}

/// Asks the controls in turn for the first certificate of a host, until the one that leads answers.
async fn join(
    name: &HostName,
    controls: &[SocketAddr],
    token: &JoinToken,
) -> Result<IdentityFile, ErrorReport> {
    let credential = Credential::joining(token.fingerprint().to_owned()).map_err(internal)?;
    let remote = |at: &SocketAddr| Remote::new(*at, Meant::Control, credential.clone());
    let mut remotes = controls.iter().map(remote).collect::<Vec<_>>().into_iter().cycle();
    let key = HostKey::make().map_err(internal)?;
    let request = key.request().map_err(internal)?;
    let ask = JoinAsk { token: token.text(), name: name.clone(), request };
    let mut was_there = true;
    let begun = Instant::now();
    let pause = BEAT / u32::try_from(controls.len().max(1)).unwrap_or(u32::MAX);
    loop {
        let Some(remote) = remotes.next() else {
            return Err(ErrorReport::new(Code::OPTION, "a host needs the address of a control"));
        };
        match remote.first_certificate(&ask).await {
            Ok(answer) => return Ok(IdentityFile::new(answer, &key, token.id())),
            Err(error) if asks_again(&error, begun.elapsed()) => {
                if was_there {
                    tracing::warn!(%error, "control does not answer; trying again");
                }
                was_there = false;
                tokio::time::sleep(pause).await;
            }
            Err(error) if error.known_code() == Code::CERTIFICATE => {
                let message = format!("the join token is of another cluster: {}", error.message);
                return Err(ErrorReport::new(Code::JOIN_TOKEN, message)
                    .hint("check the address of --control, and where the token was made"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a host asks again that control does not answer, or whose name another one has.
fn asks_again(error: &ErrorReport, after: Duration) -> bool {
    match error.known_code() {
        Code::CERTIFICATE => false,
        Code::JOIN_NAME => error.retryable && after < NAME_TAKEN_TIMEOUT,
        _ => error.retryable,
    }
}

/// Reads a secret file; `None` if there is none.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ErrorReport> {
    match std::fs::read(path) {
        Ok(text) => {
            let read = serde_json::from_slice(&text).map(Some);
            read.map_err(|error| unusable(path, &error.into()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Writes a file that only its owner can read, as a whole or not at all.
pub(super) fn write(path: &Path, content: &impl Serialize) -> Result<(), ErrorReport> {
    let named = |new: NamedTempFile| new.persist(path).map_err(|error| error.error);
    write_beside(path, content, named).map_err(|error| unusable(path, &error))
}

/// Writes a file as [`write`] does, unless it is there: then it is left as it is, and the answer is
/// false.
pub(super) fn write_first(path: &Path, content: &impl Serialize) -> Result<bool, ErrorReport> {
    let named = |new: NamedTempFile| new.persist_noclobber(path).map_err(|error| error.error);
    match write_beside(path, content, named) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Writes a new file in the folder of another, whose name `put` then gives it.
fn write_beside(
    path: &Path,
    content: &impl Serialize,
    put: impl FnOnce(NamedTempFile) -> io::Result<File>,
) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut new = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    new.write_all(&serde_json::to_vec(content)?)?;
    new.as_file().sync_all()?;
    put(new)?;
    File::open(folder)?.sync_all()
}

/// The milliseconds of a time.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn unusable(path: &Path, error: &io::Error) -> ErrorReport {
    let message = format!("{} cannot be used: {error}", path.display());
    ErrorReport::new(Code::STORAGE, message)
}

fn internal(reason: String) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("a certificate failed: {reason}"))
}

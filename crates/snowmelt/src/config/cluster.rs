//! The settings of a host in a cluster: its name, how it is known, and the address for other hosts.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_control::cluster::hosts::Token;
use snowmelt_control::server::member::{JoinText, MemberProof};
use snowmelt_control::server::{ClusterProof, ClusterSettings};
use snowmelt_types::{Code, ErrorReport, HostName};

use super::keys::{CERTIFICATE_LIFE, PLAINTEXT, TOKEN_FILE};
use super::{Config, ConfigSources, ConfigValue, boolean, duration};
use crate::args::MemberArgs;
use crate::env;
use crate::terminal::text;

/// How a token file is made.
const CREATE: &str =
    "create it on the first host, copy it to the others: head -c 24 /dev/urandom | base64";

/// The longest and shortest life of a certificate that is of use.
const LIVES: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(365 * 24 * 3600);

/// How the processes of a cluster know each other.
#[derive(Clone, Debug)]
pub struct ClusterSecurity {
    /// Whether nothing is encrypted between hosts.
    pub plaintext: ConfigValue<bool>,
    /// File with the secret token of a cluster without encryption.
    pub token_file: Option<ConfigValue<PathBuf>>,
    /// How long certificates last.
    pub life: ConfigValue<Duration>,
}

impl ClusterSecurity {
    pub(super) fn load(
        sources: &ConfigSources,
        member: Option<&MemberArgs>,
    ) -> Result<Self, ErrorReport> {
        let plaintext = member.filter(|member| member.plaintext).map(|_| true);
        let token_file = member.and_then(|member| member.token_file.clone());
        Ok(Self {
            plaintext: sources.get(&PLAINTEXT, plaintext, boolean)?,
            token_file: sources.file(&TOKEN_FILE, token_file)?,
            life: sources.get(&CERTIFICATE_LIFE, None, duration)?,
        })
    }

    /// Returns the token of a cluster without encryption; `None` for one with certificates.
    ///
    /// # Errors
    /// `SM-0110` if the token is missing, or nothing would use it.
    fn token(&self) -> Result<Option<Token>, ErrorReport> {
        let wrong = |message: String, hint: &str| {
            Err(ErrorReport::new(Code::OPTION, message).hint(hint.to_owned()))
        };
        match (&self.token_file, self.plaintext.value) {
            (None, false) => Ok(None),
            (Some(_), false) => wrong(
                "a token file is for a cluster without encryption".to_owned(),
                "omit it, and let hosts join with `snowmelt cluster join-token`; or add --plaintext in a closed network",
            ),
            (None, true) => {
                wrong("a cluster without encryption needs --token-file".to_owned(), CREATE)
            }
            (Some(file), true) => {
                let path: &Path = &file.value;
                let shown = path.display();
                match std::fs::read_to_string(path) {
                    Err(error) => wrong(format!("{shown}: {}", text::reason(&error)), CREATE),
                    Ok(read) => match Token::new(&read) {
                        Ok(token) => Ok(Some(token)),
                        Err(problem) => wrong(format!("{shown}: {problem}"), CREATE),
                    },
                }
            }
        }
    }
}

/// The cluster of a server, if it listens for hosts.
///
/// # Errors
/// `SM-0110` for the token, the life of certificates and the name.
pub fn of_server(config: &Config) -> Result<Option<ClusterSettings>, ErrorReport> {
    let Some(listen) = &config.listen else { return Ok(None) };
    let listen: SocketAddr = listen.value;
    let life = config.security.life.value;
    if !LIVES.contains(&life) {
        let message = "certificates last from 10s to 365d: cluster.certificate_life";
        return Err(ErrorReport::new(Code::OPTION, message));
    }
    let token = config.security.token()?;
    let proof = token.map_or(ClusterProof::Certificates(life), ClusterProof::Token);
    Ok(Some(ClusterSettings { name: name(config)?, listen, proof }))
}

/// The proof that a host is of a cluster: what is in its state folder, and this join token.
///
/// # Errors
/// `SM-0110` for the token of a cluster without encryption.
pub fn of_member(config: &Config, join: Option<&str>) -> Result<MemberProof, ErrorReport> {
    if let Some(token) = config.security.token()? {
        return Ok(MemberProof::Token(token));
    }
    let variable = std::env::var(env::JOIN).ok().filter(|value| !value.is_empty());
    let given = join.map(str::to_owned).or(variable);
    Ok(MemberProof::Certificate(given.map(|given| match given.strip_prefix('@') {
        Some(path) => JoinText::InFile(PathBuf::from(path)),
        None => JoinText::Given(given),
    })))
}

/// The given name, or one derived from the machine's host name.
///
/// # Errors
/// `SM-0110` if the host name is not a valid name.
pub fn name(config: &Config) -> Result<HostName, ErrorReport> {
    if let Some(name) = &config.host {
        return Ok(name.value.clone());
    }
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = own.split('.').next().unwrap_or_default().chars().map(plain).collect();
    name.parse().map_err(|_| {
        let message = format!("the host name `{own}` is not a valid name in a cluster");
        ErrorReport::new(Code::OPTION, message).hint("choose one with --name")
    })
}

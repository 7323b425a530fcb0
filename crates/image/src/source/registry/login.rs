//! The user's credentials for a registry, as stored by `docker login`.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::{Error, Result};

/// A name and a password, or a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name; empty if the secret is an identity token.
    pub user: String,
    /// The password or token, which is excluded from debug output.
    pub secret: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?} }}", self.user)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: HashMap<String, Auth>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

impl Credentials {
    /// Finds the credentials for a registry in `$DOCKER_CONFIG/config.json` or
    /// `~/.docker/config.json`; `None` if there are none.
    pub fn find(registry: &str) -> Result<Option<Self>> {
        let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
        match folder.or_else(home) {
            Some(folder) => Self::read(&folder.join("config.json"), registry),
            None => Ok(None),
        }
    }

    /// Reads the credentials for a registry from a file in the format of Docker's `config.json`.
    pub fn read(path: &Path, registry: &str) -> Result<Option<Self>> {
        Self::from_config(path, registry, &config(path)?)
    }

    /// Reads them as [`Self::read`] does, and runs no helpers.
    pub fn stored(path: &Path, registry: &str) -> Result<Option<Self>> {
        let auths = config(path)?.auths;
        Self::from_config(path, registry, &DockerConfig { auths, ..DockerConfig::default() })
    }

    fn from_config(path: &Path, registry: &str, config: &DockerConfig) -> Result<Option<Self>> {
        for key in keys(registry) {
            if let Some(helper) = config.cred_helpers.get(&key).or(config.creds_store.as_ref())
                && let Some(found) = ask_helper(helper, &key)?
            {
                return Ok(Some(found));
            }
            if let Some(auth) = config.auths.get(&key)
                && let Some(found) = auth.decode(path)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Reads a file of logins; one that does not exist has none.
fn config(path: &Path) -> Result<DockerConfig> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(DockerConfig::default());
        }
        read => read.map_err(Error::io("read", path))?,
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::refused(path.display().to_string(), error.to_string()))
}

impl Auth {
    fn decode(&self, path: &Path) -> Result<Option<Credentials>> {
        if let Some(token) = self.identitytoken.as_ref().filter(|token| !token.is_empty()) {
            return Ok(Some(Credentials { user: String::new(), secret: token.clone() }));
        }
        let Some(auth) = self.auth.as_ref().filter(|auth| !auth.is_empty()) else {
            return Ok(None);
        };
        let wrong = || Error::refused(path.display().to_string(), "an `auth` is malformed");
        let text = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(wrong)?;
        let (user, secret) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Some(Credentials { user: user.to_owned(), secret: secret.to_owned() }))
    }
}

/// Returns the keys under which the file may store a registry.
fn keys(registry: &str) -> Vec<String> {
    let mut keys = vec![registry.to_owned(), format!("https://{registry}")];
    if registry == "docker.io" {
        keys.push("https://index.docker.io/v1/".to_owned());
    }
    keys
}

/// Runs a credential helper: it receives the server on stdin, writes JSON to stdout, and fails if
/// it has no credentials.
fn ask_helper(helper: &str, server: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let failed = |error: std::io::Error| Error::refused(format!("`{program}`"), error.to_string());
    if helper.contains('/') {
        return Err(Error::refused(format!("`{program}`"), "it is not a program name"));
    }
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input reports a failure by its exit status.
        let _ = stdin.write_all(server.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Ok(None);
    }
    let helped: Helped = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::refused(format!("the answer of `{program}`"), error.to_string()))?;
    let user = if helped.username == "<token>" { String::new() } else { helped.username };
    Ok(Some(Credentials { user, secret: helped.secret }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, registry: &str) -> Result<Option<Credentials>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Credentials::read(file.path(), registry)
    }

    #[test]
    fn reads_the_file_of_docker_login() {
        let text = r#"{"auths": {"a.b:5000": {"auth": "bWU6cGE6c3M="}, "c.d": {}}}"#;
        let found = read(text, "a.b:5000").unwrap().unwrap();
        assert_eq!((found.user.as_str(), found.secret.as_str()), ("me", "pa:ss"));
        assert_eq!(read(text, "c.d").unwrap(), None);
        assert_eq!(read("{}", "a.b:5000").unwrap(), None);
        assert!(!format!("{found:?}").contains("pa:ss"));
    }

    #[test]
    fn a_file_of_logins_alone_runs_no_helper() {
        let text = r#"{"credsStore": "../../bin/sh", "auths": {"a.b": {"auth": "bWU6cGE6c3M="}}}"#;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        assert!(Credentials::read(file.path(), "a.b").is_err(), "it would run one");
        let found = Credentials::stored(file.path(), "a.b").unwrap().unwrap();
        assert_eq!(found.user, "me");
        assert_eq!(Credentials::stored(file.path(), "c.d").unwrap(), None);
        assert_eq!(Credentials::stored(&file.path().join("none"), "a.b").ok().flatten(), None);
    }

    #[test]
    fn refuses_an_invalid_file() {
        read("{", "a.b").unwrap_err();
        read(r#"{"auths": {"a.b": {"auth": "%"}}}"#, "a.b").unwrap_err();
        read(r#"{"credsStore": "../../bin/sh"}"#, "a.b").unwrap_err();
    }
}

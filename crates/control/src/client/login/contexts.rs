//! Contexts: names for platforms, with the address of each and how it is used.
//!
//! Invariant: address, certificates and credentials of a platform belong together; nothing of one
//! context is used for another platform.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_api::LoginIssuer;
use snowmelt_types::{Code, ErrorReport, Tenant, nearest};

use super::private_file;

/// The name of the server of this machine, which is always there.
pub const LOCAL: &str = "local";

/// The longest name.
const MAX_NAME: usize = 64;

/// The contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The context that commands use if nothing else is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<String, PlatformContext>,
}

/// A platform on another host, and how a user uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformContext {
    /// The address of the platform.
    pub url: String,
    /// The file of authorities of the platform's certificate; those of the system if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The tenant that commands act for; the first of the user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The file with a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The place of logins; a key is used if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<ContextLogin>,
}

/// The place where a user logs in for a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextLogin {
    /// The issuer, and what is asked of it.
    #[serde(flatten)]
    pub issuer: LoginIssuer,
    /// The file of authorities of the issuer's certificate; those of the system if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl PlatformContext {
    /// A platform at a URL, of which nothing else is known.
    pub fn new(url: &str) -> Self {
        let url = url.to_owned();
        Self { url, ca: None, tenant: None, token_file: None, login: None }
    }
}

impl Contexts {
    /// Reads the contexts of a file; none if it is missing.
    ///
    /// # Errors
    /// `SM-0110`.
    pub fn read(path: &Path) -> Result<Self, ErrorReport> {
        let Some(text) = private_file::read(path)? else { return Ok(Self::default()) };
        toml::from_str(&text).map_err(|error| {
            let message = format!("the contexts of {} cannot be read: {error}", path.display());
            ErrorReport::new(Code::OPTION, message)
        })
    }

    /// Changes the contexts of a file, while no other process does.
    ///
    /// # Errors
    /// `SM-0110`, and the errors of the change, after which the file is as it was.
    pub async fn change<T>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, ErrorReport>,
    ) -> Result<T, ErrorReport> {
        let _lock = private_file::lock(&path.with_extension("lock")).await?;
        let mut contexts = Self::read(path)?;
        let changed = change(&mut contexts)?;
        let text = toml::to_string(&contexts).map_err(|error| {
            ErrorReport::new(Code::INTERNAL, format!("contexts cannot be written: {error}"))
        })?;
        private_file::replace(path, &text)?;
        Ok(changed)
    }

    /// Returns a context; `None` for [`LOCAL`].
    ///
    /// # Errors
    /// `SM-0110` if there is none of this name.
    pub fn find(&self, name: &str) -> Result<Option<&PlatformContext>, ErrorReport> {
        if name == LOCAL {
            return Ok(None);
        }
        self.contexts.get(name).map(Some).ok_or_else(|| {
            let near = nearest(name, self.contexts.keys().map(String::as_str));
            let report = ErrorReport::new(Code::OPTION, format!("there is no context `{name}`"));
            report.hint(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`snowmelt context ls` lists them, `snowmelt login --url URL` makes one"
                    .to_owned(),
            })
        })
    }
}

/// Refuses what cannot be the name of a context, which is the name of a file as well.
///
/// # Errors
/// `SM-0110`.
pub fn check_name(name: &str) -> Result<(), ErrorReport> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= MAX_NAME && name.chars().all(is_plain) && name != LOCAL {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a context");
    Err(ErrorReport::new(Code::OPTION, message).hint(format!(
        "a name has letters, digits, `-`, `_` and `.`; `{LOCAL}` is the server of this machine"
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn contexts_are_kept_in_a_file_of_their_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        let issuer = LoginIssuer {
            issuer: "https://login.example".to_owned(),
            client_id: "cli".to_owned(),
            scopes: vec!["openid".to_owned()],
            token: snowmelt_api::TokenKind::Id,
            audience: None,
        };
        let login = Some(ContextLogin { issuer, ca: Some("/ca.pem".into()) });
        let prod = PlatformContext { login, ..PlatformContext::new("https://prod.example") };
        Contexts::change(&path, |contexts| {
            contexts.contexts.insert("prod".to_owned(), prod.clone());
            contexts.current = Some("prod".to_owned());
            Ok(())
        })
        .await
        .unwrap();
        let read = Contexts::read(&path).unwrap();
        assert_eq!(read.find("prod").unwrap(), Some(&prod));
        assert_eq!(read.find(LOCAL).unwrap(), None);
        let hint = read.find("prid").unwrap_err().hint.unwrap();
        assert_eq!(hint, "did you mean `prod`?");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "current = 1").unwrap();
        assert!(Contexts::read(&path).unwrap_err().message.contains("contexts.toml"));
    }

    #[tokio::test]
    async fn two_changes_at_once_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        let add = |name: String| {
            let path = path.clone();
            tokio::spawn(async move {
                Contexts::change(&path, |contexts| {
                    contexts.contexts.insert(name, PlatformContext::new("https://a.example"));
                    Ok(())
                })
                .await
            })
        };
        let adding: Vec<_> = (0..8).map(|number| add(format!("c{number}"))).collect();
        for added in adding {
            added.await.unwrap().unwrap();
        }
        assert_eq!(Contexts::read(&path).unwrap().contexts.len(), 8);
    }

    #[test]
    fn a_name_is_no_path() {
        check_name("prod-1.eu").unwrap();
        for wrong in ["", "local", ".", "..", "../a", "a/b", "-a", "a b", &"a".repeat(65)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}

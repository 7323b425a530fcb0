//! The file of issuers, as an operator writes it.
//!
//! Invariant: the file belongs to root or to the user of the server, and nobody else may write to it,
//! as its rules give rights.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use snowmelt_api::TokenKind;
use snowmelt_types::parse_duration;

use super::documents::{IssuerHttp, address};
use super::rules::{ClaimRule, RuleEntry};
use crate::access::tokens::check_owner;

/// The most bytes of the file.
const MAX_BYTES: u64 = 1 << 20;

/// How far the clocks of issuer and server may differ, unless the file says otherwise.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The most that the file may say of it.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// How long keys are used while their issuer does not answer, unless the file says otherwise.
const KEYS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// An issuer of the file, checked.
#[derive(Debug)]
pub(super) struct IssuerSettings {
    pub url: String,
    pub audiences: Vec<String>,
    pub client_id: Option<String>,
    pub scopes: Vec<String>,
    pub token: TokenKind,
    pub http: IssuerHttp,
    pub clock_skew: Duration,
    pub keys_kept: Duration,
    pub rules: Vec<ClaimRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuersDocument {
    issuer: Vec<IssuerEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerEntry {
    url: String,
    audience: OneOrMore,
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
    #[serde(default)]
    token: TokenKind,
    ca: Option<String>,
    clock_skew: Option<String>,
    keys_kept: Option<String>,
    rules: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Reads the issuers of a file, which may belong to `server`, the user that the server becomes.
pub(super) fn read(path: &Path, server: Option<u32>) -> Result<Vec<IssuerSettings>, String> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|found| (file, found)));
    let (file, found) = opened.map_err(|error| error.to_string())?;
    check_owner(&found, server)?;
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    parse(&text, folder)
}

fn parse(text: &str, folder: &Path) -> Result<Vec<IssuerSettings>, String> {
    let document: IssuersDocument = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut issuers: Vec<IssuerSettings> = Vec::new();
    for entry in document.issuer {
        let url = entry.url.clone();
        if issuers.iter().any(|issuer| issuer.url == url) {
            return Err(format!("issuer `{url}` is there twice"));
        }
        let issuer = settings(entry, folder);
        issuers.push(issuer.map_err(|problem| format!("issuer `{url}`: {problem}"))?);
    }
    Ok(issuers)
}

fn settings(entry: IssuerEntry, folder: &Path) -> Result<IssuerSettings, String> {
    let parsed = address(&entry.url)?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err("the URL of an issuer ends with its path".to_owned());
    }
    let audiences = match entry.audience {
        OneOrMore::One(audience) => vec![audience],
        OneOrMore::More(audiences) => audiences,
    };
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        return Err("`audience` is what the `aud` of its tokens has for this platform".to_owned());
    }
    let authorities = entry.ca.map(|file| {
        let file = folder.join(file);
        std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))
    });
    let authorities = authorities.transpose()?;
    let time = |name: &str, text: Option<String>, default| match text {
        None => Ok(default),
        Some(text) => parse_duration(&text).map_err(|error| format!("`{name}`: {error}")),
    };
    let clock_skew = time("clock_skew", entry.clock_skew, CLOCK_SKEW)?;
    if clock_skew > MAX_CLOCK_SKEW {
        return Err("`clock_skew` is at most ten minutes".to_owned());
    }
    if entry.rules.is_empty() {
        return Err("without `rules` its tokens give no tenant".to_owned());
    }
    let rules = entry.rules.into_iter().enumerate().map(|(number, rule)| {
        ClaimRule::new(rule).map_err(|problem| format!("rule {}: {problem}", number + 1))
    });
    Ok(IssuerSettings {
        http: IssuerHttp::new(authorities.as_deref())
            .map_err(|problem| format!("`ca`: {problem}"))?,
        url: entry.url,
        audiences,
        client_id: entry.client_id,
        scopes: entry
            .scopes
            .unwrap_or_else(|| vec!["openid".to_owned(), "offline_access".to_owned()]),
        token: entry.token,
        clock_skew,
        keys_kept: time("keys_kept", entry.keys_kept, KEYS_KEPT)?,
        rules: rules.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str =
        "rules = [{ claims = { sub = \"al\" }, tenant = \"acme\", role = \"reader\" }]";

    fn refused(entry: &str) -> String {
        parse(&format!("[[issuer]]\n{entry}"), Path::new("/")).unwrap_err()
    }

    #[test]
    fn an_issuer_has_defaults() {
        let text = format!("[[issuer]]\nurl = \"https://a.example\"\naudience = \"x\"\n{RULES}");
        let issuers = parse(&text, Path::new("/")).unwrap();
        let [issuer] = issuers.as_slice() else { panic!("{issuers:?}") };
        assert_eq!((issuer.clock_skew, issuer.keys_kept), (CLOCK_SKEW, KEYS_KEPT));
        assert_eq!(issuer.scopes, ["openid", "offline_access"]);
        assert_eq!(issuer.token, TokenKind::Access);
        let twice = parse(&format!("{text}\n{text}"), Path::new("/")).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
    }

    #[test]
    fn an_entry_that_is_wrong_is_refused() {
        let url = "url = \"https://a.example\"";
        let audience = "audience = \"x\"";
        for (entry, why) in [
            (format!("url = \"http://a.example\"\n{audience}\n{RULES}"), "not an https://"),
            (format!("url = \"https://a.example?b\"\n{audience}\n{RULES}"), "ends with its path"),
            (format!("{url}\n{RULES}"), "audience"),
            (format!("{url}\naudience = []\n{RULES}"), "audience"),
            (format!("{url}\n{audience}\nrules = []"), "rules"),
            (format!("{url}\n{audience}\nclock_skew = \"1h\"\n{RULES}"), "ten minutes"),
            (format!("{url}\n{audience}\nca = \"none.pem\"\n{RULES}"), "/none.pem"),
            (format!("{url}\n{audience}\nsecret = \"x\"\n{RULES}"), "secret"),
        ] {
            let refused = refused(&entry);
            assert!(refused.contains(why), "{entry}: {refused}");
        }
    }
}

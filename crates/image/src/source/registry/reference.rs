//! Names of images in registries, as users write them.

use std::fmt;
use std::str::FromStr;

use crate::block::OciDigest;
use crate::{Error, Result};

/// A reference `[host[:port]/]repository[:tag][@digest]`; without a host, Docker's registry is
/// meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The host and port of the registry.
    pub registry: String,
    /// The repository, which may contain slashes.
    pub repository: String,
    /// The tag; `latest` by default.
    pub tag: String,
    /// The digest, which takes precedence over the tag.
    pub digest: Option<OciDigest>,
}

impl Reference {
    /// Returns the digest or the tag, for requests.
    pub fn selector(&self) -> &str {
        self.digest.as_ref().map_or(&self.tag, OciDigest::as_str)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |reason: &str| Error::refused(format!("the image name `{text}`"), reason);
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        // The first part is a host if it contains a dot or a colon, or is `localhost`.
        let (registry, rest) = match rest.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => ("docker.io", rest),
        };
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        let repository = match registry {
            "docker.io" if !repository.contains('/') => format!("library/{repository}"),
            _ => repository.to_owned(),
        };
        if !repository.split('/').all(is_part) {
            return Err(refuse(
                "a repository consists of a-z, 0-9, `.`, `_`, `-`, and `/` between parts",
            ));
        }
        if !is_tag(tag) {
            return Err(refuse("a tag consists of at most 128 of A-Z, a-z, 0-9, `.`, `_`, `-`"));
        }
        if !is_host(registry) {
            return Err(refuse("its registry is not a host name"));
        }
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.to_owned(), digest })
    }
}

fn is_part(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(plain) && part.bytes().last().is_some_and(plain);
    ends && part.len() <= 255 && part.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || b".-".contains(&byte))
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
    port.parse::<u16>().is_ok()
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_as_docker_does() {
        for (text, expected) in [
            ("debian", "docker.io/library/debian:latest"),
            ("me/app:1.2", "docker.io/me/app:1.2"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("ghcr.io/a/b-c_d:v1", "ghcr.io/a/b-c_d:v1"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), expected);
        }
        let digest = OciDigest::of(b"");
        let both: Reference = format!("h.x/a:t@{digest}").parse().unwrap();
        assert_eq!(both.selector(), digest.as_str());
    }

    #[test]
    fn refuses_names_that_would_change_the_url() {
        for text in [
            "h.x/../v2",
            "a b",
            "h.x/a:t/../../x",
            "h.x/A",
            "",
            "h.x/",
            "a@md5:0",
            "h.x:x/a",
            "h.x/a?b",
            "u:p@h.x/a",
        ] {
            text.parse::<Reference>().unwrap_err();
        }
    }
}

//! The HTTP servers that the operator of a platform lets queries read files from.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An entry of the operator's list: `data.example.org`, `*.example.org:8443` or
/// `http://10.0.0.5:8080`. Without a scheme it stands for HTTPS, and without a port for the
/// scheme's own port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpSource {
    is_plain: bool,
    host: String,
    /// True if the entry stands for all names below the host's, and not for the host itself.
    below: bool,
    port: u16,
}

impl HttpSource {
    /// True if the entry matches a URL of this scheme, host and port. The host must come from a
    /// parsed URL: in lower case, and an IPv6 address in brackets.
    pub fn matches(&self, scheme: &str, host: &str, port: u16) -> bool {
        let own = if self.is_plain { "http" } else { "https" };
        let same = match self.below {
            // An address has no names below it.
            true => {
                let below = host.strip_suffix(&self.host).and_then(|rest| rest.strip_suffix('.'));
                below.is_some_and(|name| !name.is_empty())
            }
            false => host == self.host,
        };
        same && own == scheme && self.port == port
    }
}

impl FromStr for HttpSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` {why}: write a host such as data.example.org, *.example.org:8443 or \
                 http://10.0.0.5:8080"
            )
        };
        let (is_plain, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("https", rest)) => (false, rest),
            Some(("http", rest)) => (true, rest),
            Some(_) => return Err(wrong("has another scheme than https and http")),
        };
        // The colons of an address of IPv6 are in brackets.
        let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => {
                (host, port.parse().map_err(|_| wrong("has a port that is no number"))?)
            }
            None => (rest, if is_plain { 80 } else { 443 }),
        };
        let (below, host) = match host.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, host),
        };
        let host = host.to_ascii_lowercase();
        let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let v6 = v6.map(str::parse::<IpAddr>).transpose().map_err(|_| wrong("is no address"))?;
        let host = v6.map_or(host.clone(), |address| format!("[{address}]"));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_host = v6.is_some() || !host.is_empty() && host.chars().all(is_name);
        let is_address = v6.is_some() || host.parse::<IpAddr>().is_ok();
        if !is_host || host.starts_with('.') || host.ends_with('.') {
            return Err(wrong("is not a host"));
        }
        let last = host.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        if below && (is_address || is_number || !host.contains('.')) {
            return Err(wrong("is too much: a pattern has a domain with a dot behind `*.`"));
        }
        Ok(Self { is_plain, host, below, port })
    }
}

impl fmt::Display for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain { "http://" } else { "" };
        let below = if self.below { "*." } else { "" };
        write!(f, "{scheme}{below}{}", self.host)?;
        let usual = if self.is_plain { 80 } else { 443 };
        if self.port != usual { write!(f, ":{}", self.port) } else { Ok(()) }
    }
}

impl TryFrom<String> for HttpSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HttpSource> for String {
    fn from(source: HttpSource) -> Self {
        source.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(entry: &str, scheme: &str, host: &str, port: u16) -> bool {
        entry.parse::<HttpSource>().unwrap().matches(scheme, host, port)
    }

    #[test]
    fn an_entry_is_one_scheme_host_and_port() {
        assert!(matches("Data.Example.org", "https", "data.example.org", 443));
        assert!(!matches("data.example.org", "http", "data.example.org", 443));
        assert!(!matches("data.example.org", "https", "data.example.org", 8443));
        assert!(!matches("data.example.org", "https", "x.data.example.org", 443));
        assert!(matches("http://10.0.0.5:8080", "http", "10.0.0.5", 8080));
        assert!(matches("http://[::1]", "http", "[::1]", 80));
        assert!(matches("[0:0::1]:9", "https", "[::1]", 9));
    }

    #[test]
    fn a_pattern_is_all_names_below_a_domain() {
        assert!(matches("*.example.org:8443", "https", "a.b.example.org", 8443));
        for host in ["example.org", "badexample.org", ".example.org", "example.org.evil.net"] {
            assert!(!matches("*.example.org", "https", host, 443), "{host}");
        }
    }

    #[test]
    fn wrong_entries_are_refused_and_right_ones_are_shown() {
        for text in [
            "", "*", "*.", "*.org", "*.0.0.1", "ftp://x", "a b", "x/y", "x:", "x:99999", "user@x",
            "http://", "[::1", "*.[::1]", ".x", "x.",
        ] {
            assert!(text.parse::<HttpSource>().is_err(), "{text}");
        }
        for text in ["x", "x:1", "http://x", "http://*.x.y:8080", "[::1]:8"] {
            let source: HttpSource = text.parse().unwrap();
            assert_eq!(source.to_string(), text);
            let sent = serde_json::to_string(&source).unwrap();
            assert_eq!(serde_json::from_str::<HttpSource>(&sent).unwrap(), source);
        }
    }
}

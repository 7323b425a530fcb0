//! Certificates from an authority that speaks ACME (RFC 8555).
//!
//! | part | file |
//! |---|---|
//! | the settings, and their checks | here |
//! | when the next order is due, and orders when they are | `renewals` |
//! | one order, from the account to the certificate | `order` |
//! | the files of account, certificate and proofs | `folder` |
//! | requests to the authority | `http` |
//!
//! Boundary: names are proved at the listener of clients (TLS-ALPN-01), by certificates that
//! `snowmelt_rpc::tls` makes.

mod folder;
mod http;
mod order;
mod renewals;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport};
use url::Url;

pub use renewals::Renewals;

/// The most names that a certificate may have; authorities have this limit.
const MAX_NAMES: usize = 100;
/// The most bytes of a name of DNS.
const MAX_NAME_BYTES: usize = 253;

/// The authority that is asked for certificates, and what for.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    ordered: Ordered,
    /// Addresses to which the authority writes, such as `mailto:admin@example.com`.
    contact: Vec<String>,
    /// PEM text of the authorities by which the directory is known; those of the system if absent.
    trusted: Option<Vec<u8>>,
}

/// The certificate that settings ask for. A kept one of others is replaced at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ordered {
    /// The URL of the authority's directory.
    directory: String,
    /// The names of DNS.
    names: Vec<String>,
}

impl AcmeSettings {
    /// Checks settings.
    ///
    /// # Errors
    /// `SM-0110`: the message says what is wrong.
    pub fn new(
        directory: &str,
        names: &[String],
        contact: &[String],
        trusted: Option<Vec<u8>>,
    ) -> Result<Self, ErrorReport> {
        let url = Url::parse(directory).ok().filter(|url| url.scheme() == "https");
        let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
        let Some(url) = url else {
            return Err(wrong(format!("the directory `{directory}` is not an https:// address")));
        };
        if names.is_empty() || names.len() > MAX_NAMES {
            return Err(wrong(format!("a certificate needs 1 to {MAX_NAMES} names")));
        }
        let mut names =
            names.iter().map(|name| checked_name(name)).collect::<Result<Vec<_>, _>>()?;
        names.sort();
        names.dedup();
        let contact = contact.iter().map(|contact| address(contact)).collect();
        Ok(Self { ordered: Ordered { directory: url.into(), names }, contact, trusted })
    }
}

fn checked_name(name: &str) -> Result<String, ErrorReport> {
    let name = name.to_ascii_lowercase();
    let is_part = |part: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && part.len() < 64 && part.bytes().all(is_letter)
    };
    if name.starts_with("*.") {
        let message = format!("`{name}`: an authority checks it in DNS, which is not supported");
        return Err(wrong(message));
    }
    let is_name = name.split('.').all(is_part) && name.len() <= MAX_NAME_BYTES;
    if !is_name || name.parse::<IpAddr>().is_ok() {
        return Err(wrong(format!("`{name}` is not a name of DNS")));
    }
    Ok(name)
}

/// A contact as a URL.
fn address(contact: &str) -> String {
    match contact.contains(':') {
        true => contact.to_owned(),
        false => format!("mailto:{contact}"),
    }
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}

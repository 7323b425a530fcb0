//! The servers of etcd, the prefix of a platform's keys, and how a platform proves who it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// The prefix of the keys of a platform whose location names none.
const DEFAULT_PREFIX: &str = "snowmelt";
/// The port of etcd for its clients.
const DEFAULT_PORT: u16 = 2379;
/// Time after which an operation fails, with all its attempts.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdServer {
    /// The name or address.
    pub host: String,
    /// The port for clients.
    pub port: u16,
}

impl fmt::Display for EtcdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The connection of a platform to its etcd. The password stays in its file, which is read for
/// each login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The servers, which are tried in this order.
    pub servers: Vec<EtcdServer>,
    /// The first part of all keys: platforms of different prefixes share no key.
    pub prefix: String,
    /// Whether connections use TLS.
    pub tls: bool,
    /// Certificates of authorities; those of the system if absent.
    pub ca: Option<PathBuf>,
    /// The certificate that the platform shows to etcd.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
    /// The name of the platform's user in etcd.
    pub user: Option<String>,
    /// The file with the password of that user.
    pub password_file: Option<PathBuf>,
    /// Time after which an operation fails, with all its attempts.
    pub timeout: Duration,
}

impl EtcdSettings {
    /// Reads a location: `etcd://HOST:PORT,HOST:PORT/PREFIX`, or `etcds://` for TLS.
    ///
    /// # Errors
    /// The fault in the location.
    pub fn parse(location: &str) -> Result<Self, String> {
        let (tls, rest) = match location.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            _ => return Err("a store is `etcd://HOST:PORT,…` or `etcds://HOST:PORT,…`".to_owned()),
        };
        let (servers, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let servers: Vec<_> = servers.split(',').map(server).collect::<Result<_, _>>()?;
        let prefix = prefix.trim_end_matches('/');
        let fits = |each: char| each.is_ascii_alphanumeric() || "-_./".contains(each);
        if !prefix.chars().all(fits) {
            return Err(format!("the prefix `{prefix}` has other than letters, digits, and -_./"));
        }
        let prefix = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
        Ok(Self {
            servers,
            prefix: prefix.to_owned(),
            tls,
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
            timeout: DEFAULT_TIMEOUT,
        })
    }

    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// The fault in the settings.
    pub fn check(&self) -> Result<(), String> {
        let has_files = self.ca.is_some() || self.certificate.is_some() || self.key.is_some();
        if has_files && !self.tls {
            return Err("certificates need TLS: write etcds:// for etcd://".to_owned());
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err("a certificate and its key are named together".to_owned());
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err("a user and the file of its password are named together".to_owned());
        }
        let far = self.servers.iter().find(|server| !server.is_this_machine());
        match far.filter(|_| self.user.is_some() && !self.tls) {
            Some(server) => Err(format!("a password is sent to {server} only with TLS: etcds://")),
            None => Ok(()),
        }
    }

    /// The servers in words.
    pub fn place(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        format!("etcd at {}", servers.join(", "))
    }

    /// Whether values cross the network without encryption.
    pub fn sends_in_clear(&self) -> bool {
        !self.tls && !self.servers.iter().all(EtcdServer::is_this_machine)
    }

    /// The user and its password.
    pub(super) fn login(&self) -> Result<Option<Login>, String> {
        let (Some(name), Some(file)) = (&self.user, &self.password_file) else { return Ok(None) };
        let password = std::fs::read_to_string(file).map_err(|error| unread(file, error))?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Some(Login { name: name.clone(), password }))
    }

    /// The way to open TLS, if connections use it.
    pub(super) fn connector(&self) -> Result<Option<TlsConnector>, String> {
        if !self.tls {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        for authority in self.authorities()? {
            roots.add(authority).map_err(|error| format!("an authority is not valid: {error}"))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
            _ => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }

    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        match &self.ca {
            Some(file) => certificates(file),
            None => Ok(rustls_native_certs::load_native_certs().certs),
        }
    }
}

impl EtcdServer {
    fn is_this_machine(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        address.map_or(self.host == "localhost", |address| address.is_loopback())
    }
}

/// A user of etcd.
pub(super) struct Login {
    pub name: String,
    pub password: String,
}

fn server(text: &str) -> Result<EtcdServer, String> {
    let wrong = || format!("`{text}` is not HOST:PORT");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
        return Err(wrong());
    }
    Ok(EtcdServer { host: host.to_owned(), port })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| unread(file, error))?;
    let read: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unread(file, error))?;
    if read.is_empty() {
        return Err(format!("{} contains no PEM certificate", file.display()));
    }
    Ok(read)
}

fn unread(file: &Path, error: impl fmt::Display) -> String {
    format!("{} cannot be read: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_names_servers_and_a_prefix() {
        let read = EtcdSettings::parse("etcds://a:1,[::1]:2,b/teams/one/").unwrap();
        assert_eq!(
            read.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["a:1", "[::1]:2", "b:2379"]
        );
        assert_eq!((read.prefix.as_str(), read.tls), ("teams/one", true));
        assert_eq!(EtcdSettings::parse("etcd://a").unwrap().prefix, "snowmelt");
        for wrong in ["a:1", "http://a", "etcd://", "etcd://a:b", "etcd://u@a", "etcd://a/ä"] {
            EtcdSettings::parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_password_is_sent_to_other_machines_only_with_tls() {
        let with_user = |location| EtcdSettings {
            user: Some("u".to_owned()),
            password_file: Some("/p".into()),
            ..EtcdSettings::parse(location).unwrap()
        };
        with_user("etcd://127.0.0.1:1,localhost").check().unwrap();
        with_user("etcds://far").check().unwrap();
        let refused = with_user("etcd://127.0.0.1,far").check().unwrap_err();
        assert!(refused.contains("far:2379"), "{refused}");
        let plain =
            EtcdSettings { ca: Some("/c".into()), ..EtcdSettings::parse("etcd://a").unwrap() };
        assert!(plain.check().unwrap_err().contains("etcds://"));
    }
}

//! The address at which a server serves clients of other hosts, with its certificate and tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_control::access::certificates::acme::AcmeSettings;
use snowmelt_control::access::certificates::{CertificateFiles, ServerCertificate};
use snowmelt_control::access::oidc::Issuers;
use snowmelt_control::access::tokens::Tokens;
use snowmelt_control::server::Remote;
use snowmelt_types::{Code, ErrorReport};

use super::keys::{TLS_ACME_CA, TLS_ACME_DIRECTORY, TLS_ACME_NAMES};
use super::tls::Acme;
use super::{Config, ConfigValue, Tls, ValueOrigin, wrong};

/// The address at which a server serves clients of other hosts. `None` if it serves none.
///
/// # Errors
/// `SM-0110` for the files and the authority.
pub fn of_server(config: &Config) -> Result<Option<Remote>, ErrorReport> {
    let tls = &config.tls;
    let Some(listen) = &tls.listen else { return Ok(None) };
    let certificate = match &tls.acme.directory {
        Some(directory) => ordered(tls, &directory.value)?,
        None => of_files(tls)?,
    };
    let server = config.user.as_ref().map(|user| user.value.user);
    let is_optional = tls.tokens.origin == ValueOrigin::Default;
    let tokens = Arc::new(Tokens::open(&tls.tokens.value, is_optional, server)?);
    let issuers =
        tls.issuers.as_ref().map(|file| Issuers::open(&file.value, server)).transpose()?;
    let issuers = Arc::new(issuers.unwrap_or_default());
    Ok(Some(Remote { listen: listen.value, certificate, tokens, issuers }))
}

fn of_files(tls: &Tls) -> Result<ServerCertificate, ErrorReport> {
    if tls.acme.names.is_some() {
        let problem =
            format!("an authority is asked only if {} names one", TLS_ACME_DIRECTORY.name);
        return Err(wrong(TLS_ACME_NAMES.name, &problem));
    }
    let chain = file(tls.certificate.as_ref(), "a certificate: use --tls-cert")?;
    let key = file(tls.key.as_ref(), "the key of its certificate: use --tls-key")?;
    ServerCertificate::of_files(CertificateFiles { chain, key })
}

fn ordered(tls: &Tls, directory: &str) -> Result<ServerCertificate, ErrorReport> {
    if tls.certificate.is_some() || tls.key.is_some() {
        let problem = "a certificate comes from an authority or from files, not from both";
        return Err(wrong(TLS_ACME_DIRECTORY.name, problem));
    }
    let Acme { names, contact, ca, .. } = &tls.acme;
    let of = |all: &Option<ConfigValue<Vec<String>>>| {
        all.as_ref().map(|all| all.value.clone()).unwrap_or_default()
    };
    let trusted = ca.as_ref().map(|file| read(&file.value)).transpose()?;
    ServerCertificate::ordered(AcmeSettings::new(directory, &of(names), &of(contact), trusted)?)
}

fn read(path: &Path) -> Result<Vec<u8>, ErrorReport> {
    let failed = |error| wrong(TLS_ACME_CA.name, &format!("{}: {error}", path.display()));
    std::fs::read(path).map_err(failed)
}

fn file(file: Option<&ConfigValue<PathBuf>>, what: &str) -> Result<PathBuf, ErrorReport> {
    let message = || format!("the address for clients of other hosts needs {what}");
    let missing = || ErrorReport::new(Code::OPTION, message());
    Ok(file.ok_or_else(missing)?.value.clone())
}

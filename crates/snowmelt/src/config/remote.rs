//! The address at which a server serves clients of other hosts, with its certificate and tokens.

use std::path::PathBuf;
use std::sync::Arc;

use snowmelt_control::access::oidc::Issuers;
use snowmelt_control::access::tokens::Tokens;
use snowmelt_control::server::{CertificateFiles, Remote};
use snowmelt_types::{Code, ErrorReport};

use super::{Config, ConfigValue, ValueOrigin};

/// The address at which a server serves clients of other hosts. `None` if it serves none.
///
/// # Errors
/// `SM-0110` for the files.
pub fn of_server(config: &Config) -> Result<Option<Remote>, ErrorReport> {
    let tls = &config.tls;
    let Some(listen) = &tls.listen else { return Ok(None) };
    let chain = file(tls.certificate.as_ref(), "a certificate: use --tls-cert")?;
    let key = file(tls.key.as_ref(), "the key of its certificate: use --tls-key")?;
    let files = CertificateFiles { chain, key };
    let certificate = files.read()?;
    let server = config.user.as_ref().map(|user| user.value.user);
    let is_optional = tls.tokens.origin == ValueOrigin::Default;
    let tokens = Arc::new(Tokens::open(&tls.tokens.value, is_optional, server)?);
    let issuers =
        tls.issuers.as_ref().map(|file| Issuers::open(&file.value, server)).transpose()?;
    let issuers = Arc::new(issuers.unwrap_or_default());
    Ok(Some(Remote { listen: listen.value, certificate, files, tokens, issuers }))
}

fn file(file: Option<&ConfigValue<PathBuf>>, what: &str) -> Result<PathBuf, ErrorReport> {
    let message = || format!("the address for clients of other hosts needs {what}");
    let missing = || ErrorReport::new(Code::OPTION, message());
    Ok(file.ok_or_else(missing)?.value.clone())
}

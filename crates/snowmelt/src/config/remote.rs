//! The address at which a server serves clients of other hosts, with its certificate and tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_control::access::tokens::Tokens;
use snowmelt_control::server::{Certificate, Remote};
use snowmelt_types::{Code, ErrorReport};

use super::{Config, ConfigValue};
use crate::terminal::text;

/// The address at which a server serves clients of other hosts. `None` if it serves none.
///
/// # Errors
/// `SM-0110` for the files.
pub fn of_server(config: &Config) -> Result<Option<Remote>, ErrorReport> {
    let tls = &config.tls;
    let Some(listen) = &tls.listen else { return Ok(None) };
    let chain = file(tls.certificate.as_ref(), "a certificate: use --tls-cert")?;
    let key = file(tls.key.as_ref(), "the key of its certificate: use --tls-key")?;
    let certificate = Certificate::new(&chain, &key).map_err(wrong)?;
    let tokens = Arc::new(Tokens::open(&tls.tokens.value)?);
    Ok(Some(Remote { listen: listen.value, certificate, tokens }))
}

fn file(file: Option<&ConfigValue<PathBuf>>, what: &str) -> Result<Vec<u8>, ErrorReport> {
    let needs = || wrong(format!("the address for clients of other hosts needs {what}"));
    let path: &Path = &file.ok_or_else(needs)?.value;
    std::fs::read(path)
        .map_err(|error| wrong(format!("{}: {}", path.display(), text::reason(&error))))
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}

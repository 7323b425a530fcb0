//! The platform on another host that commands use, with the token for it.

use std::path::PathBuf;

use snowmelt_control::client::{TlsServer, Token};
use snowmelt_types::{Code, ErrorReport};

use super::keys::{CLIENT_CA, CLIENT_TOKEN_FILE, URL};
use super::{ConfigSources, ConfigValue};
use crate::args::Cli;
use crate::env;
use crate::terminal::text;

/// The address of a platform on another host, and the files with which it is used.
#[derive(Clone, Debug)]
pub struct RemotePlatform {
    /// The URL; if absent, commands use the server of this machine.
    pub url: Option<ConfigValue<String>>,
    /// PEM file with authorities of the server's certificate; those of the system if absent.
    pub ca: Option<ConfigValue<PathBuf>>,
    /// File with the token.
    pub token_file: Option<ConfigValue<PathBuf>>,
}

impl RemotePlatform {
    pub(super) fn load(sources: &ConfigSources, cli: &Cli) -> Result<Self, ErrorReport> {
        Ok(Self {
            url: sources.maybe(&URL, cli.global.url.clone(), |url| Ok(url.to_owned()))?,
            ca: sources.file(&CLIENT_CA, None)?,
            token_file: sources.file(&CLIENT_TOKEN_FILE, None)?,
        })
    }

    /// Returns the server and the token for it; `None` if commands use the server of this machine.
    ///
    /// # Errors
    /// `SM-0110` for a URL or file that is not valid, and without a token.
    pub fn server(&self) -> Result<Option<(TlsServer, Token)>, ErrorReport> {
        let Some(url) = &self.url else { return Ok(None) };
        let authorities = self.ca.as_ref().map(read).transpose()?;
        let server = TlsServer::new(&url.value, authorities.as_deref()).map_err(|problem| {
            let file = self.ca.as_ref().map(|file| file.value.display().to_string());
            let of_file = file.filter(|_| problem.contains("certificate"));
            wrong(of_file.map_or(problem.clone(), |file| format!("{file}: {problem}")))
        })?;
        let token = match (env::client_token(), &self.token_file) {
            (Some(token), _) => token,
            (None, Some(file)) => String::from_utf8_lossy(&read(file)?).into_owned(),
            (None, None) => {
                return Err(wrong(format!("there is no token for the platform at {server}")).hint(
                    "put it into SNOWMELT_TOKEN, or its file into client.token_file; `snowmelt \
                     token new` makes one on the platform's machine",
                ));
            }
        };
        let token = Token::new(&token).map_err(|problem| wrong(format!("the token: {problem}")))?;
        Ok(Some((server, token)))
    }
}

fn read(file: &ConfigValue<PathBuf>) -> Result<Vec<u8>, ErrorReport> {
    std::fs::read(&file.value)
        .map_err(|error| wrong(format!("{}: {}", file.value.display(), text::reason(&error))))
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}

//! The settings of a host in a cluster: its name, the token, and the address for other hosts.

use std::net::SocketAddr;
use std::path::Path;

use snowmelt_control::cluster::hosts::Token;
use snowmelt_control::server::ClusterSettings;
use snowmelt_types::{Code, ErrorReport, HostName};

use super::Config;
use crate::terminal::text;

/// The cluster of a server, if it listens for hosts.
///
/// # Errors
/// `SM-0110` for the token and the name.
pub fn of_server(config: &Config) -> Result<Option<ClusterSettings>, ErrorReport> {
    let Some(listen) = &config.listen else { return Ok(None) };
    let listen: SocketAddr = listen.value;
    Ok(Some(ClusterSettings { name: name(config)?, listen, token: token(config)? }))
}

/// The secret token that all hosts of the cluster have.
///
/// # Errors
/// `SM-0110` if no file is configured, or its content is no token.
pub fn token(config: &Config) -> Result<Token, ErrorReport> {
    let wrong = |message: String| {
        ErrorReport::new(Code::OPTION, message).hint(
            "create it on the first host, copy it to the others: head -c 24 /dev/urandom | base64",
        )
    };
    let Some(file) = &config.token_file else {
        return Err(wrong("a cluster needs a secret token: use --token-file".to_owned()));
    };
    let path: &Path = &file.value;
    let unreadable = |error| wrong(format!("{}: {}", path.display(), text::reason(&error)));
    let read = std::fs::read_to_string(path).map_err(unreadable)?;
    Token::new(&read).map_err(|problem| wrong(format!("{}: {problem}", path.display())))
}

/// The given name, or one derived from the machine's host name.
///
/// # Errors
/// `SM-0110` if the host name is not a valid name.
pub fn name(config: &Config) -> Result<HostName, ErrorReport> {
    if let Some(name) = &config.host {
        return Ok(name.value.clone());
    }
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = own.split('.').next().unwrap_or_default().chars().map(plain).collect();
    name.parse().map_err(|_| {
        let message = format!("the host name `{own}` is not a valid name in a cluster");
        ErrorReport::new(Code::OPTION, message).hint("choose one with --name")
    })
}

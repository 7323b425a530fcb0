//! The grammar of the address for clients of other hosts, and of `snowmelt token`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use snowmelt_types::Tenant;

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt token new acme
  snowmelt up --tls-listen 10.0.0.1:7443 --tls-cert server.pem --tls-key server.key";

const NEW_EXAMPLES: &str = "\
Examples:
  snowmelt token new acme > acme.token

The token is printed once, and the file of tokens gets its digest. To withdraw it, remove its line
from the file, which the server reads again when it changes. A tenant may have several tokens.";

/// Options of the address for clients of other hosts.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Serve clients of other hosts at this address, over TLS and with a token of a tenant
    #[arg(long, value_name = "ADDRESS")]
    pub tls_listen: Option<SocketAddr>,
    /// PEM file with the certificate of this address, and those that lead to its authority
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the key of the certificate
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// File with the digests of tokens [default: tokens in the state folder]
    #[arg(long, value_name = "FILE")]
    pub tls_tokens: Option<PathBuf>,
}

/// `snowmelt token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token with which clients of other hosts act for a tenant
    #[command(after_help = NEW_EXAMPLES)]
    New(NewTokenArgs),
}

/// `snowmelt token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The tenant
    #[arg(value_parser = str::parse::<Tenant>, value_name = "TENANT")]
    pub holder: Tenant,
    /// File with the digests of tokens [default: tokens in the state folder]
    #[arg(long, value_name = "FILE")]
    pub tls_tokens: Option<PathBuf>,
}

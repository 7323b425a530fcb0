//! The grammar of the address for clients of other hosts, and of `snowmelt token`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use snowmelt_types::{NamePattern, Role, Tenant, parse_duration};

use super::{ListArgs, PlatformArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt token new acme --role caller --grant 'score-*' --expires 30d
  snowmelt token ls
  snowmelt token rotate 0f1e2d3c4b5a6978
  snowmelt up --tls-listen 10.0.0.1:7443 --tls-cert server.pem --tls-key server.key";

const NEW_EXAMPLES: &str = "\
Examples:
  snowmelt token new acme > acme.token
  snowmelt token new acme --role caller --grant 'score-*' --expires 30d --note 'web shop'
  snowmelt token new --role operator                for every tenant
  snowmelt token new acme --tls-tokens tokens       a line of a file, instead of a key in the state

The text of the key is printed once, and the platform keeps its digest. A tenant may have several
keys. Roles: reader (lists, logs and metrics), caller (calls functions), developer (also deploys
them), administrator (also manages the keys of the tenant), operator (everything, for every tenant).";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt token ls
  snowmelt token ls -o json | jq '.[] | select(.used_ms == null)'

Root sees the keys of all tenants, or of the one that --tenant names.";

const ROTATE_EXAMPLES: &str = "\
Examples:
  snowmelt token rotate 0f1e2d3c4b5a6978 > acme.token
  snowmelt token rotate 0f1e2d3c4b5a6978 --overlap 1d

The new key has the same role and names, and lasts as long as the old one was made for.";

const REVOKE_EXAMPLES: &str = "\
Examples:
  snowmelt token revoke 0f1e2d3c4b5a6978

What the holder runs ends at once: its calls, its leases and answers that are being sent.";

/// Options of the address for clients of other hosts.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Serve clients of other hosts at this address, over TLS and with a key
    #[arg(long, value_name = "ADDRESS")]
    pub tls_listen: Option<SocketAddr>,
    /// PEM file with the certificate of this address, and those that lead to its authority
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the key of the certificate
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// File with digests of tokens, beside the keys in the state [default: tokens in the state folder]
    #[arg(long, value_name = "FILE")]
    pub tls_tokens: Option<PathBuf>,
    /// File with issuers (OpenID Connect) whose tokens are accepted, and what their claims give
    #[arg(long, value_name = "FILE")]
    pub tls_issuers: Option<PathBuf>,
}

/// `snowmelt token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a key with which clients of other hosts act for a tenant
    #[command(after_help = NEW_EXAMPLES)]
    New(NewTokenArgs),
    /// List keys, without their texts
    #[command(after_help = LS_EXAMPLES)]
    Ls(ListArgs),
    /// Make a key in the place of another one, which ends after an overlap
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(RotateTokenArgs),
    /// Remove a key, and end what its holder runs
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke(RevokeTokenArgs),
}

/// `snowmelt token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The tenant [default: that of the command]
    #[arg(value_parser = str::parse::<Tenant>, value_name = "TENANT")]
    pub holder: Option<Tenant>,
    /// Role of the key: reader, caller, developer, administrator or operator
    #[arg(long, value_name = "ROLE", value_parser = str::parse::<Role>, default_value = "developer")]
    pub role: Role,
    /// Only functions of this name, in which * stands for any text (repeatable)
    #[arg(long = "grant", value_name = "NAME", value_parser = str::parse::<NamePattern>)]
    pub grants: Vec<NamePattern>,
    /// How long the key lasts [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    /// Purpose of the key, in a line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
    /// Write a line with the digest into this file, instead of a key into the platform's state
    #[arg(long, value_name = "FILE", conflicts_with_all = ["grants", "note", "embedded", "server"])]
    pub tls_tokens: Option<PathBuf>,
    /// The platform that gets the key.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt token rotate`.
#[derive(Debug, Args)]
pub struct RotateTokenArgs {
    /// The identifier of the key
    #[arg(value_name = "ID")]
    pub id: String,
    /// How long the old key lasts still
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
    pub overlap: Duration,
    /// The platform that has the key.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt token revoke`.
#[derive(Debug, Args)]
pub struct RevokeTokenArgs {
    /// The identifier of the key
    #[arg(value_name = "ID")]
    pub id: String,
    /// The platform that has the key.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

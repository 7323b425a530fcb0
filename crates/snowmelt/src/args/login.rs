//! The grammar of contexts and logins.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ListFormat, ShowFormat};

pub(super) const CONTEXT_EXAMPLES: &str = "\
Examples:
  snowmelt context set prod --url https://platform.example:7443 --token-file prod.token
  snowmelt context use prod
  snowmelt --context local status
  snowmelt context ls

A context is a platform on another host with its certificates and a key or a login; `local` is
the server of this machine. --context or --url choose the platform, then SNOWMELT_CONTEXT,
SNOWMELT_URL, the configuration, and the current context.";

pub(super) const LOGIN_EXAMPLES: &str = "\
Examples:
  snowmelt login --url https://platform.example:7443
  snowmelt login --context prod
  snowmelt login --context prod --url https://platform.example --issuer https://login.example

The command shows a page and a code for the browser of any device, and waits. The platform says
where people log in. The login is kept for the context, and renewed until it is over.";

const SET_EXAMPLES: &str = "\
Examples:
  snowmelt context set prod --url https://platform.example:7443 --ca ca.pem --token-file prod.token
  snowmelt context set prod --tenant acme

Options that are not given stay as they are. The first context becomes the current one.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  curl -H \"Authorization: Bearer $(snowmelt context token)\" https://platform.example:7443/v1/udfs
  snowmelt context token --context prod -o json

With -o json: address, certificates, tenant, token and its end; null for the server of this
machine.";

/// `snowmelt context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List contexts
    Ls(LsContextArgs),
    /// Show a context
    Show(ShowContextArgs),
    /// Make a context, or change one
    #[command(after_help = SET_EXAMPLES)]
    Set(SetContextArgs),
    /// Have commands use a context from now on
    Use(NamedContextArgs),
    /// Remove a context, with its login
    Rm(NamedContextArgs),
    /// Print the token for the platform, renewed if that is due
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(ContextTokenArgs),
}

/// `snowmelt context ls`.
#[derive(Debug, Args)]
pub struct LsContextArgs {
    /// Format of the list
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt context show`.
#[derive(Debug, Args)]
pub struct ShowContextArgs {
    /// Name of the context [default: the current one]
    pub name: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt context use` and `snowmelt context rm`.
#[derive(Debug, Args)]
pub struct NamedContextArgs {
    /// Name of the context
    pub name: String,
}

/// `snowmelt context set`. The global options --url and --tenant are its options too.
#[derive(Debug, Args)]
pub struct SetContextArgs {
    /// Name of the context
    pub name: String,
    /// PEM file with authorities of the platform's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// File with a key for the platform, in place of a login
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// `snowmelt context token`.
#[derive(Debug, Args)]
pub struct ContextTokenArgs {
    /// Format: table prints the token alone
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt login`. The global options --context, --url and --tenant are its options too.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// PEM file with authorities of the platform's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// URL of the issuer [default: the one that the platform names]
    #[arg(long, value_name = "URL")]
    pub issuer: Option<String>,
    /// Name of this program at the issuer [default: the one that the platform names]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// PEM file with authorities of the issuer's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub issuer_ca: Option<PathBuf>,
}

/// `snowmelt logout`. The global option --context is its option too.
#[derive(Debug, Args)]
pub struct LogoutArgs {}

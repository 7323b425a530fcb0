//! The grammar of `snowmelt audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ListFormat;

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt audit verify
  snowmelt audit verify /backup/audit -o json";

const VERIFY_EXAMPLES: &str = "\
Examples:
  snowmelt audit verify
  snowmelt audit verify /backup/audit -o json

Each line has the digest of the one before it, so that a line which was changed, removed or put in
shows. The last lines of all can be removed unseen: compare the digest of the last line, which this
command prints, with what a collector has.";

/// `snowmelt audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no line of the audit was changed, removed or put in
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyAuditArgs),
}

/// `snowmelt audit verify`.
#[derive(Debug, Args)]
pub struct VerifyAuditArgs {
    /// Folder of the files [default: that of the server]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Format of the result
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

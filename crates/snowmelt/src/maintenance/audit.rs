//! `snowmelt audit`: the check of the files of the audit.

use snowmelt_control::{AuditCheck, verify_audit};
use snowmelt_types::Report;

use crate::args::{AuditCommand, VerifyAuditArgs};
use crate::config::Config;
use crate::output::list;
use crate::terminal::{CommandOutcome, Printer};

/// Runs one of the commands.
///
/// # Errors
/// `SM-0532` with the first line that does not follow the one before it; `SM-0531` for files that
/// cannot be read.
pub fn run(command: &AuditCommand, config: &Config, printer: Printer) -> CommandOutcome {
    let AuditCommand::Verify(args) = command;
    verify(args, config, printer)
}

fn verify(args: &VerifyAuditArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let folder = args.folder.as_ref().unwrap_or(&config.audit.folder.value);
    let checked = verify_audit(folder).map_err(|broken| broken.report())?;
    let AuditCheck { lines, first, last, digest, is_torn } = &checked;
    let row = vec![lines.to_string(), first.to_string(), last.to_string(), digest.clone()];
    list::print(args.output, &["lines", "first", "last", "digest"], &[row], &checked)?;
    if *first > 1 {
        printer.note(&format!("lines before {first} are not there: older files are removed"));
    }
    if *is_torn {
        printer.note("the last line is incomplete: it is being written, or the server was killed");
    }
    Ok(0)
}

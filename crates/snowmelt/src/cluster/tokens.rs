//! `snowmelt token`: tokens of clients of other hosts.

use snowmelt_control::access::{permissions, tokens};
use snowmelt_types::Role;

use crate::args::NewTokenArgs;
use crate::config::Config;
use crate::terminal::{CommandOutcome, Printer, printer};

/// Makes a token, prints it, and adds its digest to the file.
///
/// # Errors
/// `SM-0110` for a tenant that has no tokens and for the file, `SM-0505`.
pub fn new(args: &NewTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let file = &config.tls.tokens.value;
    if file.parent() == Some(&*config.state.value) {
        let group = config.group.as_ref().map(|group| &group.value);
        permissions::state_folder(&config.state.value, group)?;
    }
    let token = tokens::add(file, &args.holder, Role::Developer, None)?;
    printer::print(&format!("{token}\n"))?;
    printer.note(&format!("{} has its digest", file.display()));
    Ok(0)
}

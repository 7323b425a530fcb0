//! `snowmelt backup`: copies of the state, with or without a server, and their restore.

use std::path::Path;

use snowmelt_control::state::{backups, offline_backup};
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::args::BackupArgs;
use crate::config::Config;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Makes a copy of the state and prints its path, or restores one.
///
/// # Errors
/// `SM-0505` for a state or a copy that is damaged or missing, `SM-0504` for a restore while a
/// server runs, `SM-0114` for a copy that cannot be written.
pub fn run(args: &BackupArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let state = &config.state.value;
    if args.restore {
        let done = backups::restore(state, args.file.as_deref())?;
        printer.note(&format!("the state is the copy {} now", done.from.display()));
        if let Some(kept) = done.kept {
            printer.note(&format!("the file that was the state is {}", kept.display()));
        }
        return Ok(0);
    }
    if let Some(file) = args.file.as_deref().filter(|file| file.exists()) {
        return Err(refused(file, "there is a file with this name").into());
    }
    let made = if platform::answers(&config.socket.value)? {
        platform::with(CommandPlatform::server(None, config)?, printer, async |client, _| {
            client.back_up().await
        })?
    } else {
        platform::plain_runtime()?.block_on(offline_backup::copy(state))?
    };
    let shown = match &args.file {
        Some(file) => {
            std::fs::copy(&made.file, file).map_err(|error| {
                let _ = std::fs::remove_file(file);
                refused(file, &text::reason(&error))
            })?;
            file.display().to_string()
        }
        None => made.file,
    };
    printer::print(&format!("{shown}\n"))?;
    printer.note(&format!("copied {}", ByteSize(made.bytes)));
    Ok(0)
}

fn refused(file: &Path, why: &str) -> ErrorReport {
    ErrorReport::new(Code::OUTPUT, format!("{} cannot be written: {why}", file.display()))
}

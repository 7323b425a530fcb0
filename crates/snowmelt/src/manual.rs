//! Completions and manual pages, generated from the grammar.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use snowmelt_types::{Code, ErrorReport};

use crate::args::Cli;
use crate::terminal::{CommandOutcome, printer, text};

/// Prints the completions of a shell.
///
/// # Errors
/// `SM-0114` if stdout cannot be written to.
pub fn completions(shell: Shell) -> CommandOutcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "snowmelt", &mut script);
    printer::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// Writes `snowmelt.1`, `snowmelt-sql.1`, `snowmelt-fn-deploy.1` and so on.
///
/// # Errors
/// `SM-0110` if the folder cannot be written to.
pub fn man(folder: &Path) -> CommandOutcome {
    let mut whole = Cli::command();
    // Adds the global options to every page.
    whole.build();
    let written = std::fs::create_dir_all(folder).and_then(|()| pages(&whole, "snowmelt", folder));
    written.map_err(|error| {
        let message = format!("{} cannot be written: {}", folder.display(), text::reason(&error));
        ErrorReport::new(Code::OPTION, message)
    })?;
    Ok(0)
}

fn pages(command: &Command, name: &str, folder: &Path) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(folder.join(format!("{name}.1")), text)?;
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    for inner in shown.filter(|inner| inner.get_name() != "help") {
        pages(inner, &format!("{name}-{}", inner.get_name()), folder)?;
    }
    Ok(())
}

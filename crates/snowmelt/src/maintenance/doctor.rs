//! `snowmelt doctor`: the requirements of the machine, one row each.

use std::fmt::Write;

use rustix::process::geteuid;
use snowmelt_node::doctor::{self, Check, CheckStatus};

use super::store;
use crate::args::{DoctorArgs, ShowFormat};
use crate::config::Config;
use crate::output::{TableLayout, draw, list};
use crate::server;
use crate::terminal::{CommandOutcome, Printer, printer};

/// Checks this machine. Exit code 0 for no problems, 1 for warnings, 2 for failures.
///
/// # Errors
/// `SM-0114` if stdout cannot be written to.
pub fn run(args: &DoctorArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let python = config.python.as_ref().map(|python| python.value.as_path());
    // An ordinary user enters a user namespace for the checks, which takes a process with one thread.
    let is_root = geteuid().is_root();
    let known = is_root.then(|| server::checks(config, printer));
    let user = known.as_ref().and_then(|server| server.user);
    let set = config.user.as_ref().map(|user| user.value.user);
    let mut checks = doctor::run(
        &config.state.value,
        &config.run.value,
        config.image_mount.value,
        python,
        set.or(user),
    );
    let running = known.unwrap_or_else(|| server::checks(config, printer));
    checks.extend(running.checks);
    checks.extend(user.map(server::of_user));
    checks.extend(config.security.plaintext.value.then(unencrypted));
    checks.extend(store::check(config));
    let shown = match args.output {
        ShowFormat::Json => list::json(&checks)?,
        ShowFormat::Table => table(&checks),
    };
    printer::print(&shown)?;
    let failed = count(&checks, CheckStatus::Fail);
    let warned = count(&checks, CheckStatus::Warn);
    printer.note(&format!("{failed} failed, {warned} warned, {} checked", checks.len()));
    Ok(exit(failed, warned))
}

/// The row of a host whose cluster encrypts nothing.
fn unencrypted() -> Check {
    Check {
        name: "encryption between hosts".to_owned(),
        status: CheckStatus::Warn,
        found: "off: whoever reads the network reads rows and secrets".to_owned(),
        needed: "certificates and TLS, except in a closed network".to_owned(),
        mend: Some("set cluster.plaintext to false on all hosts, which join anew".to_owned()),
    }
}

fn exit(failed: usize, warned: usize) -> u8 {
    match (failed, warned) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 2,
    }
}

fn count(checks: &[Check], status: CheckStatus) -> usize {
    checks.iter().filter(|check| check.status == status).count()
}

fn table(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let mend = check.mend.clone().filter(|_| check.status != CheckStatus::Ok);
        let found = check.found.clone();
        let needed = check.needed.clone();
        [Some(word(check.status).to_owned()), Some(check.name.clone()), Some(found), Some(needed)]
            .into_iter()
            .chain([Some(mend.unwrap_or_default())])
            .collect()
    };
    let rows: Vec<Vec<_>> = checks.iter().map(row).collect();
    let drawn = draw(&["", "check", "found", "needed", "fix"], &rows, TableLayout::unlimited());
    let fits = |width: usize| drawn.lines().all(|line| line.chars().count() <= width);
    // The command of a fix must never be cut: on a narrow terminal a check takes several lines.
    let drawn = match printer::terminal_width().filter(|_| printer::stdout_is_terminal()) {
        Some(width) if !fits(width) => stacked(checks, width),
        _ => drawn,
    };
    match printer::stdout_has_colour() {
        true => drawn.lines().map(|line| painted(line) + "\n").collect(),
        false => drawn,
    }
}

fn stacked(checks: &[Check], width: usize) -> String {
    let mut shown = String::new();
    for check in checks {
        let line = format!("{:<4}  {}: {}", word(check.status), check.name, check.found);
        shown += &folded(&line, width);
        if check.status != CheckStatus::Ok {
            let _ = writeln!(shown, "      needed: {}", check.needed);
            if let Some(mend) = &check.mend {
                let _ = writeln!(shown, "      fix: {mend}");
            }
        }
    }
    shown
}

/// Folds a line between words and indents the further lines; a long word is not cut.
fn folded(line: &str, width: usize) -> String {
    const INDENT: &str = "      ";
    let mut folded = String::new();
    let mut used = 0;
    for word in line.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if used > INDENT.len() && used + length > width {
            folded.truncate(folded.trim_end().len());
            folded += "\n";
            folded += INDENT;
            used = INDENT.len();
        }
        folded += word;
        used += word.chars().count();
    }
    folded + "\n"
}

fn word(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Ok => "ok",
        CheckStatus::Warn => "warn",
        CheckStatus::Fail => "fail",
    }
}

fn painted(line: &str) -> String {
    for (word, colour) in [("ok  ", 32), ("warn", 33), ("fail", 31)] {
        if let Some(rest) = line.strip_prefix(word) {
            return format!("\x1b[{colour}m{word}\x1b[0m{rest}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_between_words() {
        let line = "ok    uv: uv 0.13.9 at /a/rather/long/folder/uv";
        assert_eq!(folded(line, 80), format!("{line}\n"));
        assert_eq!(folded(line, 30), "ok    uv: uv 0.13.9 at\n      /a/rather/long/folder/uv\n");
    }

    #[test]
    fn the_worst_check_determines_the_exit_code() {
        assert_eq!([exit(0, 0), exit(0, 2), exit(1, 2)], [0, 1, 2]);
    }
}

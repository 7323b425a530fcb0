//! Input of a command: files that the user names, stdin, and values of options with a form of
//! their own.
//!
//! | member | job |
//! |---|---|
//! | here | texts of files and of stdin, requirements, events |
//! | `environment` | environment variables of functions |
//! | `function_files` | the files that a user gives to functions |
//! | `secrets` | references to secrets of functions |

pub mod environment;
pub mod function_files;
pub mod secrets;

use std::io::{IsTerminal, Read};
use std::path::Path;

use serde_json::value::RawValue;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::SourceCode;

use crate::args::PackageArgs;
use crate::terminal::text;

/// Text of a file that the user named.
///
/// # Errors
/// `SM-0110` with the file's name.
pub fn file(path: &Path) -> Result<String, ErrorReport> {
    std::fs::read_to_string(path).map_err(|error| unreadable(&path.display().to_string(), &error))
}

/// Reads all of stdin. `hint` is shown if stdin is a terminal and `asked_for` is false.
///
/// # Errors
/// `SM-0110` if stdin is a terminal, or if the text is not UTF-8.
pub fn stdin(what: &str, hint: &str, asked_for: bool) -> Result<String, ErrorReport> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() && !asked_for {
        return Err(ErrorReport::new(Code::OPTION, format!("no {what} given")).hint(hint));
    }
    let mut text = String::new();
    stdin.lock().read_to_string(&mut text).map_err(|error| unreadable("stdin", &error))?;
    Ok(text)
}

/// A Python file of the user.
///
/// # Errors
/// `SM-0110` with the file's name.
pub fn code(path: &Path) -> Result<SourceCode, ErrorReport> {
    Ok(SourceCode::Source { file: path.display().to_string(), text: file(path)? })
}

/// The requirements of a function, with that of its version of Python.
///
/// # Errors
/// Fails as [`listed`].
pub fn requirements(args: &PackageArgs) -> Result<Vec<String>, ErrorReport> {
    let mut all = listed(&args.packages, args.requirements.as_deref())?;
    all.extend(args.python.as_deref().map(snowmelt_package::python_requirement));
    Ok(all)
}

/// Requirements from `--package` options and from a `requirements.txt`; the installer interprets
/// the lines.
///
/// # Errors
/// `SM-0110` with the file's name.
pub fn listed(packages: &[String], listed: Option<&Path>) -> Result<Vec<String>, ErrorReport> {
    let listed = listed.map(file).transpose()?.unwrap_or_default();
    let lines = listed.lines().map(without_comment).filter(|line| !line.is_empty());
    Ok(packages.iter().map(String::as_str).chain(lines).map(str::to_owned).collect())
}

/// A `#` begins a comment only at the start of the line or after a space, as in pip.
fn without_comment(line: &str) -> &str {
    let starts_comment = |at: &usize| *at == 0 || line[..*at].ends_with([' ', '\t']);
    let comment = line.match_indices('#').map(|(at, _)| at).find(starts_comment);
    line[..comment.unwrap_or(line.len())].trim()
}

fn unreadable(name: &str, error: &std::io::Error) -> ErrorReport {
    ErrorReport::new(Code::OPTION, format!("{name} cannot be read: {}", text::reason(error)))
}

/// The event of `--data`, or an empty one.
///
/// # Errors
/// Fails as [`file()`], [`stdin`] and [`parse_event`].
pub fn event(data: Option<&str>) -> Result<Box<RawValue>, ErrorReport> {
    let data = match data {
        None => "{}".to_owned(),
        Some("-") => stdin("event", "give it with --data", true)?,
        Some(data) => match data.strip_prefix('@') {
            Some(path) => file(Path::new(path))?,
            None => data.to_owned(),
        },
    };
    parse_event(&data)
}

/// Checks that an event is valid JSON.
///
/// # Errors
/// `SM-0222` if it is not.
pub fn parse_event(data: &str) -> Result<Box<RawValue>, ErrorReport> {
    serde_json::from_str(data).map_err(|error| {
        let shown: String = data.chars().take(200).collect();
        ErrorReport::new(Code::FUNCTION_EVENT, format!("the event is not valid JSON: {error}"))
            .input(shown)
            .hint("quote it for the shell, for example --data '{\"width\": 80}'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_removed_from_requirements() {
        assert_eq!(without_comment("# all"), "");
        assert_eq!(without_comment("six==1.16  # pinned"), "six==1.16");
        assert_eq!(without_comment("pkg @ file:///a#egg=pkg"), "pkg @ file:///a#egg=pkg");
    }
}

//! Environment variables of functions: those of options and files, and how they are shown.

use std::collections::BTreeMap;
use std::path::Path;

use snowmelt_api::FunctionSummary;
use snowmelt_types::{Code, ErrorReport, SourceLocation};

use crate::args::EnvironmentArgs;
use crate::input;

/// The text that is shown instead of a value.
const HIDDEN: &str = "***";

/// The variables of a function. Later files override earlier ones, and options override files.
///
/// # Errors
/// `SM-0110` with the file and line that is not a variable.
pub fn given(args: &EnvironmentArgs) -> Result<BTreeMap<String, String>, ErrorReport> {
    let mut all = BTreeMap::new();
    for path in &args.environment_files {
        all.extend(of_file(path, &input::file(path)?)?);
    }
    all.extend(args.environment.iter().cloned());
    Ok(all)
}

/// Replaces the values of variables, which often are passwords, in what is shown to a user.
pub fn hide(function: &mut FunctionSummary) {
    function.options.environment.values_mut().for_each(|value| *value = HIDDEN.to_owned());
}

/// Parses lines `NAME=VALUE`, also after `export `; a value may be in quotes. Nothing is
/// substituted.
fn of_file(path: &Path, text: &str) -> Result<Vec<(String, String)>, ErrorReport> {
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            variable(line).ok_or_else(|| {
                // The line is not repeated: it may have a secret.
                let message = format!("line {} of {} is not a variable", at + 1, path.display());
                let location = SourceLocation {
                    file: path.display().to_string(),
                    line: u32::try_from(at + 1).unwrap_or(u32::MAX),
                    within: None,
                };
                ErrorReport::new(Code::OPTION, message)
                    .location(location)
                    .hint("write NAME=VALUE, or # before a comment")
            })
        })
        .collect()
}

fn variable(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let value = value.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let quoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|inner| inner.strip_suffix(quote)));
    Some((name.to_owned(), quoted.unwrap_or(value).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_files_and_later_files_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = file("one.env", "# all\n\nA=1\nexport B = 'two words' \nC=\"x=y\"\nD=#4\n");
        let second = file("two.env", "A=2\r\nE=\n");
        let args = EnvironmentArgs {
            environment: vec![("B".to_owned(), "option".to_owned())],
            environment_files: vec![first, second],
        };
        let shown: Vec<_> =
            given(&args).unwrap().into_iter().map(|(name, value)| name + "=" + &value).collect();
        assert_eq!(shown, ["A=2", "B=option", "C=x=y", "D=#4", "E="]);
    }

    #[test]
    fn a_line_that_is_no_variable_is_refused_without_its_text() {
        for text in ["A=1\nsecret", "A=1\n1A=secret", "A=1\n=secret", "A=1\nA B=secret"] {
            let refused = of_file(Path::new("x.env"), text).unwrap_err();
            assert_eq!(refused.location.unwrap().line, 2);
            assert!(!refused.message.contains("secret"), "{}", refused.message);
        }
    }
}

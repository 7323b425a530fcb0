//! Requirements of users: names with versions, extras and markers. Paths and URLs of the host, and
//! text that the resolver could take for an option, are refused.
//!
//! Invariant: a [`Requirement`] is a single line, starts with a letter or digit, and names a
//! distribution of the package index.

use std::fmt;

use pep440_rs::VersionSpecifiers;

use super::name::normalized;
use super::upload::UploadedWheel;
use crate::storage::PackageStore;
use crate::{Error, Result};

/// The greatest length of a line in bytes. Longer lines are mistakes or attacks on the resolver.
const MAX_LINE_LENGTH: usize = 1_000;

/// The greatest number of requirements, more than any real function needs. It limits the work of
/// the resolver for one request.
const MAX_REQUIREMENTS: usize = 500;

/// A validated requirement, such as `phonenumbers==8.13.*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    name: String,
    text: String,
    uploaded: Option<UploadedWheel>,
}

impl Requirement {
    /// Parses a requirement in pip's syntax (PEP 508 without URLs).
    pub fn parse(line: &str) -> Result<Self> {
        let text = line.trim();
        if let Some(uploaded) = UploadedWheel::parse(text) {
            let name = uploaded.name.clone();
            return Ok(Self { name, text: text.to_owned(), uploaded: Some(uploaded) });
        }
        refuse_other_forms(text).map_err(|refusal| refusal.of(text))?;
        let name_end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_end);
        let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
        if !name.starts_with(is_alphanumeric) || !name.ends_with(is_alphanumeric) {
            return Err(SHAPE.of(text));
        }
        check_rest(rest).ok_or_else(|| SHAPE.of(text))?;
        Ok(Self { name: normalized(name), text: text.to_owned(), uploaded: None })
    }

    /// The normalised name of the distribution (PEP 503): lower case, `-` between words.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line for the resolver. Fails for an uploaded wheel that is not on this host.
    pub(crate) fn line(&self, store: &PackageStore) -> Result<String> {
        self.uploaded.as_ref().map_or_else(|| Ok(self.text.clone()), |wheel| wheel.line(store))
    }

    /// The versions that the requirement allows, if it is a name with versions and nothing else.
    pub(crate) fn versions(&self) -> Option<VersionSpecifiers> {
        let is_name_end = |c: char| !is_name_char(c);
        let rest = &self.text[self.text.find(is_name_end).unwrap_or(self.text.len())..];
        // Another text is not parsed: the resolver understands extras, markers and parentheses.
        rest.trim().parse().ok().filter(|_| self.uploaded.is_none())
    }

    /// The requirement as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a list; returns it sorted and without duplicates, so that equal sets are equal.
pub(crate) fn parse_set(lines: &[String]) -> Result<Vec<Requirement>> {
    if lines.len() > MAX_REQUIREMENTS {
        return Err(RequirementRefusal {
            reason: "there are more than 500 requirements",
            hint: "list only packages that your code imports: the resolver adds their dependencies",
        }
        .of(&lines[MAX_REQUIREMENTS]));
    }
    let mut set = lines.iter().map(|line| Requirement::parse(line)).collect::<Result<Vec<_>>>()?;
    set.sort();
    set.dedup();
    Ok(set)
}

struct RequirementRefusal {
    reason: &'static str,
    hint: &'static str,
}

impl RequirementRefusal {
    fn of(&self, line: &str) -> Error {
        let shown: String = line.chars().take(120).map(printable).collect();
        Error::Requirement {
            line: shown,
            reason: self.reason.to_owned(),
            hint: self.hint.to_owned(),
        }
    }
}

fn printable(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

const SHAPE: RequirementRefusal = RequirementRefusal {
    reason: "it is not a package name with versions",
    hint: "write it as pip does, for example `phonenumbers==8.13.*` or `pandas[parquet]>=2,<3`",
};

fn refuse_other_forms(text: &str) -> Result<(), RequirementRefusal> {
    let refuse = |reason, hint| Err(RequirementRefusal { reason, hint });
    if text.len() > MAX_LINE_LENGTH || text.chars().any(char::is_control) {
        return Err(SHAPE);
    }
    match option_name(text) {
        Some("-r" | "--requirement" | "-c" | "--constraint") => {
            return refuse("it refers to another file", "put all requirements into one list");
        }
        Some("-e" | "--editable") => {
            return refuse(
                "it refers to a folder of the machine on which it was written",
                "publish the package to an index, or put its code into your own file",
            );
        }
        Some("-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links") => {
            return refuse(
                "an index is a setting of the platform, not of a function",
                "start the platform with UV_DEFAULT_INDEX or UV_INDEX in its environment",
            );
        }
        Some("--hash") => {
            return refuse(
                "hashes in the list are not supported",
                "write it without --hash: the resolver records the hashes and checks each file",
            );
        }
        Some(_) => return refuse("it is an option", "write only names with versions"),
        None => {}
    }
    let before_marker = text.split(';').next().unwrap_or_default();
    let is_archive =
        [".whl", ".tar.gz", ".zip"].iter().any(|end| before_marker.trim().ends_with(end));
    if before_marker.trim().ends_with(".whl") && !text.contains(['@', ':']) {
        return refuse(
            "it refers to a file of the machine on which it was written",
            "give its path in packages= of the Python package, which uploads its content",
        );
    }
    if before_marker.contains(['/', '\\', '@']) || text.contains("://") || is_archive {
        return refuse(
            "it is a URL or a path",
            "packages come from an index only, by name: write for example `phonenumbers==8.13.*`",
        );
    }
    Ok(())
}

/// The first option in a line: `-r`, `--hash`.
fn option_name(text: &str) -> Option<&str> {
    let word = text.split_whitespace().find(|word| word.starts_with('-'))?;
    Some(word.split('=').next().unwrap_or(word))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Checks the part after the name: `[extras]`, versions, `; marker`, each optional.
fn check_rest(rest: &str) -> Option<()> {
    let mut rest = rest.trim_start();
    if let Some(extras) = rest.strip_prefix('[') {
        let (inside, after) = extras.split_once(']')?;
        let allowed = |c| is_name_char(c) || matches!(c, ',' | ' ');
        inside.chars().all(allowed).then_some(())?;
        rest = after.trim_start();
    }
    let (versions, marker) = rest.split_once(';').unwrap_or((rest, ""));
    check_versions(versions.trim())?;
    // `$` is not allowed because the resolver expands `${VARIABLE}` from the platform's
    // environment.
    let in_marker = |c: char| c.is_ascii_alphanumeric() || "'\"<>=!~.,*+-_() ".contains(c);
    marker.chars().all(in_marker).then_some(())
}

fn check_versions(versions: &str) -> Option<()> {
    let inside = versions.strip_prefix('(').and_then(|v| v.strip_suffix(')')).unwrap_or(versions);
    if inside.is_empty() {
        return Some(());
    }
    inside.starts_with(['=', '<', '>', '!', '~']).then_some(())?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "=<>!~.,*+-_ ".contains(c);
    inside.chars().all(allowed).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_requirements_of_pip() {
        for good in [
            "six",
            "phonenumbers==8.13.*",
            "pandas [parquet,aws] >=2, <3",
            "zope.interface~=6.0",
            "numpy (>=1.20)",
            "numpy>=2; python_version < '3.13'",
            "torch==2.4.0+cpu",
        ] {
            assert!(Requirement::parse(good).is_ok(), "{good}");
        }
        assert_eq!(Requirement::parse("Zope._Interface").unwrap().name(), "zope-interface");
    }

    #[test]
    fn refuses_options_paths_and_urls() {
        for (bad, reason) in [
            ("--index-url=evil", "an index is a setting"),
            ("-r other.txt", "another file"),
            ("-e .", "folder of the machine"),
            ("--target=/etc", "an option"),
            ("six --hash=sha256:00", "hashes"),
            ("six --index-url evil", "an index is a setting"),
            ("pkg @ file:///etc/passwd", "URL or a path"),
            ("pkg@https://evil", "URL or a path"),
            ("./local", "URL or a path"),
            ("a/b", "URL or a path"),
            ("evil.whl", "a file of the machine"),
            ("pkg @ sha256:00/pkg-1-py3-none-any.whl", "URL or a path"),
            ("", "not a package name"),
            ("six six", "not a package name"),
            ("six\nflask", "not a package name"),
            ("six-", "not a package name"),
            ("_six", "not a package name"),
            (".six", "not a package name"),
            ("six; python_version < '${AWS_SECRET_ACCESS_KEY}'", "not a package name"),
        ] {
            let refused = Requirement::parse(bad).unwrap_err().to_string();
            assert!(refused.contains(reason), "{bad}: {refused}");
        }
    }

    #[test]
    fn plain_versions_are_compared_and_all_else_is_left_to_the_resolver() {
        let allows = |line: &str| {
            let versions = Requirement::parse(line).unwrap().versions()?;
            Some(versions.contains(&"25.0.0".parse().unwrap()))
        };
        for (line, expected) in [
            ("pyarrow", Some(true)),
            ("pyarrow>=17,<27", Some(true)),
            ("pyarrow >= 17, < 25", Some(false)),
            ("pyarrow==25.*", Some(true)),
            ("pyarrow[extra]", None),
            ("pyarrow (>=17)", None),
            ("pyarrow>=17; python_version < '3.9'", None),
        ] {
            assert_eq!(allows(line), expected, "{line}");
        }
    }

    #[test]
    fn equal_sets_are_equal() {
        let set = |lines: &[&str]| {
            parse_set(&lines.iter().map(|line| line.to_string()).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(set(&["b", "a", "b"]), set(&["a", "b"]));
    }

    proptest! {
        #[test]
        fn nothing_accepted_is_an_option_or_leaves_its_line(text in "\\PC{0,40}") {
            if let Ok(requirement) = Requirement::parse(&text) {
                prop_assert!(requirement.as_str().starts_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(!requirement.as_str().contains(['\n', '\r', '/', '@'])
                    || requirement.as_str().contains(';')
                    || requirement.uploaded.is_some());
                prop_assert!(!requirement.as_str().contains("://"));
            }
        }
    }
}

//! The versions of Python that some code asks for: requirements of the name `python`, as Conda
//! writes them, beside those of packages.
//!
//! A version travels with the requirements, so everything that is kept or chosen by them (an
//! environment, a zygote, a host) is kept and chosen by the version too.

use pep440_rs::{Version, VersionSpecifiers};

use super::{OLDEST_PYTHON, Python};
use crate::{Error, Requirement, Result};

/// The name of requirements of Python itself.
const NAME: &str = "python";

/// The newest minor version of Python 3 that is looked for.
const NEWEST_MINOR: u8 = 14;

/// A number that is greater than the number of releases of any minor version.
const MAX_RELEASES: u64 = 40;

/// The versions of Python that some code can run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPython {
    texts: Vec<String>,
    versions: Vec<VersionSpecifiers>,
}

/// The requirement that stands for a version: `python==3.13` for `3.13`, `python>=3.12` for
/// `>=3.12`.
pub fn python_requirement(version: &str) -> String {
    let version = version.trim();
    let equals = if version.starts_with(|c: char| c.is_ascii_digit()) { "==" } else { "" };
    format!("{NAME}{equals}{version}")
}

impl WantedPython {
    /// Splits the requirements of Python itself from those of packages.
    pub fn split(requirements: &[String]) -> Result<(Self, Vec<String>)> {
        let mut wanted = Self::default();
        let mut packages = Vec::new();
        for line in requirements {
            match Requirement::parse(line) {
                Ok(one) if one.name() == NAME => wanted.add(&one)?,
                // Others are refused where they are installed.
                _ => packages.push(line.clone()),
            }
        }
        Ok((wanted, packages))
    }

    fn add(&mut self, requirement: &Requirement) -> Result<()> {
        let versions = &requirement.as_str()[NAME.len()..];
        let parsed = versions.split(',').map(whole_minor).collect::<Vec<_>>().join(",").parse();
        let versions = parsed.map_err(|_| Error::Requirement {
            line: requirement.to_string(),
            reason: "it names no versions of Python".to_owned(),
            hint: "write for example python==3.13 or python>=3.12".to_owned(),
        })?;
        if !self.versions.contains(&versions) {
            self.texts.push(requirement.to_string());
            self.versions.push(versions);
        }
        Ok(())
    }

    /// Whether any Python will do.
    pub fn is_any(&self) -> bool {
        self.versions.is_empty()
    }

    /// Whether the code can run on this interpreter.
    pub fn allows(&self, python: &Python) -> bool {
        self.allows_version(python.version.1, python.patch.into())
    }

    /// Whether the code can run on some release of this version: `3.13`.
    pub fn allows_minor(&self, version: &str) -> bool {
        let minor = version.strip_prefix("3.").and_then(|minor| minor.parse().ok());
        minor.is_some_and(|minor| self.allows_some(minor))
    }

    /// The minor versions that may be looked for, the newest first.
    pub(crate) fn minors(&self) -> impl Iterator<Item = u8> {
        (OLDEST_PYTHON.1..=NEWEST_MINOR).rev().filter(|minor| self.allows_some(*minor))
    }

    fn allows_some(&self, minor: u8) -> bool {
        (0..MAX_RELEASES).any(|release| self.allows_version(minor, release))
    }

    fn allows_version(&self, minor: u8, release: u64) -> bool {
        let version = Version::new([3, u64::from(minor), release]);
        self.versions.iter().all(|versions| versions.contains(&version))
    }
}

impl std::fmt::Display for WantedPython {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.texts.join(" and "))
    }
}

/// Turns `==3.13` into every release of 3.13: nobody asks for 3.13.0 only by this.
fn whole_minor(versions: &str) -> String {
    let versions = versions.trim();
    let minor = versions.strip_prefix("==").map(str::trim);
    match minor.filter(|minor| minor.matches('.').count() < 2 && !minor.ends_with('*')) {
        Some(minor) => format!("=={minor}.*"),
        None => versions.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(lines: &[&str]) -> (WantedPython, Vec<String>) {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        WantedPython::split(&lines).unwrap()
    }

    #[test]
    fn versions_of_python_are_told_from_packages() {
        let (wanted, packages) =
            split(&["six", "python==3.12", "python-dateutil", "Python >= 3.11"]);
        assert_eq!(packages, ["six", "python-dateutil"]);
        assert_eq!(wanted.to_string(), "python==3.12 and Python >= 3.11");
        assert_eq!(wanted.minors().collect::<Vec<_>>(), [12]);
        assert!(split(&["six"]).0.is_any() && !wanted.is_any());
    }

    #[test]
    fn versions_are_compared_as_packages_are() {
        let minors = |line: &str| split(&[line]).0.minors().collect::<Vec<_>>();
        for (line, found) in [
            ("python==3.13", vec![13]),
            ("python==3.13.*", vec![13]),
            ("python==3.12.4", vec![12]),
            ("python>=3.12,<3.14", vec![13, 12]),
            ("python~=3.12", vec![14, 13, 12]),
            ("python~=3.12.1", vec![12]),
            ("python>3.13", vec![14, 13]),
            ("python<3.11", vec![10]),
            ("python==2.7", vec![]),
            ("python>=4", vec![]),
        ] {
            assert_eq!(minors(line), found, "{line}");
        }
        let both = split(&["python==3.12", "python==3.13"]).0;
        assert_eq!(both.minors().count(), 0);
        assert!(split(&["python>=3.11"]).0.allows_minor("3.12"));
        assert!(!split(&["python>=3.11"]).0.allows_minor("3.10"));
    }

    #[test]
    fn a_version_is_written_as_users_write_it() {
        assert_eq!(python_requirement(" 3.13 "), "python==3.13");
        assert_eq!(python_requirement(">=3.12,<3.14"), "python>=3.12,<3.14");
        for bad in ["python[x]==3.12", "python==three", "python==3.12; sys_platform == 'linux'"] {
            let refused = WantedPython::split(&[bad.to_owned()]).unwrap_err().to_string();
            assert!(refused.contains("no versions of Python"), "{bad}: {refused}");
        }
    }
}

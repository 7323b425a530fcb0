//! Progress of an installation, for callers that display it. This crate prints nothing.

use std::fmt;

use crate::Pinned;

/// A step of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallProgress {
    /// The resolver searches versions for this many requirements.
    Resolving {
        /// The number of requirements.
        count: usize,
    },
    /// Another task or process is creating the same resource; its result will be shared.
    Waiting,
    /// Packages are fetched and unpacked. Two may be in progress at a time, each with its own
    /// steps.
    Unpacking {
        /// The packages.
        packages: Vec<Pinned>,
    },
    /// Every file of a package is verified against its RECORD.
    Verifying {
        /// The package.
        package: Pinned,
    },
    /// The byte code of a package is compiled.
    Compiling {
        /// The package.
        package: Pinned,
    },
    /// Unpacked packages are linked to an environment.
    Linking {
        /// The number of packages.
        packages: usize,
    },
}

impl fmt::Display for InstallProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolving { count: 1 } => f.write_str("resolving 1 package"),
            Self::Resolving { count } => write!(f, "resolving {count} packages"),
            Self::Waiting => f.write_str("waiting for another installation of the same packages"),
            Self::Unpacking { packages } => write!(f, "unpacking {}", shortened(packages)),
            Self::Verifying { package } => write!(f, "verifying {}", worded(package)),
            Self::Compiling { package } => write!(f, "compiling {}", worded(package)),
            Self::Linking { packages: 1 } => f.write_str("linking 1 package"),
            Self::Linking { packages } => write!(f, "linking {packages} packages"),
        }
    }
}

const SHOWN: usize = 3;

fn shortened(packages: &[Pinned]) -> String {
    let shown: Vec<_> = packages.iter().take(SHOWN).map(worded).collect();
    match packages.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn worded(package: &Pinned) -> String {
    format!("{} {}", package.name, package.version)
}

/// Receives each step when it starts.
pub trait Reporter: Send + Sync {
    /// Takes a step that starts. Called from the installing task, so it must return immediately.
    fn step(&self, progress: &InstallProgress);
}

impl<F: Fn(&InstallProgress) + Send + Sync> Reporter for F {
    fn step(&self, progress: &InstallProgress) {
        self(progress);
    }
}

/// Ignores all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn step(&self, _: &InstallProgress) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(name: &str) -> Pinned {
        Pinned { name: name.to_owned(), version: "1.0".to_owned() }
    }

    #[test]
    fn names_the_first_packages_and_counts_the_rest() {
        let few = InstallProgress::Unpacking { packages: vec![pinned("numpy")] };
        assert_eq!(few.to_string(), "unpacking numpy 1.0");
        let many =
            InstallProgress::Unpacking { packages: ["a", "b", "c", "d", "e"].map(pinned).to_vec() };
        assert_eq!(many.to_string(), "unpacking a 1.0, b 1.0, c 1.0 and 2 more");
    }
}

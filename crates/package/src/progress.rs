//! What an installation is doing, for whoever shows it. This crate prints nothing.

use std::fmt;

use crate::Pinned;

/// A step of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The resolver looks for versions of this many requirements.
    Resolving {
        /// Requirements.
        count: usize,
    },
    /// Another task or process makes the same; its result will be shared.
    Waiting,
    /// Packages are fetched and unpacked. Two may be under way at a time, each with its own steps.
    Unpacking {
        /// All of them.
        packages: Vec<Pinned>,
    },
    /// Every file of a package is compared with its record.
    Verifying {
        /// Which one.
        package: Pinned,
    },
    /// Byte code of a package is made.
    Compiling {
        /// Which one.
        package: Pinned,
    },
    /// Unpacked packages are put together.
    Linking {
        /// How many.
        packages: usize,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolving { count: 1 } => f.write_str("resolving 1 package"),
            Self::Resolving { count } => write!(f, "resolving {count} packages"),
            Self::Waiting => f.write_str("waiting for packages that another installation makes"),
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

/// Is told each step as it begins.
pub trait Reporter: Send + Sync {
    /// A step begins. Called from the task that installs: it must return at once.
    fn step(&self, progress: &Progress);
}

impl<F: Fn(&Progress) + Send + Sync> Reporter for F {
    fn step(&self, progress: &Progress) {
        self(progress);
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn step(&self, _: &Progress) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(name: &str) -> Pinned {
        Pinned { name: name.to_owned(), version: "1.0".to_owned() }
    }

    #[test]
    fn names_the_first_packages_and_counts_the_rest() {
        let few = Progress::Unpacking { packages: vec![pinned("numpy")] };
        assert_eq!(few.to_string(), "unpacking numpy 1.0");
        let many = Progress::Unpacking { packages: ["a", "b", "c", "d", "e"].map(pinned).to_vec() };
        assert_eq!(many.to_string(), "unpacking a 1.0, b 1.0, c 1.0 and 2 more");
    }
}

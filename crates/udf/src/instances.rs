//! The packages that an instance of a UDF needs in addition to the user's own packages.

use std::str::FromStr;

/// The requirement of the package that transfers the Arrow batches of every kind of UDF. It allows
/// the versions that the runtime supports; a range, so that a user's package can require an older
/// one.
pub const PYARROW: &str = "pyarrow>=17,<27";

/// The requirement for `batch="pandas"`.
pub const PANDAS: &str = "pandas>=2.1,<4";

/// The requirement for `batch="numpy"`, and for buffers that pandas and Arrow share.
pub const NUMPY: &str = "numpy>=1.26,<3";

/// The format of a UDF's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// Row by row.
    Scalar,
    /// `pyarrow.Array`.
    Arrow,
    /// `pandas.Series`.
    Pandas,
    /// `numpy.ndarray`.
    Numpy,
}

impl BatchKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Arrow, Self::Pandas, Self::Numpy];

    /// The value in Python: `batch="pandas"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Arrow => "arrow",
            Self::Pandas => "pandas",
            Self::Numpy => "numpy",
        }
    }

    /// Returns the requirements of the runtime. Plain functions and `sm.map` have none: they use
    /// JSON and pickles, and cloudpickle is part of the runtime.
    pub const fn requirements(self) -> &'static [&'static str] {
        match self {
            Self::Scalar | Self::Arrow => &[PYARROW],
            Self::Pandas => &[PYARROW, PANDAS, NUMPY],
            Self::Numpy => &[PYARROW, NUMPY],
        }
    }

    /// Returns the modules that the runtime imports for this kind, for the zygote to import.
    pub const fn imports(self) -> &'static [&'static str] {
        match self {
            Self::Scalar | Self::Arrow => &["pyarrow"],
            Self::Pandas => &["pyarrow", "numpy", "pandas"],
            Self::Numpy => &["pyarrow", "numpy"],
        }
    }
}

impl FromStr for BatchKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| format!("batch=\"{text}\" is not one of scalar, arrow, pandas, numpy"))
    }
}

/// The user's requirements and those of the runtime. The user's requirement replaces the runtime's
/// for the same package.
pub fn with_runtime(user: &[String], kinds: impl IntoIterator<Item = BatchKind>) -> Vec<String> {
    let named: Vec<String> = user.iter().map(|requirement| distribution(requirement)).collect();
    let mut all = user.to_vec();
    for requirement in kinds.into_iter().flat_map(BatchKind::requirements) {
        let absent = !named.contains(&distribution(requirement));
        if absent && !all.iter().any(|one| one == requirement) {
            all.push((*requirement).to_owned());
        }
    }
    all
}

/// The distribution that a requirement names, in normalised form (PEP 503).
fn distribution(requirement: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let requirement = requirement.trim_start();
    let end = requirement.find(|c| !is_name(c)).unwrap_or(requirement.len());
    let words = requirement[..end].split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_requirement_replaces_the_runtimes() {
        let user = ["PyArrow==18.0".to_owned(), "six".to_owned()];
        let all = with_runtime(&user, [BatchKind::Scalar, BatchKind::Pandas]);
        assert_eq!(all, ["PyArrow==18.0", "six", PANDAS, NUMPY]);
        assert_eq!(with_runtime(&[], [BatchKind::Arrow, BatchKind::Scalar]), [PYARROW]);
        assert_eq!(with_runtime(&user, []), user);
    }

    #[test]
    fn kinds_are_parsed_from_their_text_form() {
        for kind in BatchKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("polars".parse::<BatchKind>().is_err());
    }
}

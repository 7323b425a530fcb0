//! The errors of locations.

use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport, Report};

/// A location has no files, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The location does not exist.
    #[error("there is no file or folder `{location}`")]
    Missing {
        /// The location as the user wrote it.
        location: String,
        /// The path that was tried.
        looked: String,
    },
    /// A link among a table's files is broken.
    #[error("the link `{location}` is broken")]
    BrokenLink {
        /// The link.
        location: String,
        /// The link's target.
        looked: String,
    },
    /// The location exists, but contains no file of a known format.
    #[error("`{location}` holds no file of a known format")]
    Empty {
        /// The location as the user wrote it.
        location: String,
        /// The value that was found instead.
        found: String,
    },
    /// The location contains files of several formats.
    #[error("the files of `{location}` have several formats: {found}")]
    Mixed {
        /// The location as the user wrote it.
        location: String,
        /// The formats, with files.
        found: String,
    },
    /// The location is not valid.
    #[error("`{location}` is not a location: {why}")]
    Invalid {
        /// The location as the user wrote it.
        location: String,
        /// The reason why the location is not valid.
        why: String,
    },
    /// A file or folder cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// The error for a location whose path does not exist.
    pub fn missing(location: &str, path: &Path) -> Self {
        let looked = path.display().to_string();
        Self::Missing { location: location.to_owned(), looked }
    }

    /// The error for a location without files of known formats, with the other entries of its
    /// folder.
    pub fn empty(location: &str, path: &Path) -> Self {
        let found = match std::fs::read_dir(path) {
            Ok(entries) => what_else(entries.flatten().map(|entry| entry.path()).collect()),
            Err(_) => "nothing matches it".to_owned(),
        };
        Self::Empty { location: location.to_owned(), found }
    }

    /// The error for an invalid location.
    pub fn invalid(location: &str, why: impl Into<String>) -> Self {
        Self::Invalid { location: location.to_owned(), why: why.into() }
    }
}

fn what_else(entries: Vec<PathBuf>) -> String {
    let count = entries.len();
    if let Some(broken) = entries.iter().find(|path| path.is_symlink() && !path.exists()) {
        return format!("the link {} is broken", broken.display());
    }
    format!("the folder holds {count} other entries")
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let new = |code| ErrorReport::new(code, self.to_string());
        match self {
            Self::Missing { looked, .. } => {
                new(Code::TABLE_MISSING).hint(format!("it was looked for at {looked}"))
            }
            Self::BrokenLink { looked, .. } => new(Code::TABLE_MISSING)
                .hint(format!("there is no {looked}: fix the link, or remove it from the folder")),
            Self::Empty { found, .. } => new(Code::TABLE_EMPTY).hint(format!(
                "{found}; name a file, a folder with *.parquet, *.csv, *.json or *.arrow in it, or a glob such as 'data/*.parquet'"
            )),
            Self::Mixed { .. } => new(Code::TABLE_MIXED)
                .hint("a table has one format: name the files of one with a glob, such as 'data/*.csv'"),
            Self::Invalid { .. } => new(Code::TABLE_MISSING)
                .hint("name a file, a folder, a glob, or s3://bucket/prefix/*.parquet"),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                new(Code::TABLE_MISSING)
            }
            Self::Io { .. } => new(Code::STORAGE),
        }
    }
}

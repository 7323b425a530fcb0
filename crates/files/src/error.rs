//! What can be wrong with a location.

use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport, Report};

/// A location that stands for no files, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A location does not exist.
    #[error("there is no file or folder `{location}`")]
    Missing {
        /// The location as the user wrote it.
        location: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A link among a table's files leads nowhere.
    #[error("the link `{location}` leads nowhere")]
    LinkDangling {
        /// The link.
        location: String,
        /// Where it leads.
        looked: String,
    },
    /// A location exists, but there is no Parquet file in it.
    #[error("`{location}` holds no Parquet file")]
    Empty {
        /// The location as the user wrote it.
        location: String,
        /// What was there instead.
        found: String,
    },
    /// A location that cannot be understood.
    #[error("`{location}` is no location: {why}")]
    Invalid {
        /// The location as the user wrote it.
        location: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Error {
    /// A location with nothing at its path.
    pub fn missing(location: &str, path: &Path) -> Self {
        let looked = path.display().to_string();
        Self::Missing { location: location.to_owned(), looked }
    }

    /// A location without Parquet files, with what its folder has instead.
    pub fn empty(location: &str, path: &Path) -> Self {
        let found = match std::fs::read_dir(path) {
            Ok(entries) => what_else(entries.flatten().map(|entry| entry.path()).collect()),
            Err(_) => "nothing matches it".to_owned(),
        };
        Self::Empty { location: location.to_owned(), found }
    }

    /// A location that is written wrongly.
    pub fn invalid(location: &str, why: impl Into<String>) -> Self {
        Self::Invalid { location: location.to_owned(), why: why.into() }
    }
}

fn what_else(entries: Vec<PathBuf>) -> String {
    let count = entries.len();
    if let Some(dangling) = entries.iter().find(|path| path.is_symlink() && !path.exists()) {
        return format!("the link {} leads nowhere", dangling.display());
    }
    let text = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "csv" || end == "json" || end == "jsonl")
    };
    match entries.iter().any(text) {
        true => format!("the folder holds {count} other entries, and CSV and JSON are not read"),
        false => format!("the folder holds {count} other entries"),
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let new = |code| ErrorReport::new(code, self.to_string());
        match self {
            Self::Missing { looked, .. } => {
                new(Code::TABLE_MISSING).hint(format!("it was looked for at {looked}"))
            }
            Self::LinkDangling { looked, .. } => new(Code::TABLE_MISSING)
                .hint(format!("there is no {looked}: mend the link, or remove it from the folder")),
            Self::Empty { found, .. } => new(Code::TABLE_EMPTY).hint(format!(
                "{found}; name a file, a folder with *.parquet in it, or a glob such as 'data/*.parquet'"
            )),
            Self::Invalid { .. } => new(Code::TABLE_MISSING)
                .hint("name a file, a folder, a glob, or s3://bucket/prefix/*.parquet"),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                new(Code::TABLE_MISSING)
            }
            Self::Io { .. } => new(Code::STORAGE),
        }
    }
}

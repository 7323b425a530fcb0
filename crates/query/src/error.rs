//! What can go wrong between SQL and its answer.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};

use crate::fault;

/// A failure of a query. Every variant knows the code and the hint that its user is given.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The SQL is wrong, or asks for what is not there: the report was made where the SQL's text
    /// was at hand.
    #[error("{0}")]
    Sql(Box<ErrorReport>),
    /// The plan needs an operator that cannot be cut for workers yet.
    #[error("{what} cannot be run yet")]
    Unsupported {
        /// The operator or clause, by the name that a user knows.
        what: String,
        /// What to do until then.
        hint: String,
    },
    /// A scan would not reach its workers as it was planned.
    #[error("a scan cannot be sent to the workers: {why}")]
    ScanChanged {
        /// What would be lost.
        why: String,
    },
    /// A location does not exist.
    #[error("there is no file or folder `{location}`")]
    LocationMissing {
        /// The location as the user wrote it.
        location: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A location exists, but there is no Parquet file in it.
    #[error("`{location}` holds no Parquet file")]
    LocationEmpty {
        /// The location as the user wrote it.
        location: String,
        /// What was there instead.
        found: String,
    },
    /// A location that cannot be understood.
    #[error("`{location}` is no location: {why}")]
    LocationInvalid {
        /// The location as the user wrote it.
        location: String,
        /// What is wrong with it.
        why: String,
    },
    /// A Parquet file is truncated or corrupt.
    #[error("`{file}` cannot be read as Parquet: {why}")]
    FileCorrupt {
        /// The file.
        file: String,
        /// What the reader says.
        why: String,
    },
    /// Two files of one table do not fit together.
    #[error("the files of `{location}` have different schemas: {why}")]
    SchemasDiffer {
        /// The location as the user wrote it.
        location: String,
        /// Which column differs.
        why: String,
    },
    /// A local file or folder cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Object storage refused or failed.
    #[error("`{location}` cannot be read: {source}")]
    Storage {
        /// The location.
        location: String,
        /// What the store says.
        source: object_store::Error,
    },
    /// A UDF's signature holds no usable schema.
    #[error("`{function}` has no usable schema: {why}")]
    Signature {
        /// The function.
        function: String,
        /// What is wrong.
        why: String,
    },
    /// The driver's part of the plan needs more memory than it may have.
    #[error("merging the results needs more than {limit} of memory")]
    Memory {
        /// The limit.
        limit: ByteSize,
        /// What the pool says.
        why: String,
    },
    /// Spooled results cannot be written or read.
    #[error("the spool of the results failed: {0}")]
    Spool(std::io::Error),
    /// A connection to a worker broke the protocol.
    #[error(transparent)]
    Wire(#[from] snowmelt_wire::Error),
    /// A task failed; the report comes from its worker, or from the node that ran it.
    #[error("{0}")]
    Task(Box<ErrorReport>),
    /// Execution failed in the driver.
    #[error("{0}")]
    Execution(#[from] DataFusionError),
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let new = |code| ErrorReport::new(code, self.to_string());
        match self {
            Self::Sql(report) | Self::Task(report) => report.as_ref().clone(),
            Self::Unsupported { hint, .. } => new(Code::PLAN_UNSUPPORTED).hint(hint),
            Self::ScanChanged { .. } => new(Code::SCAN_CHANGED)
                .hint("this is a fault of Snowmelt: please report the query; a simpler one may run"),
            Self::LocationMissing { looked, .. } => {
                new(Code::TABLE_MISSING).hint(format!("it was looked for at {looked}"))
            }
            Self::LocationEmpty { found, .. } => new(Code::TABLE_EMPTY).hint(format!(
                "{found}; name a file, a folder with *.parquet in it, or a glob such as 'data/*.parquet'"
            )),
            Self::LocationInvalid { .. } => new(Code::TABLE_MISSING)
                .hint("name a file, a folder, a glob, or s3://bucket/prefix/*.parquet"),
            Self::FileCorrupt { .. } => new(Code::FILE_CORRUPT)
                .hint("the file is truncated or damaged: write it again, or leave it out"),
            Self::SchemasDiffer { .. } => new(Code::FILE_CORRUPT)
                .hint("query files of different shapes separately, and combine them with UNION ALL"),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                new(Code::TABLE_MISSING)
            }
            Self::Io { .. } | Self::Storage { .. } => new(Code::STORAGE),
            Self::Signature { .. } => new(Code::FUNCTION_SIGNATURE),
            Self::Memory { why, .. } => new(Code::QUERY_MEMORY)
                .excerpt([why.clone()])
                .hint("give it more with --memory, or let the query return fewer groups or rows"),
            Self::Spool(_) => new(Code::DISK_FULL),
            Self::Wire(error) => error.report(),
            Self::Execution(error) => fault::report(error, &fault::Setting::driver()),
        }
    }
}

//! What can go wrong between SQL and its answer.

use datafusion::error::DataFusionError;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};

use crate::fault;
use crate::scan::{changed, s3_error};

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
    /// A location that stands for no files, or cannot be read.
    #[error(transparent)]
    Location(#[from] snowmelt_files::Error),
    /// A Parquet file is truncated or corrupt.
    #[error("`{file}` cannot be read as Parquet: {why}")]
    FileCorrupt {
        /// The file.
        file: String,
        /// What the reader says.
        why: String,
    },
    /// A file is no longer the one that the query was planned with.
    #[error("`{file}` changed while it was read")]
    FileChanged {
        /// The file.
        file: String,
    },
    /// A file has two columns of one name.
    #[error("`{file}` has two columns named `{column}`")]
    DuplicateColumn {
        /// The file.
        file: String,
        /// The name.
        column: String,
    },
    /// Two files of one table do not fit together.
    #[error("the files of `{location}` do not fit together: {why}")]
    SchemasDiffer {
        /// The location as the user wrote it.
        location: String,
        /// Which column differs.
        why: String,
    },
    /// Object storage refused or failed.
    #[error("`{location}` cannot be read: {source}")]
    Storage {
        /// The location.
        location: String,
        /// What the store says.
        source: object_store::Error,
        /// True if no keys were set.
        anonymous: bool,
    },
    /// A variable for S3 is wrong, as can be seen without asking.
    #[error("S3 cannot be read: {why}")]
    S3Setting {
        /// Which variable, and why.
        why: String,
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
            Self::Location(error) => error.report(),
            Self::FileCorrupt { file, .. } => {
                new(Code::FILE_CORRUPT).hint(match other_format(file) {
                    Some(format) => format!(
                        "only Parquet is read: convert the {format} file first, such as with duckdb -c \"copy (from '{file}') to '{file}.parquet'\""
                    ),
                    None => "the file is truncated or damaged: write it again, or leave it out".to_owned(),
                })
            }
            Self::DuplicateColumn { .. } => new(Code::FILE_CORRUPT)
                .hint("columns are told apart by their names: write the file again with distinct ones"),
            Self::FileChanged { file } => changed(file),
            Self::SchemasDiffer { .. } => new(Code::FILE_CORRUPT)
                .hint("query these files separately, and combine them with CAST and UNION ALL"),
            Self::Storage { location, source, anonymous } => {
                s3_error::report(source, &format!("`{location}`"), *anonymous)
            }
            Self::S3Setting { .. } => new(Code::S3_SETTING)
                .hint("the AWS_* variables of the shell that asks are used, and no others"),
            Self::Signature { .. } => new(Code::FUNCTION_SIGNATURE),
            Self::Memory { why, .. } => new(Code::QUERY_MEMORY)
                .excerpt([why.clone()])
                .hint("give it more with --memory, or let the query return fewer groups or rows"),
            Self::Spool(_) => new(Code::DISK_FULL),
            Self::Wire(error) => error.report(),
            Self::Execution(error) => fault::report(error, &fault::FaultContext::driver()),
        }
    }
}

/// The format that a file's name promises, if it is not Parquet.
fn other_format(file: &str) -> Option<&'static str> {
    let name = file.trim_end_matches(".gz").trim_end_matches(".zst").to_ascii_lowercase();
    let formats = [
        (".csv", "CSV"),
        (".tsv", "TSV"),
        (".json", "JSON"),
        (".jsonl", "JSON"),
        (".ndjson", "JSON"),
        (".arrow", "Arrow"),
        (".feather", "Arrow"),
        (".orc", "ORC"),
        (".avro", "Avro"),
        (".xlsx", "Excel"),
    ];
    formats.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}

//! The errors of a query.

pub mod fault;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};

use fault::{changed, s3};

/// A failure of a query. Every variant has an error code and a hint for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The SQL is wrong, or refers to something that does not exist. The report was made where the
    /// SQL's text was available.
    #[error("{0}")]
    Sql(Box<ErrorReport>),
    /// The codec would change a scan on its way to the workers.
    #[error("a scan cannot be sent to the workers: {why}")]
    ScanChanged {
        /// The property that would be lost.
        why: String,
    },
    /// A location matches no files, or cannot be read.
    #[error(transparent)]
    Location(#[from] snowmelt_files::Error),
    /// A file of another format, or a line of it, cannot be read.
    #[error("{0}")]
    File(Box<ErrorReport>),
    /// A Parquet file is truncated or corrupt.
    #[error("`{file}` cannot be read as Parquet: {why}")]
    FileCorrupt {
        /// The file.
        file: String,
        /// The reader's message.
        why: String,
    },
    /// A file changed after the query was planned.
    #[error("`{file}` changed while it was read")]
    FileChanged {
        /// The file.
        file: String,
    },
    /// A file has two columns with the same name.
    #[error("`{file}` has two columns named `{column}`")]
    DuplicateColumn {
        /// The file.
        file: String,
        /// The name.
        column: String,
    },
    /// Two files of one table have incompatible schemas.
    #[error("the files of `{location}` have incompatible schemas: {why}")]
    SchemasDiffer {
        /// The location as the user wrote it.
        location: String,
        /// The column that differs, and how.
        why: String,
    },
    /// Object storage refused or failed.
    #[error("`{location}` cannot be read: {source}")]
    Storage {
        /// The location.
        location: String,
        /// The store's error.
        source: object_store::Error,
        /// True if no keys were set.
        anonymous: bool,
    },
    /// Object storage does not take an object of an exchange.
    #[error("`{location}` cannot be written: {source}")]
    Upload {
        /// The object.
        location: String,
        /// The store's error.
        source: object_store::Error,
        /// True if no keys were set.
        anonymous: bool,
    },
    /// A variable for S3 is invalid, which is detected without a request.
    #[error("the settings for S3 are invalid: {why}")]
    S3Setting {
        /// The variable that is invalid, and why.
        why: String,
    },
    /// A setting of the query is wrong.
    #[error("{0}")]
    Setting(Box<ErrorReport>),
    /// A UDF's signature has no usable schema.
    #[error("`{function}` has no usable schema: {why}")]
    Signature {
        /// The function.
        function: String,
        /// The reason.
        why: String,
    },
    /// The driver's part of the plan needs more memory than it may have.
    #[error("merging the results needs more than {limit} of memory")]
    Memory {
        /// The limit.
        limit: ByteSize,
        /// The memory pool's message.
        why: String,
    },
    /// The output of a task cannot be written or read.
    #[error("an exchange between workers failed: {0}")]
    Exchange(std::io::Error),
    /// The output of a task on another host cannot be read.
    #[error("outputs on the host {host} cannot be read: {why}")]
    OutputLost {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// A task that sent its rows over a stream was lost.
    #[error("the stream of task {task} ended before its last row")]
    StreamLost {
        /// The task that sent.
        task: u32,
    },
    /// An object of an exchange does not exist any more.
    #[error("the object {object}, which task {task} has written, is gone")]
    ObjectLost {
        /// The object.
        object: String,
        /// The task that has written it.
        task: u32,
    },
    /// The scratch of a worker, the data that does not fit into its memory, cannot be written or
    /// read.
    #[error("the scratch of a worker failed: {0}")]
    Scratch(std::io::Error),
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

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::Execution(error.into())
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let new = |code| ErrorReport::new(code, self.to_string());
        match self {
            Self::Sql(report) | Self::Task(report) | Self::File(report) | Self::Setting(report) => {
                report.as_ref().clone()
            }
            Self::ScanChanged { .. } => new(Code::SCAN_CHANGED)
                .hint("this is a bug in Snowmelt: please report the query; a simpler one may run"),
            Self::Location(error) => error.report(),
            Self::FileCorrupt { file, .. } => {
                new(Code::FILE_CORRUPT).hint(match other_format(file) {
                    Some(format) => {
                        format!("{format} is not read: convert the file to Parquet first")
                    }
                    None => {
                        "the file is truncated or damaged: write it again, or exclude it".to_owned()
                    }
                })
            }
            Self::DuplicateColumn { .. } => new(Code::FILE_CORRUPT)
                .hint("write the file again with a different name for each column"),
            Self::FileChanged { file } => changed(file),
            Self::SchemasDiffer { .. } => new(Code::FILE_CORRUPT)
                .hint("query these files separately, and combine them with CAST and UNION ALL"),
            Self::Storage { location, source, anonymous } => {
                s3::report(source, &format!("`{location}`"), *anonymous)
            }
            Self::Upload { location, source, anonymous } => {
                s3::report_write(source, &format!("`{location}`"), *anonymous)
            }
            Self::S3Setting { .. } => new(Code::S3_SETTING)
                .hint("only the AWS_* variables of the client's environment are used"),
            Self::Signature { .. } => new(Code::FUNCTION_SIGNATURE),
            Self::Memory { why, .. } => new(Code::QUERY_MEMORY)
                .excerpt([why.clone()])
                .hint("raise the limit with --memory, or return fewer groups or rows"),
            // The driver runs both tasks again.
            Self::StreamLost { .. } => new(Code::WORKER_LOST),
            Self::Spool(_) | Self::Exchange(_) | Self::Scratch(_) => new(Code::DISK_FULL),
            // The platform finds the host by this.
            Self::OutputLost { host, .. } => new(Code::OUTPUT_LOST)
                .input(host)
                .hint("run the query again; `snowmelt hosts` shows which hosts there are"),
            Self::ObjectLost { .. } => new(Code::OUTPUT_LOST).hint(
                "something removes the objects of running queries from the location of the \
                 exchange: check its lifecycle rules",
            ),
            Self::Wire(error) => error.report(),
            Self::Execution(error) => fault::report(error, &fault::FaultContext::driver()),
        }
    }
}

/// Returns the format that a file's extension names, if it is a format that cannot be read.
fn other_format(file: &str) -> Option<&'static str> {
    let name = file.to_ascii_lowercase();
    let formats = [
        (".parquet.gz", "Parquet within gzip"),
        (".parquet.zst", "Parquet within zstd"),
        (".arrow.gz", "Arrow within gzip"),
        (".arrow.zst", "Arrow within zstd"),
        (".bz2", "a file compressed with bzip2"),
        (".xz", "a file compressed with xz"),
        (".zip", "a zip archive"),
        (".orc", "ORC"),
        (".avro", "Avro"),
        (".xls", "a workbook of Excel 97"),
        (".xlsb", "a binary workbook of Excel"),
        (".ods", "a workbook of OpenDocument"),
    ];
    formats.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}

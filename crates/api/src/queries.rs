//! Queries: what is asked, and what happens until the answer is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, QueryId, Tenant};
use snowmelt_wire::{CsvOption, ExchangeOptions, Parameters, PriceFile, Signature, SourceCode};
use utoipa::ToSchema;

use crate::FileRefs;

/// A query with everything that it needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// One SELECT statement.
    pub sql: String,
    /// Values of the statement's parameters: a list for `?` and `$1`, an object for `:name`.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub params: Parameters,
    /// Table name to location: a file, a folder, a glob or an `s3://` URL of data files.
    #[serde(default)]
    pub tables: BTreeMap<String, String>,
    /// Options for all CSV files that it reads, as `read_csv` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub csv: Vec<CsvOption>,
    /// The user's functions.
    #[serde(default)]
    pub udfs: Vec<UdfSource>,
    /// Files of the function that a CREATE FUNCTION defines, which are sent before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: FileRefs,
    /// Sent by clients of older versions only. Refused unless it is the tenant of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// How to run it.
    #[serde(default)]
    pub options: QueryOptions,
    /// Folder against which relative locations are read (the client's own working folder).
    pub working_folder: String,
    /// The client's `AWS_*` variables, for `s3://` locations.
    #[serde(default)]
    pub aws: BTreeMap<String, String>,
}

/// Code that defines UDFs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UdfSource {
    /// The code.
    pub code: SourceCode,
    /// Requirements beside those that the code's decorators name.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Its signatures; where absent the code is loaded in a sandbox and asked.
    #[serde(default)]
    pub signatures: Option<Vec<Signature>>,
    /// A block image to run in, by its interpreter and with its packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Files that its instances see: models, data, modules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: FileRefs,
    /// Secrets by the names that the code uses, as references: `env:VARIABLE` or `file:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// How to run a query.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryOptions {
    /// Workers; 0 means one for each core.
    pub workers: u32,
    /// Memory limit of each worker.
    pub memory: ByteSize,
    /// Bytes of files that are worth a task; 0 means as many tasks as workers, however few bytes.
    pub scan_task: ByteSize,
    /// The most time for the whole query, in milliseconds; 0 means no limit.
    pub timeout_ms: u64,
    /// How its stages exchange rows.
    pub exchange: ExchangeOptions,
    /// Prices that replace those of AWS's list, for the cost of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<PriceFile>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self {
            workers: 0,
            memory: ByteSize::mib(1024),
            scan_task: ByteSize::mib(16),
            timeout_ms: 0,
            exchange: ExchangeOptions::default(),
            prices: None,
        }
    }
}

/// What happens in a query, for its progress display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The query was accepted.
    Accepted {
        /// Its id.
        query: QueryId,
    },
    /// A phase began.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// How far the workers are.
    Progress(Progress),
    /// The beginning of what instances of a function wrote to stdout and stderr.
    Printed {
        /// The function.
        function: String,
        /// Whole lines.
        text: String,
    },
    /// Something that the user should know and that is not a failure (a task was run again).
    Note {
        /// One line.
        text: String,
    },
}

/// The phases of a query, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Resolving and unpacking packages, asking the code for its signatures.
    Packages,
    /// Reading statistics, planning and cutting.
    Plan,
    /// Starting workers and UDF instances.
    Start,
    /// Workers run.
    Run,
    /// The driver merges.
    Merge,
}

/// How far the workers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Tasks in all.
    pub tasks: u32,
    /// Tasks that run now.
    pub running: u32,
    /// Tasks that are done.
    pub done: u32,
    /// Workers and UDF instances that were started for this query.
    pub cold: u32,
    /// Workers and UDF instances that were idle and taken again.
    pub warm: u32,
    /// Rows read.
    pub rows: u64,
    /// Bytes read from storage.
    pub bytes: u64,
    /// Bytes of all files of the scans: an upper bound of `bytes`.
    pub bytes_total: u64,
    /// Rows given to UDFs.
    pub udf_rows: u64,
}

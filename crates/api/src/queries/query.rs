//! Queries: requests, and the events until the answer is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, QueryId, Tenant};
use snowmelt_wire::{CsvOption, ExchangeOptions, Parameters, PriceFile, Signature, SourceCode};
use utoipa::ToSchema;

use crate::{FileRef, FileRefs};

/// A query with everything that it needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// The statement: one SELECT.
    pub sql: String,
    /// Values of the statement's parameters: a list for `?` and `$1`, an object for `:name`.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub params: Parameters,
    /// The locations of tables by their names: a file, a folder, a glob or an `s3://` URL of data
    /// files.
    #[serde(default)]
    pub tables: BTreeMap<String, String>,
    /// Options for all CSV files that the query reads, named as `read_csv` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub csv: Vec<CsvOption>,
    /// Code that defines the UDFs of the query.
    #[serde(default)]
    pub udfs: Vec<UdfSource>,
    /// Files of the function that a CREATE FUNCTION statement defines. Their contents are sent
    /// before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, FileRef>)]
    pub files: FileRefs,
    /// The tenant, which only clients of older versions send here. Another one than the tenant of
    /// the request is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The options that say how to run the query.
    #[serde(default)]
    pub options: QueryOptions,
    /// The folder against which relative locations are read: the client's own working folder.
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
    /// The signatures of the UDFs; where absent the code is loaded in a sandbox and asked.
    #[serde(default)]
    pub signatures: Option<Vec<Signature>>,
    /// The name of a block image to run the code in, by its interpreter and with its packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Files that the UDFs' instances see: models, data, modules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, FileRef>)]
    pub files: FileRefs,
    /// Secrets by the names that the code uses, as references: `env:VARIABLE` or `file:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// The options of a query: workers, limits and exchange.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryOptions {
    /// The number of workers; 0 means one for each core.
    pub workers: u32,
    /// Memory limit of each worker, in bytes.
    pub memory: ByteSize,
    /// Bytes of files that are worth a task; 0 means as many tasks as workers, however few bytes
    /// there are.
    pub scan_task: ByteSize,
    /// The most time for the whole query, in milliseconds; 0 means no limit.
    pub timeout_ms: u64,
    /// Options of the exchange of rows between the query's stages.
    pub exchange: ExchangeOptions,
    /// Prices that replace AWS's list prices, for the cost of the query.
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

/// An event of a query, for the client's progress display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The query was accepted.
    Accepted {
        /// The identifier of the query.
        query: QueryId,
    },
    /// A phase began.
    Phase {
        /// The phase that began.
        phase: Phase,
    },
    /// The progress of the workers.
    Progress(Progress),
    /// The beginning of what instances of a function wrote to stdout and stderr.
    Printed {
        /// The name of the function.
        function: String,
        /// The text, in whole lines.
        text: String,
    },
    /// A notice for the user that is not a failure, such as a task that was run again.
    Note {
        /// The notice, in one line.
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
    /// Running the workers.
    Run,
    /// Merging their results in the driver.
    Merge,
}

/// The progress of a query's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// The number of tasks in all. A stage that has not begun counts as one task.
    pub tasks: u32,
    /// The number of tasks that run now.
    pub running: u32,
    /// The number of tasks that are done.
    pub done: u32,
    /// The number of workers and UDF instances that were started for this query.
    pub cold: u32,
    /// The number of workers and UDF instances that were idle and taken again.
    pub warm: u32,
    /// The number of rows that were read.
    pub rows: u64,
    /// The number of bytes that were read from storage.
    pub bytes: u64,
    /// Bytes of all files of the scans: an upper bound of `bytes`.
    pub bytes_total: u64,
    /// The number of rows that were given to UDFs.
    pub udf_rows: u64,
}

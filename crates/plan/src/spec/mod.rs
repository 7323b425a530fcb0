//! A query and its inputs, as a planner takes them.

mod local_files;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_wire::{CsvOption, ExchangeOptions, HttpSource, Parameters, Signature};

use crate::prices::CostBasis;
use crate::sql::PivotValues;
pub use local_files::{HostFiles, LocalFiles};

/// Bytes of rows from which on a sort of all of them is merged by workers, in ranges of keys. The
/// driver merges fewer sooner than another stage begins.
pub const RANGE_SORT_BYTES: u64 = 64 << 20;

/// A query and its inputs.
#[derive(Clone, Debug)]
pub struct QuerySpec {
    /// Id of the query, for the profile and for logs.
    pub query: String,
    /// The SQL of the query: a single SELECT statement.
    pub sql: String,
    /// Values of the statement's parameters.
    pub params: Parameters,
    /// The values of PIVOTs that list none, as far as they were found ([`crate::query::unlisted`]).
    pub pivots: PivotValues,
    /// Table name to location: a file, a folder, a glob or an `s3://` URL of data files.
    /// Locations may also be quoted in the SQL's FROM.
    pub tables: BTreeMap<String, String>,
    /// Options for all CSV files of the query.
    pub csv: Vec<CsvOption>,
    /// UDFs that the SQL may call.
    pub udfs: Vec<Signature>,
    /// Access to the local files of the query's locations.
    pub files: Arc<dyn LocalFiles>,
    /// `AWS_*` variables, for `s3://` locations.
    pub aws: BTreeMap<String, String>,
    /// The servers of HTTP whose files the query may read.
    pub http_sources: Vec<HttpSource>,
    /// Number of workers, which is the number of partitions of each scan. At least 1.
    pub workers: u32,
    /// Bytes of files that are worth a task; 0 means a task for each worker.
    pub scan_task_bytes: u64,
    /// Number of hosts on which the workers may be. At least 1.
    pub hosts: u32,
    /// Estimated bytes of rows from which on a sort of all of them is merged by workers
    /// ([`RANGE_SORT_BYTES`]).
    pub range_sort_bytes: u64,
    /// How the stages of the query exchange rows.
    pub exchange: ExchangeOptions,
    /// The query's folder in the locations of its exchange ([`snowmelt_wire::exchange_folder`]).
    pub exchange_folder: String,
    /// When the query was accepted: time zero of its profile.
    pub accepted: Instant,
    /// How long the installation of the packages of the query's UDFs took, from `accepted` on.
    pub packages: Duration,
    /// The prices and memory limits from which the query's cost is computed.
    pub cost: CostBasis,
}

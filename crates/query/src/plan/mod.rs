//! Plans a query: parses the SQL, finds the tables' files, optimises the plan and cuts it into
//! stages.

mod aliases;
mod all_columns;
mod answer_columns;
mod asof;
mod bucket;
mod calls;
mod clauses;
mod cut;
mod cut_points;
mod dates;
mod definition;
mod dialect;
mod distinct;
mod division;
mod equivalents;
mod estimate;
mod exact;
mod file_names;
mod files;
mod formats;
mod from;
mod hive;
mod info;
mod internals;
mod joins;
mod known;
mod likely_tasks;
mod literals;
mod local;
mod location;
mod meaning;
mod names;
mod outputs;
mod parameters;
mod pivot;
mod planning_only;
mod prune;
mod ranges;
mod read_calls;
mod reduce;
mod repeat;
mod rules;
mod same_columns;
mod same_names;
mod samples;
mod sendable;
mod sent_footers;
mod sent_plans;
mod series;
mod session;
mod shared;
mod shared_exec;
mod small;
mod sorts;
mod split;
mod spread;
mod sql_error;
mod stage_reads;
mod statement;
mod streaming;
mod streams;
mod summary;
mod table;
mod table_functions;
mod tasks;
mod text;
mod unify;
mod unions;
mod using;
mod volatile;
mod web;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_execute::faster::with_faster_operators;
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::udf::UdfPool;
use snowmelt_wire::{CsvOption, ExchangeOptions, HttpSource, Parameters, Signature};

pub(crate) use answer_columns::{output_batch, output_schema};
use cut::Exchanges;
pub(crate) use cut::{Cut, Stage};
pub(crate) use definition::definition;
pub(crate) use division::{Division, TASK_BYTES, worth_a_task};
pub(crate) use estimate::{Size, size};
pub(crate) use info::{TableInfo, read_bytes as read_bytes_of};
pub use local::{HostFiles, LocalFiles};
pub(crate) use outputs::{Outputs, TaskOutput};
pub(crate) use prune::left_out;
pub(crate) use repeat::{Repeat, repeats};
pub(crate) use sent_plans::leave_out_files;
pub(crate) use stage_reads::partitions_read;
pub(crate) use statement::ResultKind;
pub(crate) use tasks::{reads, reads_by_range, tasks};
pub(crate) use text::{driver_text, workers_text};

use crate::prices::CostBasis;
use crate::{Error, Result};

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

/// A query that is planned and cut.
pub(crate) struct Prepared {
    pub(crate) result_kind: ResultKind,
    pub(crate) cut: Cut,
    pub(crate) tables: Vec<TableInfo>,
    /// The UDFs that the driver's part calls.
    pub(crate) pool: Arc<UdfPool>,
    pub(crate) s3: S3Settings,
}

/// Parses, checks, optimises and cuts a query. Reads only the footers or the beginnings of its
/// files.
///
/// # Errors
/// Errors of the SQL or of its tables' locations.
pub(crate) async fn prepare(spec: &QuerySpec) -> Result<Prepared> {
    spec.exchange.check().map_err(|report| Error::Task(Box::new(report)))?;
    let mut statement = statement::parse(&spec.sql, &spec.params)?;
    let csv = formats::options(&spec.csv).map_err(|report| Error::Setting(Box::new(report)))?;
    let reads = read_calls::prepare(&mut statement, &spec.udfs, &csv, &spec.sql)?;
    table_functions::prepare(&mut statement, &spec.udfs, &spec.sql)?;
    let pool = UdfPool::of_driver();
    let session = session::planning(spec, &pool)?;
    let s3 = S3Settings::new(&spec.aws).with_http(&spec.http_sources);
    let tables = table::register(&session, (&statement, &reads), (spec, &csv), &s3).await?;
    let physical = session::physical_plan(&session, &statement, spec).await?;
    let config = session.copied_config();
    let finish = |plan| session::finish(plan, &config);
    let exchanges = Exchanges {
        options: &spec.exchange,
        folder: &spec.exchange_folder,
        range_bytes: spec.range_sort_bytes,
    };
    let mut cut = cut::cut(physical, &config, exchanges, &finish)?;
    streaming::mark(&cut);
    if spec.exchange.by_streams() {
        streams::choose(&mut cut.stages);
    }
    cut.driver = with_faster_operators(cut.driver)?;
    Ok(Prepared { result_kind: statement.result_kind, cut, tables, pool, s3 })
}

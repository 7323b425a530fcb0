//! The settings and the context in which every plan is decoded and executed.
//!
//! Invariant: an execution never moves a file from one partition to another, because the other
//! partition may belong to another worker.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionConfig;
use datafusion::execution::runtime_env::RuntimeEnv;

/// Rows in a batch: DataFusion's default, and the maximum in one call of a UDF.
pub const BATCH_ROWS: usize = 8192;

/// Settings for the execution of a plan.
pub fn execution_config(partitions: usize, batch_rows: usize) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(partitions.max(1))
        .with_batch_size(batch_rows.max(1))
        .with_information_schema(false);
    let options = config.options_mut();
    // Otherwise a partition without remaining files takes those of other workers' partitions.
    options.execution.enable_file_stream_work_stealing = false;
    // The first read of a file fetches its footer; this size is enough for most files.
    options.execution.parquet.metadata_size_hint = Some(64 << 10);
    config
}

/// The context in which a plan is decoded and executed. It has no functions: a plan has its own, and
/// those of a plan that is decoded are found by the codec.
pub fn execution_context(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> TaskContext {
    let id = String::new();
    let (scalars, higher, aggregates, windows) = Default::default();
    TaskContext::new(None, id, config, scalars, higher, aggregates, windows, runtime)
}

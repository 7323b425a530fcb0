//! Turns failures of execution into error reports: the error code, the file, the limit.
//!
//! | file | owns |
//! |---|---|
//! | `s3` | failures of object storage, which name the wrong variable |
//! | `http` | failures of servers of files, by HTTP |

pub(crate) mod http;
pub(crate) mod s3;

use std::error::Error as StdError;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;
use snowmelt_types::{ByteSize, Code, ErrorReport};

/// The context of a failed execution, for messages.
#[derive(Clone, Debug)]
pub(crate) struct FaultContext {
    /// Files that were read.
    pub(crate) files: Vec<String>,
    /// The state of a worker's memory pool.
    pub(crate) memory: Option<MemoryUse>,
}

/// The memory of a worker's operators.
#[derive(Clone, Debug)]
pub(crate) struct MemoryUse {
    pub(crate) limit: ByteSize,
    pub(crate) peak: ByteSize,
    /// The operator that needed more.
    pub(crate) operator: Option<String>,
}

/// A hash join, as operator of a [`MemoryUse`].
pub(crate) const JOIN: &str = "HashJoinExec";

/// True if the operator that needed more memory was a hash join.
pub fn is_of_join(report: &ErrorReport) -> bool {
    report.input.as_deref() == Some(operator(JOIN).as_str())
}

/// The operators that put into scratch what does not fit into memory.
const WITH_SCRATCH: [&str; 4] = ["AggregateExec", "SortExec", "SortMergeJoinExec", "WindowAggExec"];

/// True if the operator that needed more memory has scratch for what does not fit.
pub fn uses_scratch(report: &ErrorReport) -> bool {
    WITH_SCRATCH.iter().any(|name| report.input.as_deref() == Some(operator(name).as_str()))
}

fn operator(name: &str) -> String {
    format!("the operator {name}")
}

impl FaultContext {
    /// The context of the driver, which reads no files.
    pub(crate) fn driver() -> Self {
        Self { files: Vec::new(), memory: None }
    }
}

/// The report of a failed execution.
pub(crate) fn report(error: &DataFusionError, context: &FaultContext) -> ErrorReport {
    if let Some(report) = find::<ErrorReport>(error) {
        return report.clone();
    }
    if let Some(error) = object_store_error(error) {
        // The planner has listed the files, so the keys were valid.
        return s3::report(error, "a file of the query", false);
    }
    if is_parquet(error) {
        return corrupt(&root_message(error), context);
    }
    match error.find_root() {
        DataFusionError::ResourcesExhausted(why) => memory(why, context),
        DataFusionError::IoError(error) => storage(&format!("reading failed: {error}")),
        DataFusionError::NotImplemented(what) => {
            ErrorReport::new(Code::PLAN_UNSUPPORTED, what.clone())
                .hint("write the query without it")
        }
        DataFusionError::Internal(why) => ErrorReport::new(Code::INTERNAL, first_line(why)),
        // All other errors are about a value: a division by zero, an overflow, a failed cast.
        _ => ErrorReport::new(Code::SQL_VALUE, root_message(error))
            .hint("use nullif or try_cast, or filter such rows out"),
    }
}

/// True for the Parquet reader's errors, which Arrow may wrap.
fn is_parquet(error: &DataFusionError) -> bool {
    let arrow = find::<ArrowError>(error);
    find::<ParquetError>(error).is_some() || matches!(arrow, Some(ArrowError::ParquetError(_)))
}

/// The report of an unreadable Parquet file, with its name if the reader's message contains it.
pub(crate) fn corrupt(why: &str, context: &FaultContext) -> ErrorReport {
    let named = context.files.iter().find(|file| why.contains(file.trim_start_matches('/')));
    let message = match (named, context.files.as_slice()) {
        (Some(file), _) => format!("`{file}` cannot be read as Parquet: {why}"),
        (None, [only]) => format!("`{only}` cannot be read as Parquet: {why}"),
        (None, _) => format!("a Parquet file cannot be read: {why}"),
    };
    let report = damaged(message);
    match named {
        None if context.files.len() > 1 => {
            report.input(format!("one of {}", context.files.join(", ")))
        }
        _ => report,
    }
}

/// The report of a damaged file whose damaged page is known.
pub(crate) fn corrupt_at(file: &str, why: &str) -> ErrorReport {
    damaged(format!("`{file}` cannot be read as Parquet: {why}"))
}

/// The report of a file that changed since planning.
pub(crate) fn changed(file: &str) -> ErrorReport {
    ErrorReport::new(Code::FILE_CHANGED, format!("`{file}` changed while it was read"))
        .hint("run the query again; write new data to new files, so that running queries succeed")
}

fn damaged(message: String) -> ErrorReport {
    ErrorReport::new(Code::FILE_CORRUPT, message)
        .hint("the file is truncated or damaged: write it again, or exclude it")
}

fn memory(why: &str, context: &FaultContext) -> ErrorReport {
    let why = first_line(why);
    match &context.memory {
        Some(MemoryUse { limit, peak, operator: needed }) => {
            let message = format!(
                "a worker reached its memory limit: limit {limit}, reserved {peak} at most"
            );
            let report = ErrorReport::new(Code::WORKER_MEMORY, message)
                .excerpt([why])
                .hint("raise the limit with --memory, or use more workers with --workers");
            match needed {
                Some(name) => report.input(operator(name)),
                None => report,
            }
        }
        None => ErrorReport::new(Code::QUERY_MEMORY, "merging the results needs more memory")
            .excerpt([why])
            .hint("raise the limit with --memory, or return fewer groups or rows"),
    }
}

/// A failure of object storage.
fn storage(message: &str) -> ErrorReport {
    ErrorReport::new(Code::STORAGE, first_line(message))
        .hint("check AWS_ENDPOINT_URL, AWS_REGION and the keys, or the file's permissions")
}

/// The object store's error that caused an error, if any.
fn object_store_error(error: &DataFusionError) -> Option<&object_store::Error> {
    if let DataFusionError::ObjectStore(error) = error.find_root() {
        return Some(error);
    }
    find::<object_store::Error>(error)
}

/// The message of the root error: one line, without DataFusion's prefixes.
pub fn root_message(error: &DataFusionError) -> String {
    let text = error.find_root().strip_backtrace();
    let text = text.lines().next().unwrap_or_default();
    let prefixes = [
        "External error: ",
        "Parquet error: ",
        "Parquet argument error: ",
        "Arrow error: ",
        "Execution error: ",
        "Error during planning: ",
        "External: ",
        "EOF: ",
    ];
    let mut text = text.trim();
    while let Some(rest) = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        text = rest.trim();
    }
    text.to_owned()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// The first error of a type along the chain of sources, also in DataFusion's collections of
/// errors.
fn find<E: StdError + 'static>(error: &DataFusionError) -> Option<&E> {
    let mut current: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        if let Some(found) = error.downcast_ref::<Box<E>>() {
            return Some(found);
        }
        if let Some(DataFusionError::Collection(errors)) = error.downcast_ref::<DataFusionError>()
            && let Some(found) = errors.iter().find_map(find)
        {
            return Some(found);
        }
        current = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_report_is_found() {
        let inner = ErrorReport::new(Code::FUNCTION_RAISED, "`f` raised");
        let error = DataFusionError::External(Box::new(inner.clone())).context("while projecting");
        let error = DataFusionError::Shared(std::sync::Arc::new(error));
        assert_eq!(report(&error, &FaultContext::driver()), inner);
    }

    #[test]
    fn a_memory_error_names_limit_peak_and_option() {
        let error = DataFusionError::ResourcesExhausted("Failed to allocate".to_owned());
        let limit = ByteSize::mib(64);
        let peak = ByteSize::mib(60);
        let memory = Some(MemoryUse { limit, peak, operator: Some(JOIN.to_owned()) });
        let found = report(&error, &FaultContext { files: vec![], memory });
        let shown = found.to_string();
        assert!(shown.contains("SM-0402") && shown.contains("limit 64 MiB, reserved 60 MiB"));
        assert!(shown.contains("--memory") && shown.contains("HashJoinExec") && is_of_join(&found));
    }

    #[test]
    fn a_division_by_zero_is_an_input_error() {
        let error = DataFusionError::ArrowError(
            Box::new(datafusion::arrow::error::ArrowError::DivideByZero),
            None,
        );
        assert_eq!(report(&error, &FaultContext::driver()).code, "SM-0109");
    }
}

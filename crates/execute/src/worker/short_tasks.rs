//! Tasks that are so short that a second thread costs more than it saves: with one thread, nothing
//! has to be started for a task, and no memory is touched that is freed only at its end.

use std::sync::Arc;

use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_wire::Task;

use crate::tree::file_scan;

/// Bytes of files that one thread has decoded within some milliseconds.
const SHORT_BYTES: u64 = 1 << 20;

/// Returns the number of threads that run the plan of a task. A second thread decodes files, so it
/// is worth it for many bytes of them, or for calls, which may take any time. The bytes that a task
/// reads of other tasks are not known here.
pub(super) fn threads(task: &Task, plan: &Arc<dyn ExecutionPlan>, has_calls: bool) -> u32 {
    let is_long = has_calls || !task.reads.is_empty() || task.streams.is_some();
    if is_long || file_bytes(plan) > SHORT_BYTES { task.threads } else { task.threads.min(1) }
}

fn file_bytes(node: &Arc<dyn ExecutionPlan>) -> u64 {
    let groups = file_scan(node).map(|scan| scan.file_groups.as_slice()).unwrap_or_default();
    let own: u64 = groups.iter().flat_map(FileGroup::files).map(length).sum();
    own + node.children().into_iter().map(file_bytes).sum::<u64>()
}

fn length(part: &PartitionedFile) -> u64 {
    let of_range =
        |range: &FileRange| u64::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
    part.range.as_ref().map_or(part.object_meta.size, of_range)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
    use datafusion::datasource::source::DataSourceExec;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use snowmelt_wire::{TaskAsk, TaskRead};

    use super::*;

    fn scan(parts: Vec<PartitionedFile>) -> Arc<dyn ExecutionPlan> {
        let source = Arc::new(ParquetSource::new(Arc::new(Schema::empty())));
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(vec![FileGroup::new(parts)])
            .build();
        Arc::new(CoalescePartitionsExec::new(DataSourceExec::from_data_source(config)))
    }

    fn whole(bytes: u64) -> PartitionedFile {
        PartitionedFile::new("t.parquet", bytes)
    }

    #[test]
    fn a_second_thread_is_for_tasks_that_read_much() {
        let task = TaskAsk::default().header("q", 64 << 20, 2);
        let threads = |parts| threads(&task, &scan(parts), false);
        assert_eq!(threads(vec![]), 1);
        assert_eq!(threads(vec![whole(8 << 10); 4]), 1);
        assert_eq!(threads(vec![whole(300 << 10); 4]), 2, "together they are long");
        let part = whole(1 << 30).with_range(1 << 29, (1 << 29) + 1000);
        assert_eq!(threads(vec![part.clone()]), 1, "a short part of a long file");
        assert_eq!(threads(vec![part, whole(2 << 20)]), 2);
    }

    #[test]
    fn a_task_that_reads_of_others_or_calls_keeps_its_threads() {
        let read = TaskRead {
            stage: 0,
            task: 0,
            attempt: 0,
            partitions: Vec::new(),
            objects: None,
            shared: false,
            range: None,
        };
        let task = Task { reads: vec![read], ..TaskAsk::default().header("q", 64 << 20, 2) };
        assert_eq!(threads(&task, &scan(vec![whole(1)]), false), 2);
        let alone = TaskAsk::default().header("q", 64 << 20, 1);
        assert_eq!(threads(&alone, &scan(vec![whole(2 << 20)]), false), 1);
        let calls = TaskAsk::default().header("q", 64 << 20, 2);
        assert_eq!(threads(&calls, &scan(vec![whole(1)]), true), 2);
    }
}

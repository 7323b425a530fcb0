//! Finds the exchanges that can be streams: the tasks of both stages then run at the same time.
//!
//! A stage that sends has one reader, and none of the two takes part in another stream. So a pair of
//! stages waits for nothing but outputs that are stored, and two such stages can be taken for one
//! without making a cycle: nothing that the second one reads can depend on the first one, whose only
//! reader it is. Within a pair no cycle of waits can arise either: a sender waits only for its
//! receivers, and a receiver only for all of its senders at the same time, whatever of its other
//! inputs, which are complete, it reads before.
//!
//! The rows of a stream come once, and in an order that is left to chance: an operator that reads
//! its input again cannot read a stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::union::UnionExec;
use snowmelt_execute::exchange::{ExchangeReadExec, StageMedium, output_split};
use snowmelt_execute::tree::is_partition_wise;

use super::cut::{Stage, StageOutput};

/// Makes streams of the exchanges that can be streams, and notes for the others why they cannot.
pub(crate) fn choose(stages: &mut [Stage]) {
    let mut receiving = BTreeSet::new();
    for reader in 0..stages.len() {
        let mut reads = stages[reader].reads.clone();
        // The last input of a join is its probe side, which usually has most rows.
        reads.sort_unstable();
        for sender in reads.into_iter().rev().map(|read| read as usize) {
            let obstacle = obstacle(stages, sender, reader, &receiving);
            let StageOutput::Exchange(exchange) = &mut stages[sender].output else { continue };
            exchange.not_streamed = obstacle;
            if obstacle.is_none() {
                exchange.medium = StageMedium::Streams;
                receiving.insert(reader);
            }
        }
    }
}

/// Why an exchange cannot be a stream.
fn obstacle(
    stages: &[Stage],
    sender: usize,
    reader: usize,
    receiving: &BTreeSet<usize>,
) -> Option<&'static str> {
    let read = sender as u32;
    let readers = stages.iter().filter(|stage| stage.reads.contains(&read)).count();
    if output_split(&stages[sender].plan).is_none() {
        Some("not split by keys")
    } else if readers > 1 {
        Some("read by several stages")
    } else if receiving.contains(&sender) {
        Some("its stage receives a stream")
    } else if receiving.contains(&reader) {
        Some("its reader receives another stream")
    } else if stages[reader].queue().is_some_and(|queue| queue.is_streaming()) {
        Some("its reader returns rows at once")
    } else if !reads_once(stages[reader].body(), read) {
        Some("read several times")
    } else {
        None
    }
}

/// True if each partition of a plan reads its own partitions of a stage's output, once.
fn reads_once(plan: &Arc<dyn ExecutionPlan>, stage: u32) -> bool {
    let mut leaves = 0;
    fits(plan, stage, true, &mut leaves) && leaves == 1
}

/// Counts the leaves that read a stage. False if one of them is read whole, or again.
fn fits(node: &Arc<dyn ExecutionPlan>, stage: u32, above: bool, leaves: &mut usize) -> bool {
    if let Some(read) = node.downcast_ref::<ExchangeReadExec>()
        && read.stage() == stage
    {
        *leaves += 1;
        return above && !read.is_by_range();
    }
    let again = node.is::<NestedLoopJoinExec>() || node.is::<RecursiveQueryExec>();
    node.children().into_iter().all(|child| {
        let own = node.is::<UnionExec>() || is_partition_wise(node, child);
        fits(child, stage, above && own && !again, leaves)
    })
}

//! Finds the outputs of other stages that the partitions of a stage read.

use std::collections::{BTreeMap, BTreeSet};

use snowmelt_execute::exchange::ExchangeReadExec;
use snowmelt_execute::tree;

use super::outputs::Outputs;
use crate::stages::Stage;

/// True if all that a stage reads is there: nothing of it is streamed.
pub(crate) fn is_known(stage: &Stage, outputs: &Outputs) -> bool {
    stage.reads.iter().all(|read| outputs.contains_key(read))
}

/// Returns the stages whose whole outputs each task of a stage reads, such as the build side of a
/// join that is not split by its keys.
pub(crate) fn read_whole(stage: &Stage) -> BTreeSet<u32> {
    let all: Vec<u32> = (0..tree::count(stage.body()) as u32).collect();
    let [first, .., last] = all[..] else { return BTreeSet::new() };
    let read = partitions_read(stage, &all).into_iter();
    let [of_first, of_last] = [first, last].map(|partition| partitions_read(stage, &[partition]));
    let is_whole = |(stage, partitions): &(u32, Vec<u32>)| {
        of_first.get(stage) == Some(partitions) && of_last.get(stage) == Some(partitions)
    };
    read.filter(is_whole).map(|(stage, _)| stage).collect()
}

/// The partitions of other stages' outputs that some partitions of a stage read, by stage.
pub fn partitions_read(stage: &Stage, partitions: &[u32]) -> BTreeMap<u32, Vec<u32>> {
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    tree::visit(stage.body(), partitions, &mut |leaf, partitions| {
        if let Some(read) = leaf.downcast_ref::<ExchangeReadExec>() {
            wanted.entry(read.stage()).or_default().extend_from_slice(partitions);
        }
    });
    for partitions in wanted.values_mut() {
        partitions.sort_unstable();
        partitions.dedup();
    }
    wanted
}

//! The places at which a plan was cut already, so that what it contains twice runs once.
//!
//! A plan may refer to a node twice, and it may have two equal parts: DataFusion plans a common
//! table expression again wherever it is used. Equal parts have the same encoding. A part with
//! values that may be others the next time is equal to no other.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::error::Result;
use snowmelt_execute::codec;
use snowmelt_execute::tree::{PlanNode, address, with_children};

use crate::operators::{SharedExec, may_differ};

/// Identifies the part of a plan below a node.
#[derive(Clone, Debug)]
pub(crate) struct PlanPart {
    address: usize,
    content: Option<Bytes>,
}

impl PlanPart {
    pub(crate) fn of(node: &PlanNode) -> Self {
        let content = || codec::content(&without_shared(node).ok()?);
        Self { address: address(node), content: if may_differ(node) { None } else { content() } }
    }
}

/// A plan with the parts for which leaves stand.
fn without_shared(node: &PlanNode) -> Result<PlanNode> {
    if let Some(shared) = node.downcast_ref::<SharedExec>() {
        return without_shared(shared.part());
    }
    with_children(node, node.children().into_iter().map(without_shared).collect::<Result<_>>()?)
}

/// The leaves that read the outputs of parts.
#[derive(Debug, Default)]
pub(crate) struct CutPoints {
    by_address: HashMap<usize, PlanNode>,
    by_content: HashMap<Bytes, PlanNode>,
}

impl CutPoints {
    /// The leaf for an equal part.
    pub(crate) fn leaf(&self, part: &PlanPart) -> Option<PlanNode> {
        let equal = || self.by_content.get(part.content.as_ref()?);
        self.by_address.get(&part.address).or_else(equal).cloned()
    }

    pub(crate) fn add(&mut self, part: PlanPart, leaf: &PlanNode) {
        self.by_address.insert(part.address, Arc::clone(leaf));
        if let Some(content) = part.content {
            self.by_content.insert(content, Arc::clone(leaf));
        }
    }
}

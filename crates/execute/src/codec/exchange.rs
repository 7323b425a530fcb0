//! The leaf that reads another stage, in the codec.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::{Literal, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::{
    parse_physical_exprs, parse_physical_sort_exprs, parse_protobuf_partitioning,
};
use datafusion_proto::physical_plan::to_proto::{
    serialize_partitioning, serialize_physical_exprs, serialize_physical_sort_exprs,
};
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use prost::Message;

use crate::exchange::{Constant, ExchangeReadExec, Facts};

/// The fields of an [`ExchangeReadExec`].
#[derive(Clone, PartialEq, Message)]
struct ExchangeReadNode {
    #[prost(uint32, tag = "1")]
    stage: u32,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    #[prost(message, optional, tag = "3")]
    partitioning: Option<protobuf::Partitioning>,
    #[prost(message, repeated, tag = "4")]
    orderings: Vec<protobuf::PhysicalSortExprNodeCollection>,
    #[prost(message, repeated, tag = "5")]
    equal: Vec<Expressions>,
    /// Expressions with one value in all rows of a partition, perhaps another value in each
    /// partition.
    #[prost(message, optional, tag = "6")]
    in_partition: Option<Expressions>,
    /// Expressions with one value in all partitions, each followed by its value.
    #[prost(message, optional, tag = "7")]
    everywhere: Option<Expressions>,
    /// True if the partitions of the exchange are ranges of the keys of the first order.
    #[prost(bool, tag = "8")]
    by_range: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Expressions {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<protobuf::PhysicalExprNode>,
}

pub(super) fn encode(
    read: &ExchangeReadExec,
    buf: &mut Vec<u8>,
    codec: &dyn PhysicalExtensionCodec,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<()> {
    let ordering = |ordering: &LexOrdering| {
        let nodes = serialize_physical_sort_exprs(ordering.iter().cloned(), codec, converter)?;
        Ok(protobuf::PhysicalSortExprNodeCollection { physical_sort_expr_nodes: nodes })
    };
    let expressions = |of: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
        Ok::<_, DataFusionError>(Expressions {
            nodes: serialize_physical_exprs(of, codec, converter)?,
        })
    };
    let facts = read.facts();
    let mut in_partition = Vec::new();
    let mut everywhere = Vec::new();
    for (expr, constant) in &facts.constant {
        match constant {
            Constant::InPartition => in_partition.push(Arc::clone(expr)),
            Constant::Everywhere(value) => {
                everywhere.extend([Arc::clone(expr), lit(value.clone())])
            }
        }
    }
    let node = ExchangeReadNode {
        equal: facts
            .equal
            .iter()
            .map(|equal| expressions(&mut equal.iter()))
            .collect::<Result<_>>()?,
        in_partition: Some(expressions(&mut in_partition.iter())?),
        everywhere: Some(expressions(&mut everywhere.iter())?),
        stage: read.stage(),
        by_range: read.is_by_range(),
        schema: Some(read.schema().as_ref().try_into().map_err(external)?),
        partitioning: Some(serialize_partitioning(
            &read.properties().partitioning,
            codec,
            converter,
        )?),
        orderings: facts.orderings.iter().map(ordering).collect::<Result<_>>()?,
    };
    node.encode(buf).map_err(external)
}

pub(super) fn decode(
    buf: &[u8],
    context: &TaskContext,
    codec: &dyn PhysicalExtensionCodec,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let incomplete = || DataFusionError::Internal("a plan's exchange is incomplete".to_owned());
    let node = ExchangeReadNode::decode(buf).map_err(external)?;
    let schema: Schema = (&node.schema.ok_or_else(incomplete)?).try_into().map_err(external)?;
    let context = PhysicalPlanDecodeContext::new(context, codec);
    let partitioning =
        parse_protobuf_partitioning(node.partitioning.as_ref(), &context, &schema, converter)?;
    let parse = |of: &Expressions| parse_physical_exprs(&of.nodes, &context, &schema, converter);
    let mut facts = Facts::default();
    for class in &node.equal {
        facts.equal.push(parse(class)?);
    }
    for expr in node.in_partition.as_ref().map(&parse).transpose()?.unwrap_or_default() {
        facts.constant.push((expr, Constant::InPartition));
    }
    let everywhere = node.everywhere.as_ref().map(&parse).transpose()?.unwrap_or_default();
    for pair in everywhere.chunks_exact(2) {
        let value = pair[1].downcast_ref::<Literal>().ok_or_else(incomplete)?.value().clone();
        facts.constant.push((Arc::clone(&pair[0]), Constant::Everywhere(value)));
    }
    for ordering in &node.orderings {
        let exprs = &ordering.physical_sort_expr_nodes;
        let exprs = parse_physical_sort_exprs(exprs, &context, &schema, converter)?;
        facts.orderings.extend(LexOrdering::new(exprs));
    }
    let partitioning = partitioning.ok_or_else(incomplete)?;
    let stage = node.stage;
    let schema = Arc::new(schema);
    Ok(Arc::new(match node.by_range {
        true => {
            let ranges = partitioning.partition_count();
            ExchangeReadExec::by_range(stage, schema, ranges, facts)?
        }
        false => ExchangeReadExec::new(stage, schema, partitioning, facts)?,
    }))
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

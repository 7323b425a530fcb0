//! Serialises a worker's program: DataFusion's protobuf, with UDFs as name and signature.
//!
//! Expressions that operators share (such as a top-k's filter that its scan reads) stay shared,
//! because the converter numbers them.
//!
//! Invariant: the bytes of an encoded plan decode to the same plan (`compare`).

mod builtin;
mod compare;
mod exchange;
mod nullable;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::TaskContext;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, DefaultPhysicalProtoConverter, PhysicalExtensionCodec,
    PhysicalProtoConverterExtension,
};
use object_store::memory::InMemory;
use snowmelt_wire::Signature;

use crate::context::execution_context;
use crate::error::fault;
use crate::exchange::ExchangeReadExec;
use crate::tree::file_scan;
use crate::udf::{RemoteAggregate, RemoteUdf, UdfPool};
use builtin::BUILTIN;
pub use nullable::KeepNullable;
pub(crate) use nullable::Nullable;

/// Encodes a plan. An error names the property that the encoding would lose.
pub fn encode(plan: &Arc<dyn ExecutionPlan>, config: &SessionConfig) -> Result<Bytes, String> {
    let bytes = bytes_of(plan, &DeduplicatingProtoConverter {});
    let bytes = bytes.map_err(|error| fault::root_message(&error))?;
    let decoded = decode(&bytes, &decoding_context(plan, config), UdfPool::empty())
        .map_err(|error| fault::root_message(&error))?;
    match compare::difference(plan, &decoded) {
        None => Ok(bytes),
        Some(what) => Err(format!("{what} would be lost")),
    }
}

/// Encodes a part of a plan that [`encode`] has encoded: the plan without some of its files. `None`
/// if it cannot be encoded.
pub fn encode_part(plan: &Arc<dyn ExecutionPlan>) -> Option<Bytes> {
    bytes_of(plan, &DeduplicatingProtoConverter {}).ok()
}

/// Returns the content of a plan as bytes, for comparison with other plans: equal plans have the
/// same bytes, although their expressions have different numbers. `None` if the plan cannot be
/// encoded.
pub fn content(plan: &Arc<dyn ExecutionPlan>) -> Option<Bytes> {
    bytes_of(plan, &DefaultPhysicalProtoConverter {}).ok()
}

fn bytes_of(
    plan: &Arc<dyn ExecutionPlan>,
    converter: &dyn PhysicalProtoConverterExtension,
) -> DfResult<Bytes> {
    let codec = Codec { pool: UdfPool::empty() };
    physical_plan_to_bytes_with_proto_converter(Arc::clone(plan), &codec, converter)
}

/// A worker's context, but with empty stores: the decoded plan is only compared, not run.
fn decoding_context(plan: &Arc<dyn ExecutionPlan>, config: &SessionConfig) -> TaskContext {
    let runtime = Arc::new(RuntimeEnv::default());
    let mut nodes = vec![plan];
    while let Some(node) = nodes.pop() {
        if let Some(scan) = file_scan(node) {
            runtime
                .register_object_store(scan.object_store_url.as_ref(), Arc::new(InMemory::new()));
        }
        nodes.extend(node.children());
    }
    execution_context(config.clone(), runtime)
}

/// Decodes a plan. Its UDFs are called through `pool`. The context needs no functions, because the
/// codec is asked for functions that the context lacks.
pub(crate) fn decode(
    bytes: &[u8],
    context: &TaskContext,
    pool: Arc<UdfPool>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let codec = Codec { pool };
    let converter = DeduplicatingProtoConverter {};
    physical_plan_from_bytes_with_proto_converter(bytes, context, &codec, &converter)
}

#[derive(Debug)]
struct Codec {
    pool: Arc<UdfPool>,
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        exchange::decode(buf, ctx, self, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> DfResult<()> {
        if let Some(read) = node.downcast_ref::<ExchangeReadExec>() {
            return exchange::encode(read, buf, self, converter);
        }
        Err(DataFusionError::NotImplemented(format!("{} cannot be sent to a worker", node.name())))
    }

    /// Decodes the only expression that DataFusion's codec does not know.
    fn try_decode_expr(
        &self,
        _buf: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        _ctx: &PhysicalExprDecodeCtx<'_>,
    ) -> DfResult<Arc<dyn PhysicalExpr>> {
        match inputs {
            [value] => Ok(Arc::new(Nullable::new(Arc::clone(value)))),
            _ => Err(DataFusionError::Internal("a plan has an unknown expression".to_owned())),
        }
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        _buf: &mut Vec<u8>,
        _ctx: &PhysicalExprEncodeCtx<'_>,
    ) -> DfResult<()> {
        match node.downcast_ref::<Nullable>() {
            Some(_) => Ok(()),
            None => Err(DataFusionError::NotImplemented(format!("{node} cannot be sent"))),
        }
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> DfResult<Arc<ScalarUDF>> {
        if buf.is_empty() {
            return BUILTIN.scalar(name).ok_or_else(|| unknown(name));
        }
        let remote = RemoteUdf::from_signature(&signature(name, buf)?, Arc::clone(&self.pool));
        let remote = remote.map_err(|error| DataFusionError::Plan(error.to_string()))?;
        Ok(Arc::new(remote.into()))
    }

    /// Encodes a function. For a built-in function `buf` stays empty: it is found by its name.
    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> DfResult<()> {
        encode_signature(RemoteUdf::inside(node).map(RemoteUdf::wire_signature), buf)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> DfResult<Arc<AggregateUDF>> {
        if buf.is_empty() {
            return BUILTIN.aggregate(name).ok_or_else(|| unknown(name));
        }
        let signature = signature(name, buf)?;
        let remote = RemoteAggregate::from_signature(&signature, Arc::clone(&self.pool));
        let remote = remote.map_err(|error| DataFusionError::Plan(error.to_string()))?;
        Ok(Arc::new(remote.into()))
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> DfResult<()> {
        let remote = RemoteAggregate::inside(node);
        encode_signature(remote.map(RemoteAggregate::wire_signature), buf)
    }

    fn try_decode_udwf(&self, name: &str, _buf: &[u8]) -> DfResult<Arc<WindowUDF>> {
        BUILTIN.window(name).ok_or_else(|| unknown(name))
    }

    fn try_decode_higher_order_function(
        &self,
        name: &str,
        _buf: &[u8],
    ) -> DfResult<Arc<HigherOrderUDF>> {
        BUILTIN.higher_order(name).ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> DataFusionError {
    DataFusionError::Internal(format!("a plan has the unknown function `{name}`"))
}

fn signature(name: &str, buf: &[u8]) -> DfResult<Signature> {
    serde_json::from_slice(buf).map_err(|error| {
        DataFusionError::Internal(format!("the signature of `{name}` is unreadable: {error}"))
    })
}

fn encode_signature(signature: Option<&Signature>, buf: &mut Vec<u8>) -> DfResult<()> {
    signature.map_or(Ok(()), |signature| {
        serde_json::to_writer(buf, signature)
            .map_err(|error| DataFusionError::Internal(error.to_string()))
    })
}

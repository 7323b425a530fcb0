//! Functions of windows whose frames leave rows out: EXCLUDE CURRENT ROW, EXCLUDE GROUP and EXCLUDE
//! TIES.
//!
//! DataFusion has no such frames. For each function that takes them there is one function of windows
//! for each kind, which is given the whole frame and the columns by which rows are sorted. Its last
//! argument is the condition of FILTER.

mod frame;
mod mean;
mod partition;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, LimitEffect, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

use frame::Excluded;
pub use mean::MEAN;
pub(super) use mean::all as mean;
use partition::{Aggregation, Chosen, Partition};

/// The aggregates that take frames with EXCLUDE.
const AGGREGATES: [&str; 19] = [
    "sum",
    "count",
    "avg",
    "min",
    "max",
    "median",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "corr",
    "covar_samp",
    "covar_pop",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "array_agg",
    "string_agg",
];

/// Functions of one row of the frame.
const ROWS: [(&str, Row); 3] =
    [("first_value", Row::First), ("last_value", Row::Last), ("nth_value", Row::Nth)];

const DISTINCT: &str = " of distinct values";

/// The row of a frame that a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Row {
    First,
    Last,
    Nth,
}

/// The name of the function that stands for one with EXCLUDE, if there is one. `kind` has the words
/// behind EXCLUDE.
pub fn name(function: &str, is_distinct: bool, kind: &str) -> Option<String> {
    let is_row = ROWS.iter().any(|(name, _)| *name == function);
    let is_known = AGGREGATES.contains(&function) || is_row && !is_distinct;
    let kind = Excluded::ALL.into_iter().find(|known| known.words() == kind)?;
    is_known.then(|| function_name(function, is_distinct, kind))
}

fn function_name(function: &str, is_distinct: bool, kind: Excluded) -> String {
    let distinct = if is_distinct { DISTINCT } else { "" };
    format!("{function}{distinct} excluding {}", kind.words())
}

/// Registers the functions.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in AGGREGATES {
        let aggregate = registry.udaf(function)?;
        for kind in Excluded::ALL {
            for is_distinct in [false, true] {
                let of = Of::Aggregate { aggregate: Arc::clone(&aggregate), is_distinct };
                registry.register_udwf(of.function(function, kind))?;
            }
        }
    }
    for (function, row) in ROWS {
        for kind in Excluded::ALL {
            registry.register_udwf(Of::Row(row).function(function, kind))?;
        }
    }
    Ok(())
}

/// The function of a name, for the decoding of plans.
pub(crate) fn of_name(
    name: &str,
    aggregate: impl Fn(&str) -> Option<Arc<AggregateUDF>>,
) -> Option<Arc<WindowUDF>> {
    let (function, kind) = name.split_once(" excluding ")?;
    let kind = Excluded::ALL.into_iter().find(|known| known.words() == kind)?;
    if let Some((_, row)) = ROWS.iter().find(|(name, _)| *name == function) {
        return Some(Of::Row(*row).function(function, kind));
    }
    let plain = function.strip_suffix(DISTINCT);
    let is_distinct = plain.is_some();
    let plain = plain.unwrap_or(function);
    let of = Of::Aggregate { aggregate: aggregate(plain)?, is_distinct };
    Some(of.function(plain, kind))
}

/// The computation over the rows that are left of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
    Aggregate { aggregate: Arc<AggregateUDF>, is_distinct: bool },
    Row(Row),
}

impl Of {
    fn function(self, name: &str, kind: Excluded) -> Arc<WindowUDF> {
        let is_distinct = matches!(self, Self::Aggregate { is_distinct: true, .. });
        let name = function_name(name, is_distinct, kind);
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(WindowUDF::from(ExcludingWindow { name, of: self, kind, signature }))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExcludingWindow {
    name: String,
    of: Of,
    kind: Excluded,
    signature: Signature,
}

impl WindowUDFImpl for ExcludingWindow {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let Some((_, own)) = types.split_last() else { return Err(no_arguments()) };
        let mut coerced = match &self.of {
            Of::Aggregate { aggregate, .. } => {
                let field =
                    |of: &DataType| -> FieldRef { Arc::new(Field::new("x", of.clone(), true)) };
                let fields: Vec<FieldRef> = own.iter().map(field).collect();
                let coerced = fields_with_udf(&fields, aggregate.as_ref())?;
                coerced.iter().map(|field| field.data_type().clone()).collect()
            }
            Of::Row(Row::Nth) if own.len() == 2 => vec![own[0].clone(), DataType::Int64],
            Of::Row(Row::First | Row::Last) if own.len() == 1 => own.to_vec(),
            Of::Row(_) => {
                let name = self.name.split(' ').next().unwrap_or_default();
                let message = format!("{name} takes other arguments");
                return Err(DataFusionError::Plan(message));
            }
        };
        coerced.push(DataType::Boolean);
        Ok(coerced)
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let fields = args.input_fields();
        let Some((_, own)) = fields.split_last() else { return Err(no_arguments()) };
        let data_type = match &self.of {
            Of::Aggregate { aggregate, .. } => aggregate.return_field(own)?.data_type().clone(),
            Of::Row(_) => own.first().ok_or_else(no_arguments)?.data_type().clone(),
        };
        let is_count = matches!(&self.of, Of::Aggregate { aggregate, .. }
            if aggregate.name() == "count");
        Ok(Arc::new(Field::new(args.name(), data_type, !is_count)))
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let Some((_, own)) = args.input_fields().split_last() else { return Err(no_arguments()) };
        let exprs = &args.input_exprs()[..own.len()];
        let chosen = match &self.of {
            Of::Aggregate { aggregate, is_distinct } => {
                Chosen::All(Aggregation::new(aggregate, *is_distinct, exprs, own)?)
            }
            Of::Row(row) => Chosen::One { row: *row, ignores_nulls: args.ignore_nulls() },
        };
        Ok(Box::new(Partition::new(self.kind, chosen, own.len())))
    }

    /// A frame may end anywhere.
    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

fn no_arguments() -> DataFusionError {
    DataFusionError::Plan("the function needs arguments".to_owned())
}

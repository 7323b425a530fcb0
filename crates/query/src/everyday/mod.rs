//! Functions of DuckDB that DataFusion lacks, and that no other expression stands for.
//!
//! For the plan and its codec they are built-in functions. What other expressions stand for is
//! written so before it is planned (`plan/equivalents`).

mod age;
mod digits;
mod epoch;
mod json;
mod len;
mod list_reduce;
mod lists;
mod multiples;
mod plain;
mod printed;
mod regexp_extract;
mod regexps;
mod scalars;
mod sums;
mod zones;

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

pub(crate) use multiples::Multiples;

/// Registers the functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in epoch::all() {
        registry.register_udf(Arc::new(ScalarUDF::from(function)))?;
    }
    let plain = [
        age::all(),
        digits::all(),
        json::all(),
        lists::all(),
        regexps::all(),
        scalars::all(),
        sums::all(),
        printed::all(),
    ];
    let pairs = multiples::all().into_iter().chain(zones::all());
    for function in plain.into_iter().flatten().chain(pairs) {
        registry.register_udf(Arc::new(ScalarUDF::from(function)))?;
    }
    registry.register_higher_order_function(list_reduce::function())?;
    registry.register_udf(Arc::new(ScalarUDF::from(len::Len::default())))?;
    registry.register_udf(Arc::new(ScalarUDF::from(regexp_extract::RegexpExtract::default())))?;
    Ok(())
}

/// The result of a function of columns. If all its arguments are constants, it is one.
fn of_columns(
    args: &ScalarFunctionArgs,
    compute: impl FnOnce(&[ArrayRef]) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
    let result = compute(&columns)?;
    match is_constant {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
        false => Ok(ColumnarValue::Array(result)),
    }
}

//! Functions of DuckDB that DataFusion lacks, and that cannot be written as another expression.
//!
//! For the plan and its codec they are built-in functions. Functions that can be written as other
//! expressions are replaced before planning (`plan/equivalents`).

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
mod samples;
mod scalars;
mod several;
mod sums;
mod uuids;
mod zones;

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, HigherOrderUDF, ScalarFunctionArgs, ScalarUDF};

pub use multiples::Multiples;

/// Registers the functions.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in scalars() {
        registry.register_udf(function)?;
    }
    registry.register_higher_order_function(higher_order())?;
    Ok(())
}

/// The functions of single rows.
pub(crate) fn scalars() -> Vec<Arc<ScalarUDF>> {
    let plain = [
        age::all(),
        digits::all(),
        json::all(),
        lists::all(),
        regexps::all(),
        samples::all(),
        scalars::all(),
        several::all(),
        sums::all(),
        printed::all(),
        uuids::all(),
    ];
    let pairs = multiples::all().into_iter().chain(zones::all());
    let plain = plain.into_iter().flatten().chain(pairs).map(ScalarUDF::from);
    let all = epoch::all().into_iter().map(ScalarUDF::from).chain(plain);
    let mut all: Vec<_> = all.map(Arc::new).collect();
    all.push(Arc::new(ScalarUDF::from(len::Len::default())));
    all.push(Arc::new(ScalarUDF::from(regexp_extract::RegexpExtract::default())));
    all
}

/// The function that takes a function.
pub(crate) fn higher_order() -> Arc<HigherOrderUDF> {
    list_reduce::function()
}

/// Returns the result of a function of columns. If all arguments are constants, the result is a
/// constant.
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

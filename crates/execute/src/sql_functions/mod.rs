//! Functions of DuckDB and PostgreSQL that DataFusion lacks, and that cannot be written as another
//! expression.
//!
//! For the plan and its codec they are built-in functions. Functions that can be written as other
//! expressions are replaced before planning (`crates/plan/src/sql/equivalents/`).
//!
//! | member | owns |
//! |---|---|
//! | `column_function` | a function of columns by its name, its types and its computation |
//! | `scalars`, `multiples` | types, bits, timestamps and intervals of numbers |
//! | `numbers` | `even` and `bar` |
//! | `structs` | structs with further fields |
//! | `text`, `format_strings` | texts, regular expressions, `printf` and `format` |
//! | `times` | ages, epochs and time zones |
//! | `lists`, `json` | lists and JSON |
//! | `samples` | samples that can be repeated |
//! | `exclusions` | functions of windows whose frames leave rows out |

mod column_function;
pub mod exclusions;
mod format_strings;
mod json;
mod lists;
mod multiples;
mod numbers;
mod samples;
mod scalars;
mod structs;
mod text;
mod times;

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
        times::age::all(),
        text::digits::all(),
        json::all(),
        lists::functions::all(),
        text::regexps::all(),
        samples::all(),
        scalars::all(),
        lists::several_rows::all(),
        lists::sums::all(),
        format_strings::all(),
        text::uuids::all(),
        text::paths::all(),
        text::distance::all(),
        numbers::all(),
        structs::all(),
    ];
    let pairs = multiples::all().into_iter().chain(times::zones::all());
    let pairs = pairs.chain(exclusions::mean());
    let plain = plain.into_iter().flatten().chain(pairs).map(ScalarUDF::from);
    let all = times::epoch::all().into_iter().map(ScalarUDF::from).chain(plain);
    let mut all: Vec<_> = all.map(Arc::new).collect();
    all.push(Arc::new(ScalarUDF::from(text::length::Len::default())));
    all.push(Arc::new(ScalarUDF::from(text::regexp_extract::RegexpExtract::default())));
    all
}

/// The function that takes a function.
pub(crate) fn higher_order() -> Arc<HigherOrderUDF> {
    lists::reduction::function()
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

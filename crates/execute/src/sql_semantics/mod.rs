//! SQL's semantics where DataFusion has others: its answer would be wrong, or there would be one
//! where the query has to fail.
//!
//! Overflow-checked arithmetic of integers and decimals: a result that does not fit its type is an
//! error, as in DuckDB and PostgreSQL, and never wraps. So is a second row of a subquery that is
//! used as a value (`single_row`).
//!
//! DataFusion's operators on integers and its `sum` wrap. Here `+`, `-`, `*` and the unary `-` of
//! integers become checked functions (once types are known, before constants are folded), and `sum`
//! adds in 128 bits. Quotients and averages of decimals, and casts of numbers to integers, are
//! rounded, where DataFusion truncates; the text of a time is PostgreSQL's, and intervals are
//! compared by their length. For the plan and its codec all are built-in functions.
//!
//! | member | owns |
//! |---|---|
//! | `rule` | puts the functions of this room in place of DataFusion's operators |
//! | `integer_operators`, `sum` | `+`, `-`, `*` and `sum` that fail on overflow |
//! | `decimal_division`, `quotients`, `average`, `rounding` | rounded quotients, averages and casts |
//! | `cast_barrier` | casts of compared values that the optimiser must leave |
//! | `text`, `intervals` | the text of times, and intervals by their length |
//! | `single_row` | subqueries that are values, of one row at most |
//! | `identity`, `repetition`, `unary_function` | functions that change what the planner knows |
//! | `replacement` | parts of expressions that are replaced in plans |

mod average;
mod cast_barrier;
mod decimal_division;
mod identity;
mod integer_operators;
mod intervals;
mod quotients;
mod repetition;
mod replacement;
mod rounding;
mod rule;
mod single_row;
mod sum;
mod text;
mod unary_function;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use snowmelt_types::{Code, ErrorReport};

pub(crate) use average::averages;
pub use identity::WRITTEN;
pub use intervals::{CompareIntervals, OrderWindows};
pub use repetition::repeated;
pub use replacement::{is_comparison, replace_parts};
pub use rule::CheckIntegers;
pub use single_row::CheckSubqueries;
pub(crate) use text::{text_of, units_of_second};

/// Registers the checked functions.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in scalars() {
        registry.register_udf(function)?;
    }
    for function in aggregates() {
        registry.register_udaf(function)?;
    }
    Ok(())
}

/// The checked functions of single rows.
pub(crate) fn scalars() -> Vec<Arc<ScalarUDF>> {
    let plain = [
        cast_barrier::function(),
        rounding::function(),
        single_row::nullable::function(),
        intervals::function(),
        text::function(),
    ];
    let operators = integer_operators::all().into_iter().map(ScalarUDF::from);
    let mut all: Vec<_> = operators.chain(plain.map(ScalarUDF::from)).map(Arc::new).collect();
    all.extend([
        Arc::new(ScalarUDF::from(repetition::Repeated::default())),
        Arc::new(ScalarUDF::from(decimal_division::Divide::default())),
        Arc::new(ScalarUDF::from(identity::DistinctIdentity::default())),
    ]);
    all
}

/// The checked functions of groups of rows.
pub(crate) fn aggregates() -> [Arc<AggregateUDF>; 3] {
    [
        Arc::new(AggregateUDF::from(average::RoundedAverage::default())),
        Arc::new(AggregateUDF::from(sum::CheckedSum::default())),
        Arc::new(AggregateUDF::from(single_row::SingleRow::default())),
    ]
}

/// True for functions that replace operators, which are hidden from SQL.
pub fn is_operator(name: &str) -> bool {
    name.starts_with(integer_operators::PREFIX)
}

/// A cast that fails where a value has none in the type, and does not make it null.
pub(crate) fn cast_strictly(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() })
}

/// The error for a result that does not fit its type.
fn overflow(what: &str, data_type: &DataType) -> DataFusionError {
    let message = format!("{what} does not fit {}", sql_name(data_type));
    let report = ErrorReport::new(Code::SQL_VALUE, message)
        .hint("compute in a wider type, such as CAST(x AS DECIMAL(38, 0)) or CAST(x AS DOUBLE)");
    DataFusionError::External(Box::new(report))
}

/// The name that a type has in SQL.
pub fn sql_name(data_type: &DataType) -> String {
    use DataType::*;
    let name = match data_type {
        Null => "NULL",
        Boolean => "BOOLEAN",
        Int8 => "TINYINT",
        Int16 => "SMALLINT",
        Int32 => "INTEGER",
        Int64 => "BIGINT",
        UInt8 => "TINYINT UNSIGNED",
        UInt16 => "SMALLINT UNSIGNED",
        UInt32 => "INTEGER UNSIGNED",
        UInt64 => "BIGINT UNSIGNED",
        Float16 | Float32 => "REAL",
        Float64 => "DOUBLE",
        Utf8 | LargeUtf8 | Utf8View => "VARCHAR",
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => "BYTEA",
        Date32 | Date64 => "DATE",
        Time32(_) | Time64(_) => "TIME",
        Timestamp(_, None) => "TIMESTAMP",
        Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        Interval(_) | Duration(_) => "INTERVAL",
        Dictionary(_, value) => return sql_name(value),
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        List(item) | LargeList(item) | FixedSizeList(item, _) => {
            return format!("{}[]", sql_name(item.data_type()));
        }
        Struct(fields) => {
            let field = |f: &FieldRef| format!("{} {}", f.name(), sql_name(f.data_type()));
            let fields: Vec<String> = fields.iter().map(field).collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        other => return other.to_string(),
    };
    name.to_owned()
}

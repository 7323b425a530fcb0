//! A cast that the optimiser leaves as it is.
//!
//! DataFusion compares a column, and not its cast, with a constant, where the constant has a value in
//! the column's type. A cast to a decimal with fewer digits behind the point gives several values the
//! same result, so that `x::decimal(9, 1) = 1.2` would no longer hold for 1.23 (datafusion 23095).

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_barrier";

/// The identity.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Barrier {
    signature: Signature,
}

impl Default for Barrier {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

/// Whether several values of one type become the same decimal of another.
pub(super) fn merges_decimals(from: &DataType, to: &DataType) -> bool {
    scale(from).zip(scale(to)).is_some_and(|(from, to)| from > to)
}

fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

impl ScalarUDFImpl for Barrier {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(ToString::to_string).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [only] => Ok(only.clone()),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [only] => Ok(Arc::clone(only)),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => plan_err!("{NAME} takes one argument"),
        }
    }
}

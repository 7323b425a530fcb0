//! The identity, for a value that may be in several rows.
//!
//! DataFusion derives from a grouped column that its values are unique. It keeps this property
//! through projections of the column, but not through functions of it.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_repeated";

/// The function that returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Repeated {
    signature: Signature,
}

impl Default for Repeated {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

/// Wraps an expression so that its values stay the same, but no plan takes them for unique.
pub fn repeated(value: Expr) -> Expr {
    ScalarUDF::from(Repeated::default()).call(vec![value])
}

impl ScalarUDFImpl for Repeated {
    fn name(&self) -> &str {
        NAME
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

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => plan_err!("{NAME} takes one argument"),
        }
    }
}

//! The identity, with the text by which two expressions differ.
//!
//! DataFusion names an expression without its casts, and refuses two of one name: `sum(x::int)` and
//! `sum(x::double)`.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The name of the function, which is hidden from SQL.
pub const WRITTEN: &str = "checked_written";

/// The function that returns its first argument. The second argument is a text by which expressions
/// differ.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DistinctIdentity {
    signature: Signature,
}

impl Default for DistinctIdentity {
    fn default() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for DistinctIdentity {
    fn name(&self) -> &str {
        WRITTEN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => plan_err!("{WRITTEN} takes two arguments"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [value, _] => Ok(Arc::clone(value)),
            _ => plan_err!("{WRITTEN} takes two arguments"),
        }
    }

    /// Replaces the call by its first argument: the function is of use for names only.
    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match args.len() {
            2 => Ok(ExprSimplifyResult::Simplified(args.swap_remove(0))),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => plan_err!("{WRITTEN} takes two arguments"),
        }
    }
}

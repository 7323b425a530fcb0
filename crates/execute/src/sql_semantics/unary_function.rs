//! A function of one column, which the analyzer calls where an expression has another meaning in SQL.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

/// Computes the field of the result from the field of the argument.
pub(super) type Returns = fn(&FieldRef) -> FieldRef;

/// Computes the column of the result from the column of the argument.
pub(super) type Compute = fn(&ArrayRef) -> Result<ArrayRef>;

/// A function of one column, which plans show as its argument.
#[derive(Debug)]
pub(super) struct ColumnFunction {
    name: &'static str,
    /// True if the function's column has the name of the argument.
    keeps_name: bool,
    signature: Signature,
    returns: Returns,
    compute: Compute,
}

impl ColumnFunction {
    pub(super) fn new(
        name: &'static str,
        keeps_name: bool,
        returns: Returns,
        compute: Compute,
    ) -> Self {
        let signature = Signature::any(1, Volatility::Immutable);
        Self { name, keeps_name, signature, returns, compute }
    }
}

impl PartialEq for ColumnFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ColumnFunction {}

impl Hash for ColumnFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for ColumnFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(ToString::to_string).collect())
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let argument: String = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(if self.keeps_name { argument } else { format!("{}({argument})", self.name) })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [only] => {
                let argument = Arc::new(Field::new(self.name, only.clone(), true));
                Ok((self.returns)(&argument).data_type().clone())
            }
            _ => plan_err!("{} takes one argument", self.name),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [only] => Ok((self.returns)(only)),
            _ => plan_err!("{} takes one argument", self.name),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let computed = (self.compute)(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array((self.compute)(values)?)),
            _ => plan_err!("{} takes one argument", self.name),
        }
    }
}

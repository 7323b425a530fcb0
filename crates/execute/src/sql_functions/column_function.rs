//! A function that is a name, the types that it takes, and a computation of columns.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use snowmelt_types::{Code, ErrorReport};

use super::of_columns;

/// Computes the type of the result from the types of the arguments, and from the values of constant
/// arguments.
pub(super) type Returns = fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>;

/// Computes the column of the result from the columns of the arguments and the type of the result.
pub(super) type Compute = fn(&[ArrayRef], &DataType) -> Result<ArrayRef>;

/// A function that is made of its name, types and computation.
#[derive(Debug)]
pub(super) struct Plain {
    name: &'static str,
    /// The least and the largest number of the function's arguments.
    count: (usize, usize),
    signature: Signature,
    returns: Returns,
    compute: Compute,
}

impl Plain {
    pub(super) fn new(
        name: &'static str,
        count: (usize, usize),
        returns: Returns,
        compute: Compute,
    ) -> Self {
        let signature = match count.1 {
            0 => Signature::nullary(Volatility::Immutable),
            _ => Signature::variadic_any(Volatility::Immutable),
        };
        Self { name, count, signature, returns, compute }
    }
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Plain {}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Plain {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let constants = vec![None; types.len()];
        (self.returns)(types, &constants)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (least, most) = self.count;
        let count = args.arg_fields.len();
        if count < least || count > most {
            let takes = if least == most { least.to_string() } else { format!("at least {least}") };
            return plan_err!(
                "`{}` takes {takes} arguments, but the query gives {count}",
                self.name
            );
        }
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let returned = (self.returns)(&types, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.name, returned, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let returned = args.return_field.data_type().clone();
        of_columns(&args, |columns| (self.compute)(columns, &returned))
    }
}

/// Returns the error of a value that a function does not take.
pub(super) fn wrong(message: String, hint: &str) -> DataFusionError {
    let report = ErrorReport::new(Code::SQL_VALUE, message).hint(hint);
    DataFusionError::External(Box::new(report))
}

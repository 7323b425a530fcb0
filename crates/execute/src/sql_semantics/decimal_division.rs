//! The division of decimals, which rounds where DataFusion's truncates.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility, binary_expr,
};
use datafusion::scalar::ScalarValue;

use super::quotients::quotients;

/// The name of the function, which is hidden from SQL.
pub(super) const NAME: &str = "checked_divide";

/// `/` of two decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Divide {
    signature: Signature,
}

impl Default for Divide {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// Whether the quotient of two types is computed here.
pub(super) fn divides(left: &DataType, right: &DataType) -> bool {
    matches!((left, right), (DataType::Decimal128(..), DataType::Decimal128(..)))
        || matches!((left, right), (DataType::Decimal256(..), DataType::Decimal256(..)))
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => {
                Ok(binary_expr(left.clone(), Operator::Divide, right.clone()).to_string())
            }
            _ => plan_err!("a division takes two arguments"),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => Ok(format!("{} / {}", left.schema_name(), right.schema_name())),
            _ => plan_err!("a division takes two arguments"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [left, right] => {
                BinaryTypeCoercer::new(left, &Operator::Divide, right).get_result_type()
            }
            _ => plan_err!("a division takes two arguments"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(NAME, self.return_type(&types)?, nullable)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalars = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if all_scalars { 1 } else { args.number_rows };
        let [left, right] = args.args.as_slice() else {
            return plan_err!("a division takes two arguments");
        };
        let left = left.to_array(rows)?;
        let right = right.to_array(rows)?;
        let data_type = args.return_field.data_type();
        let computed = quotients(&left, &right, data_type, "a quotient")?;
        debug_assert_eq!(computed.len(), rows);
        match all_scalars {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?)),
            false => Ok(ColumnarValue::Array(computed)),
        }
    }
}

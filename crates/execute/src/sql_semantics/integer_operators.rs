//! `+`, `-`, `*` and the unary `-` of integers, as functions that fail on overflow.

use std::sync::Arc;

use arrow::array::{Array, Datum};
use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility, binary_expr,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::scalar::ScalarValue;

use super::overflow;

/// Prefix of the functions' names.
pub(super) const PREFIX: &str = "checked_";

/// The operator that a function replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OperatorKind {
    Binary(Operator),
    Negate,
}

/// An integer operator as a scalar function that fails on overflow.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedOperator {
    kind: OperatorKind,
    name: &'static str,
    signature: Signature,
}

/// All checked operators.
pub(super) fn all() -> [CheckedOperator; 4] {
    let new = |(kind, name)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        CheckedOperator { kind, name, signature }
    };
    [
        (OperatorKind::Binary(Operator::Plus), "checked_add"),
        (OperatorKind::Binary(Operator::Minus), "checked_subtract"),
        (OperatorKind::Binary(Operator::Multiply), "checked_multiply"),
        (OperatorKind::Negate, "checked_negate"),
    ]
    .map(new)
}

impl CheckedOperator {
    pub(super) fn kind(&self) -> OperatorKind {
        self.kind
    }

    /// The replaced expression, which names the column.
    fn written(&self, args: &[Expr]) -> Expr {
        match (self.kind, args) {
            (OperatorKind::Binary(operator), [left, right]) => {
                binary_expr(left.clone(), operator, right.clone())
            }
            (_, args) => Expr::Negative(Box::new(args.first().cloned().unwrap_or_default())),
        }
    }

    fn explain(&self, error: DataFusionError, data_type: &DataType) -> DataFusionError {
        match &error {
            DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
                ArrowError::ArithmeticOverflow(text) => {
                    let what = text.trim_start_matches("Overflow happened on: ");
                    overflow(&format!("the result of {what}"), data_type)
                }
                _ => error,
            },
            _ => error,
        }
    }
}

impl ScalarUDFImpl for CheckedOperator {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(self.written(args).to_string())
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        // Not by `written`, which copies the whole expression: names of nested expressions are
        // computed at every level.
        match (self.kind, args) {
            (OperatorKind::Binary(operator), [left, right]) => {
                Ok(format!("{} {operator} {}", left.schema_name(), right.schema_name()))
            }
            _ => Ok(self.written(args).schema_name().to_string()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(data_type) if data_type.is_integer() => Ok(data_type.clone()),
            _ => plan_err!("{} takes integers", self.name),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name, self.return_type(&types)?, nullable)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match (self.kind, types) {
            (OperatorKind::Binary(operator), [left, right]) => {
                let (left, right) =
                    BinaryTypeCoercer::new(left, &operator, right).get_input_types()?;
                Ok(vec![left, right])
            }
            (OperatorKind::Negate, [_]) => Ok(types.to_vec()),
            _ => plan_err!("{} takes other arguments", self.name),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = args.return_field.data_type();
        let computed = match (self.kind, args.args.as_slice()) {
            (OperatorKind::Binary(operator), [left, right]) => {
                apply(left, right, |left: &dyn Datum, right: &dyn Datum| match operator {
                    Operator::Plus => add(left, right),
                    Operator::Minus => sub(left, right),
                    _ => mul(left, right),
                })
            }
            (_, args) => negate(args),
        };
        computed.map_err(|error| self.explain(error, data_type))
    }
}

fn negate(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    match args {
        [ColumnarValue::Scalar(value)] => {
            let negated = neg(value.to_array()?.as_ref() as &dyn Array)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&negated, 0)?))
        }
        [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(neg(array.as_ref())?)),
        _ => plan_err!("a negation takes one argument"),
    }
}

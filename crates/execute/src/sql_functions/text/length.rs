//! `len`: the number of characters of a text, or of elements of a list.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, new_null_array};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::sql_functions::of_columns;
use crate::sql_semantics::sql_name;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Len {
    signature: Signature,
}

impl Default for Len {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Len {
    fn name(&self) -> &str {
        "len"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] if is_text(of) || is_list(of) || of.is_null() => Ok(DataType::Int64),
            [of] => plan_err!("`len` takes a type of texts or lists, not {}", sql_name(of)),
            _ => plan_err!("`len` takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_columns(&args, |columns| lengths(&columns[0]))
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        other => other.is_string(),
    }
}

fn is_list(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, List(_) | LargeList(_) | FixedSizeList(..))
}

fn lengths(column: &ArrayRef) -> Result<ArrayRef> {
    if column.data_type().is_null() {
        return Ok(new_null_array(&DataType::Int64, column.len()));
    }
    if is_list(column.data_type()) {
        return Ok(cast(&length(column)?, &DataType::Int64)?);
    }
    let texts = cast(column, &DataType::Utf8View)?;
    let characters = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let texts = texts.as_string_view();
    Ok(Arc::new(texts.iter().map(|text| text.map(characters)).collect::<Int64Array>()))
}

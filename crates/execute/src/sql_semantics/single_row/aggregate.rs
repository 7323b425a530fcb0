//! The aggregate of at most one row.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use snowmelt_types::{Code, ErrorReport};

use crate::sql_semantics::integer_operators::PREFIX;

/// The aggregate function: the value of the only row; null without a row, an error with several.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SingleRow {
    name: String,
    signature: Signature,
}

impl Default for SingleRow {
    fn default() -> Self {
        Self {
            name: format!("{PREFIX}single_row"),
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for SingleRow {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Null))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(OneRow { value, rows: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let value = Field::new("value", args.return_type().clone(), true);
        Ok(vec![Arc::new(value), Arc::new(Field::new("rows", DataType::UInt64, false))])
    }
}

#[derive(Debug)]
struct OneRow {
    value: ScalarValue,
    rows: u64,
}

impl OneRow {
    fn add(&mut self, values: &ArrayRef, row: usize, rows: u64) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows;
        if self.rows > 1 {
            let message = "a subquery that is used as a value returned more than one row";
            let report = ErrorReport::new(Code::SQL_VALUE, message)
                .hint("aggregate its rows, or add LIMIT 1; for any of several rows use IN");
            return Err(DataFusionError::External(Box::new(report)));
        }
        self.value = ScalarValue::try_from_array(values, row)?;
        Ok(())
    }
}

impl Accumulator for OneRow {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 0, values[0].len() as u64)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states[1].as_primitive::<UInt64Type>();
        for (index, rows) in rows.values().iter().enumerate() {
            self.add(&states[0], index, *rows)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::UInt64(Some(self.rows))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.size()
    }
}

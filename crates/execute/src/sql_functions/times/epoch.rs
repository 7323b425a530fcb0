//! `epoch_ms`, `epoch_us` and `epoch_ns`: the time since 1970 of a timestamp, in whole units; and
//! `epoch_ms` of a number, the timestamp.

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::sql_functions::of_columns;
use crate::sql_semantics::sql_name;

/// The function `epoch_ms`, `epoch_us` or `epoch_ns`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    name: &'static str,
    unit: TimeUnit,
    signature: Signature,
}

pub(crate) fn all() -> [Epoch; 3] {
    let function = |name, unit| {
        let signature = Signature::any(1, Volatility::Immutable);
        Epoch { name, unit, signature }
    };
    [
        function("epoch_ms", TimeUnit::Millisecond),
        function("epoch_us", TimeUnit::Microsecond),
        function("epoch_ns", TimeUnit::Nanosecond),
    ]
}

impl ScalarUDFImpl for Epoch {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let makes_times = self.unit == TimeUnit::Millisecond;
        match types {
            [of] if of.is_null() => Ok(DataType::Int64),
            [DataType::Timestamp(..) | DataType::Date32 | DataType::Date64] => Ok(DataType::Int64),
            [of] if of.is_integer() && makes_times => Ok(DataType::Timestamp(self.unit, None)),
            [of] => {
                let name = self.name;
                plan_err!("`{name}` takes a type of times, not {}", sql_name(of))
            }
            _ => plan_err!("`{}` takes one argument", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_columns(&args, |columns| self.converted(&columns[0]))
    }
}

impl Epoch {
    fn converted(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let times = DataType::Timestamp(self.unit, None);
        Ok(match column.data_type() {
            DataType::Null => cast(column, &DataType::Int64)?,
            of if of.is_integer() => cast(&cast(column, &DataType::Int64)?, &times)?,
            DataType::Timestamp(_, zone) => {
                // A zone changes how a time is shown, and not the time since 1970.
                let of_unit = DataType::Timestamp(self.unit, zone.clone());
                cast(&cast(column, &of_unit)?, &DataType::Int64)?
            }
            _ => cast(&cast(column, &times)?, &DataType::Int64)?,
        })
    }
}

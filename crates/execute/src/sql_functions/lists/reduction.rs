//! `list_reduce(list, lambda x, y: x + y, initial)`: reduces the elements of a list, from the first
//! to the last, to one value. `x` is the value so far, `y` the next element, and a third name, if
//! there is one, the place of this element.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, UInt32Array, new_null_array};
use arrow::compute::{cast, concat, take, take_arrays};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef,
};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::functions::as_list;
use crate::sql_functions::column_function::wrong;
use crate::sql_semantics::cast_strictly;

/// The function.
pub(crate) fn function() -> Arc<HigherOrderUDF> {
    Arc::new(HigherOrderUDF::new_from_impl(ListReduce::default()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListReduce {
    signature: HigherOrderSignature,
    aliases: Vec<String>,
}

impl Default for ListReduce {
    fn default() -> Self {
        Self {
            signature: HigherOrderSignature::variadic_any(Volatility::Immutable),
            aliases: ["array_reduce", "reduce"].map(str::to_owned).to_vec(),
        }
    }
}

/// The list, the lambda, and the initial value.
type ReduceArguments<'a, V, L> = (&'a V, &'a L, Option<&'a V>);

fn parts<V, L>(args: &[ValueOrLambda<V, L>]) -> Result<ReduceArguments<'_, V, L>> {
    match args {
        [ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda)] => Ok((list, lambda, None)),
        [
            ValueOrLambda::Value(list),
            ValueOrLambda::Lambda(lambda),
            ValueOrLambda::Value(initial),
        ] => Ok((list, lambda, Some(initial))),
        _ => plan_err!("`list_reduce` takes a list, a lambda of two values, and an initial value"),
    }
}

/// The type of the elements.
fn element(list: &DataType) -> Result<DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Ok(item.data_type().clone())
        }
        DataType::Null => Ok(DataType::Null),
        _ => plan_err!("`list_reduce` takes a list"),
    }
}

/// Returns a common type of two types; for decimals the widest, because each step may need more
/// digits.
fn common(one: &DataType, other: &DataType) -> Result<DataType> {
    let Some(both) = type_union_coercion(one, other) else {
        return plan_err!("`list_reduce` has values of types that have none in common");
    };
    Ok(match both {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
        DataType::Decimal256(_, scale) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale),
        other => other,
    })
}

/// Returns the type of the value that each step gives to the next one. A decimal keeps its type: a
/// product of two decimals has more digits behind the point, and each step would add some.
fn value_type(first: &DataType, result: &DataType) -> Result<DataType> {
    match first.is_decimal() && (result.is_decimal() || result.is_integer()) {
        true => Ok(first.clone()),
        false => common(first, result),
    }
}

/// The type of the value before the lambda is known.
fn first_type(list: &DataType, initial: Option<&DataType>) -> Result<DataType> {
    let item = element(list)?;
    common(&item, initial.unwrap_or(&item))
}

impl HigherOrderUDFImpl for ListReduce {
    fn name(&self) -> &str {
        "list_reduce"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let (list, lambda, initial) = parts(fields)?;
        let first = first_type(list.data_type(), initial.map(|field| field.data_type()))?;
        let field = |of: &DataType| Arc::new(Field::new("", of.clone(), true));
        let with = |value: &DataType| -> Result<Vec<FieldRef>> {
            Ok(vec![field(value), field(&element(list.data_type())?), field(&DataType::Int64)])
        };
        Ok(match lambda {
            None => LambdaParametersProgress::Partial(vec![Some(with(&first)?)]),
            Some(result) => {
                let value = value_type(&first, result.data_type())?;
                LambdaParametersProgress::Complete(vec![with(&value)?])
            }
        })
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (list, lambda, initial) = parts(args.arg_fields)?;
        let first = first_type(list.data_type(), initial.map(|field| field.data_type()))?;
        let value = value_type(&first, lambda.data_type())?;
        Ok(Arc::new(Field::new("", value, true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let (list, lambda, initial) = parts(&args.args)?;
        let value = args.return_field.data_type();
        let list = as_list(&list.to_array(args.number_rows)?)?;
        let initial = match initial {
            Some(initial) => Some(cast(&initial.to_array(args.number_rows)?, value)?),
            None => None,
        };
        Ok(ColumnarValue::Array(reduced(&list, lambda, initial.as_ref(), value)?))
    }
}

/// The rows by the lengths of their lists, the longest first, so that rows with a next element are
/// in front.
struct ByLength {
    rows: Vec<u32>,
    lengths: Vec<usize>,
}

impl ByLength {
    fn of(list: &ListArray) -> Self {
        let length = |row: usize| match list.is_valid(row) {
            true => usize::try_from(list.value_length(row)).unwrap_or_default(),
            false => 0,
        };
        let mut rows: Vec<(usize, u32)> = (0..list.len()).map(length).zip(0..).collect();
        rows.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
        let (lengths, rows) = rows.into_iter().unzip();
        Self { rows, lengths }
    }

    /// How many rows have an element at a place.
    fn with(&self, place: usize) -> usize {
        self.lengths.partition_point(|length| *length > place)
    }

    /// The elements at a place, of the rows that have one.
    fn elements(&self, list: &ListArray, place: usize) -> Result<ArrayRef> {
        let offset = |row: &u32| {
            let begin = usize::try_from(list.value_offsets()[*row as usize]).unwrap_or_default();
            u32::try_from(begin + place).map_err(|_| too_long())
        };
        let there = &self.rows[..self.with(place)];
        let offsets = there.iter().map(offset).collect::<Result<Vec<u32>>>()?;
        Ok(take(list.values(), &UInt32Array::from(offsets), None)?)
    }
}

fn reduced(
    list: &ListArray,
    lambda: &LambdaArgument,
    initial: Option<&ArrayRef>,
    to: &DataType,
) -> Result<ArrayRef> {
    let order = ByLength::of(list);
    let all = UInt32Array::from(order.rows.clone());
    let (mut value, first) = match initial {
        Some(initial) => (take(initial, &all, None)?, 0),
        None => {
            let is_empty = |row: usize| list.is_valid(row) && list.value_length(row) == 0;
            if (0..list.len()).any(is_empty) {
                let hint = "give it an initial value as third argument, or leave out empty lists";
                return Err(wrong("`list_reduce` of an empty list has no value".to_owned(), hint));
            }
            (cast(&order.elements(list, 0)?, to)?, 1)
        }
    };
    // Of rows whose lists have ended, the shortest first.
    let mut ended: Vec<ArrayRef> = Vec::new();
    if initial.is_none() {
        ended.push(new_null_array(to, list.len() - value.len()));
    }
    for place in first..order.lengths.first().copied().unwrap_or_default() {
        let there = order.with(place);
        ended.push(value.slice(there, value.len() - there));
        let before = value.slice(0, there);
        let next = order.elements(list, place)?;
        let number = i64::try_from(place + 1).map_err(|_| too_long())?;
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number; there]));
        let rows = UInt32Array::from(order.rows[..there].to_vec());
        let before = || Ok(Arc::clone(&before));
        let next = || Ok(Arc::clone(&next));
        let numbers = || Ok(Arc::clone(&numbers));
        let result = lambda.evaluate(&[&before, &next, &numbers], |captured| {
            Ok(take_arrays(captured, &rows, None)?)
        })?;
        value = cast_strictly(&result.into_array(there)?, to)?;
    }
    ended.push(value);
    let pieces: Vec<&dyn Array> = ended.iter().rev().map(AsRef::as_ref).collect();
    let sorted = concat(&pieces)?;
    let mut places = vec![0; list.len()];
    for (place, row) in (0..).zip(&order.rows) {
        places[*row as usize] = place;
    }
    let values = take(&sorted, &UInt32Array::from(places), None)?;
    without_null_lists(values, list)
}

/// Makes values null where the list is null.
fn without_null_lists(values: ArrayRef, list: &ListArray) -> Result<ArrayRef> {
    match list.nulls() {
        None => Ok(values),
        Some(nulls) => {
            let rows = (0..).zip(nulls.iter()).map(|(row, is_there)| is_there.then_some(row));
            Ok(take(&values, &rows.collect::<UInt32Array>(), None)?)
        }
    }
}

fn too_long() -> DataFusionError {
    wrong("a list is too long for `list_reduce`".to_owned(), "divide it")
}

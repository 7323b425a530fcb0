//! `struct_insert(s, 'a', 1)`: a struct with further fields.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use super::column_function::Plain;

/// The largest number of arguments: a struct can have a few hundred fields.
const MOST: usize = 1001;

pub(super) fn all() -> Vec<Plain> {
    vec![Plain::new("struct_insert", (3, MOST), returned, inserted)]
}

fn returned(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let (Some(DataType::Struct(fields)), 1) = (types.first(), types.len() % 2) else {
        return plan_err!("`struct_insert` takes a struct, and names with values");
    };
    let mut fields: Vec<FieldRef> = fields.iter().cloned().collect();
    for place in (1..types.len()).step_by(2) {
        let name = constants.get(place).copied().flatten();
        let Some(Some(Some(name))) = name.map(|name| name.try_as_str()) else {
            return plan_err!("`struct_insert` takes names in quotes");
        };
        if fields.iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
            return plan_err!("the struct has two fields with the name `{name}`");
        }
        fields.push(Arc::new(Field::new(name, types[place + 1].clone(), true)));
    }
    // The fields of a struct that is null are null.
    let nullable = |field: FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    Ok(DataType::Struct(fields.into_iter().map(nullable).collect()))
}

fn inserted(columns: &[ArrayRef], to: &DataType) -> Result<ArrayRef> {
    let DataType::Struct(fields) = to else {
        return plan_err!("`struct_insert` gives a struct");
    };
    let of = columns[0].as_struct();
    let own = of.columns().iter().map(|column| match of.nulls() {
        Some(nulls) => nullif(column, &BooleanArray::new(!nulls.inner(), None)),
        None => Ok(Arc::clone(column)),
    });
    let further = columns.iter().skip(2).step_by(2).cloned().map(Ok);
    let all = own.chain(further).zip(fields);
    let all = all.map(|(column, field)| cast(&column?, field.data_type()));
    let all = all.collect::<Result<Vec<ArrayRef>, _>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), all, None, of.len())?))
}

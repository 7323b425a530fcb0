//! Types as SQL writes them, for people.

use arrow_schema::DataType;

/// The SQL type of an Arrow type.
pub(crate) fn sql_type(data_type: &DataType) -> String {
    use DataType::*;
    let name = match data_type {
        Boolean => "BOOLEAN",
        Int8 => "TINYINT",
        Int16 => "SMALLINT",
        Int32 => "INTEGER",
        Int64 => "BIGINT",
        UInt8 => "UTINYINT",
        UInt16 => "USMALLINT",
        UInt32 => "UINTEGER",
        UInt64 => "UBIGINT",
        Float32 => "REAL",
        Float64 => "DOUBLE",
        Utf8 | LargeUtf8 | Utf8View => "VARCHAR",
        Binary | LargeBinary | BinaryView => "BLOB",
        Date32 | Date64 => "DATE",
        Time32(_) | Time64(_) => "TIME",
        Timestamp(_, None) => "TIMESTAMP",
        Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        Duration(_) | Interval(_) => "INTERVAL",
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        List(item) | LargeList(item) => return format!("{}[]", sql_type(item.data_type())),
        Struct(fields) => {
            let field = |field: &arrow_schema::FieldRef| {
                format!("{} {}", field.name(), sql_type(field.data_type()))
            };
            let fields: Vec<_> = fields.iter().map(field).collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        other => return other.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Fields};

    use super::*;

    #[test]
    fn nested_types_are_written_inside_out() {
        let fields = Fields::from(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Decimal128(38, 10), true),
        ]);
        let inner = DataType::Struct(fields);
        let list = DataType::List(Field::new_list_field(inner, true).into());
        assert_eq!(sql_type(&list), "STRUCT(a BIGINT, b DECIMAL(38, 10))[]");
    }
}

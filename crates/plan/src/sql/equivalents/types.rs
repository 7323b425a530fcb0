//! Names of types that the planner lacks.

use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};

/// Writes the name of a type as one that the planner has.
pub(super) fn write(data_type: &mut DataType) {
    if let Some(other) = known(data_type) {
        *data_type = other;
    }
}

/// The sizes of DuckDB's names are in bits, those of PostgreSQL's `int8` in bytes.
fn known(data_type: &DataType) -> Option<DataType> {
    use DataType::*;
    let timestamp = |digits| Timestamp(Some(digits), TimezoneInfo::None);
    Some(match data_type {
        HugeInt | Int128 => Decimal(ExactNumberInfo::PrecisionAndScale(38, 0)),
        Int16 => SmallInt(None),
        Int32 => Int(None),
        Int64 => BigInt(None),
        UTinyInt | UInt8 => TinyIntUnsigned(None),
        USmallInt | UInt16 => SmallIntUnsigned(None),
        UInt32 => IntUnsigned(None),
        UBigInt | UInt64 => BigIntUnsigned(None),
        Float32 => Real,
        Float64 => DoublePrecision,
        Datetime(None) | TimestampNtz(None) => Timestamp(None, TimezoneInfo::None),
        Custom(name, arguments) if arguments.is_empty() => {
            match name.to_string().to_lowercase().as_str() {
                "timestamp_s" => timestamp(0),
                "timestamp_ms" => timestamp(3),
                "timestamp_us" => timestamp(6),
                "timestamp_ns" => timestamp(9),
                "uinteger" => IntUnsigned(None),
                "int1" => TinyInt(None),
                "short" => SmallInt(None),
                "long" => BigInt(None),
                "bpchar" => Varchar(None),
                "logical" => Boolean,
                _ => return None,
            }
        }
        _ => return None,
    })
}

//! Finds a common schema for the files of a table.
//!
//! Columns are matched by name. If the types of a column differ between files, the column gets a
//! type that holds all values of both, as in DuckDB: wider numbers, finer times, either layout of
//! strings. The reader converts. If there is no such type, the error names the column and both
//! files. Names that differ only in case are refused, unless one file has both: as two columns, each
//! would have nulls where the other has the values.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};

/// Two files with incompatible schemas.
#[derive(Debug)]
pub(crate) enum SchemaConflict {
    /// The types of a column have no common one.
    Types {
        column: String,
        /// Indexes of the files and the column's type in each.
        files: [(usize, DataType); 2],
    },
    /// The names of a column differ in case: indexes of the files and the name in each.
    Names([(usize, String); 2]),
}

impl SchemaConflict {
    /// The reason, with the names of the files.
    pub(crate) fn why(&self, file: impl Fn(usize) -> String) -> String {
        match self {
            Self::Types { column, files: [one, other] } => {
                let first = file(one.0);
                let second = file(other.0);
                format!("column `{column}` is {} in `{first}` and {} in `{second}`", one.1, other.1)
            }
            Self::Names([one, other]) => {
                let first = file(one.0);
                let second = file(other.0);
                format!(
                    "a column is named `{}` in `{first}` and `{}` in `{second}`",
                    one.1, other.1
                )
            }
        }
    }
}

/// Finds a column whose name differs in case between files, given the names in each. A file with
/// both names has two columns.
pub(crate) fn differing_in_case(files: &[Vec<&str>]) -> Option<SchemaConflict> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (file, names) in files.iter().enumerate() {
        names.iter().for_each(|name| _ = first.entry(*name).or_insert(file));
    }
    let mut same: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    first.keys().for_each(|name| same.entry(name.to_lowercase()).or_default().push(*name));
    same.retain(|_, names| names.len() > 1);
    let together = |one, other| files.iter().any(|file| file.contains(one) && file.contains(other));
    for names in same.values_mut() {
        names.sort_unstable();
        let apart = names.windows(2).find(|pair| !together(&pair[0], &pair[1]));
        if let Some(pair) = apart {
            let mut found = [pair[0], pair[1]].map(|name| (first[name], name.to_owned()));
            found.sort_unstable();
            return Some(SchemaConflict::Names(found));
        }
    }
    None
}

/// A schema for the rows of all files. Columns are in the order of their first occurrence.
pub(crate) fn unify(schemas: &[Schema]) -> Result<Schema, SchemaConflict> {
    unify_or(schemas, None)
}

/// Finds a schema as [`unify`], but a column whose types have no common type gets the type
/// `otherwise`, if given.
pub(crate) fn unify_or(
    schemas: &[Schema],
    otherwise: Option<&DataType>,
) -> Result<Schema, SchemaConflict> {
    let names =
        schemas.iter().map(|schema| schema.fields().iter().map(|field| field.name().as_str()));
    if let Some(conflict) = differing_in_case(&names.map(Iterator::collect).collect::<Vec<_>>()) {
        return Err(conflict);
    }
    let mut columns: Vec<UnifiedColumn> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (file, schema) in schemas.iter().enumerate() {
        for field in schema.fields() {
            match known.get(field.name().as_str()) {
                Some(index) => columns[*index].add(file, field, otherwise)?,
                None => {
                    known.insert(field.name(), columns.len());
                    columns.push(UnifiedColumn {
                        field: field.as_ref().clone(),
                        first: file,
                        files: 1,
                    });
                }
            }
        }
    }
    // A file without a column has nulls there.
    let field = |column: UnifiedColumn| {
        let nullable = column.field.is_nullable() || column.files < schemas.len();
        column.field.with_nullable(nullable)
    };
    Ok(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
}

struct UnifiedColumn {
    field: Field,
    first: usize,
    files: usize,
}

impl UnifiedColumn {
    fn add(
        &mut self,
        file: usize,
        other: &Field,
        otherwise: Option<&DataType>,
    ) -> Result<(), SchemaConflict> {
        let both = common(self.field.data_type(), other.data_type());
        let both = both.or_else(|| otherwise.cloned()).ok_or_else(|| SchemaConflict::Types {
            column: other.name().clone(),
            files: [
                (self.first, self.field.data_type().clone()),
                (file, other.data_type().clone()),
            ],
        })?;
        self.field.set_data_type(both);
        self.field.set_nullable(self.field.is_nullable() || other.is_nullable());
        self.files += 1;
        Ok(())
    }
}

/// The narrowest type that holds the values of both.
fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::*;
    if a == b {
        return Some(a.clone());
    }
    match (a, b) {
        (Null, other) | (other, Null) => Some(other.clone()),
        (Dictionary(_, value), other) | (other, Dictionary(_, value)) => common(value, other),
        (a, b) if a.is_string() && b.is_string() => Some(LargeUtf8),
        (a, b) if is_binary(a) && is_binary(b) => Some(LargeBinary),
        (Date32, Timestamp(unit, zone)) | (Timestamp(unit, zone), Date32) => {
            Some(Timestamp(*unit, zone.clone()))
        }
        (Timestamp(a, a_zone), Timestamp(b, b_zone)) => Some(Timestamp(finer(*a, *b), {
            match (a_zone, b_zone) {
                (Some(a), Some(b)) if a == b => Some(Arc::clone(a)),
                (Some(_), Some(_)) => Some("UTC".into()),
                (None, None) => None,
                _ => return None,
            }
        })),
        (Time32(a) | Time64(a), Time32(b) | Time64(b)) => {
            Some(Time64(finer(finer(*a, *b), TimeUnit::Microsecond)))
        }
        (List(a) | LargeList(a), List(b) | LargeList(b)) => Some(LargeList(common_field(a, b)?)),
        (Struct(a), Struct(b)) => common_fields(a, b).map(Struct),
        (a, b) => common_number(a, b),
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    a.max(b)
}

fn common_field(a: &FieldRef, b: &FieldRef) -> Option<FieldRef> {
    let both = common(a.data_type(), b.data_type())?;
    let nullable = a.is_nullable() || b.is_nullable();
    Some(Arc::new(a.as_ref().clone().with_data_type(both).with_nullable(nullable)))
}

/// Matches fields by name; a field of only one side is null on the other.
fn common_fields(a: &Fields, b: &Fields) -> Option<Fields> {
    let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    let mut fields = Vec::with_capacity(a.len());
    for field in a {
        fields.push(match b.find(field.name()) {
            Some((_, other)) => common_field(field, other)?,
            None => nullable(field),
        });
    }
    for field in b.iter().filter(|field| a.find(field.name()).is_none()) {
        let name = field.name().to_lowercase();
        if a.iter().any(|known| known.name().to_lowercase() == name) {
            return None;
        }
        fields.push(nullable(field));
    }
    Some(fields.into())
}

fn common_number(a: &DataType, b: &DataType) -> Option<DataType> {
    if !a.is_numeric() || !b.is_numeric() {
        return None;
    }
    if a.is_floating() || b.is_floating() {
        let single = |kind: &DataType| matches!(kind, DataType::Float16 | DataType::Float32);
        return Some(match single(a) && single(b) {
            true => DataType::Float32,
            false => DataType::Float64,
        });
    }
    let exact = || {
        let ((a_digits, a_scale), (b_digits, b_scale)) = (digits(a)?, digits(b)?);
        let scale = a_scale.max(b_scale);
        let precision = u8::try_from((a_digits - a_scale).max(b_digits - b_scale) + scale).ok()?;
        let fits = precision <= arrow::datatypes::DECIMAL128_MAX_PRECISION;
        fits.then_some(DataType::Decimal128(precision, scale as i8))
    };
    match a.is_integer() && b.is_integer() {
        true => common_integer(a, b).or_else(exact),
        false => exact(),
    }
}

fn common_integer(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::*;
    const SIGNED: [DataType; 4] = [Int8, Int16, Int32, Int64];
    const UNSIGNED: [DataType; 4] = [UInt8, UInt16, UInt32, UInt64];
    // Index of a type by width; an unsigned type needs the next wider signed type.
    let rank = |kinds: &[DataType; 4], of: &DataType| kinds.iter().position(|kind| kind == of);
    match (rank(&UNSIGNED, a), rank(&UNSIGNED, b)) {
        (Some(a), Some(b)) => UNSIGNED.get(a.max(b)).cloned(),
        (None, None) => SIGNED.get(rank(&SIGNED, a)?.max(rank(&SIGNED, b)?)).cloned(),
        (Some(unsigned), None) => SIGNED.get((unsigned + 1).max(rank(&SIGNED, b)?)).cloned(),
        (None, Some(unsigned)) => SIGNED.get((unsigned + 1).max(rank(&SIGNED, a)?)).cloned(),
    }
}

/// Decimal digits in total and after the point.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    use DataType::*;
    Some(match data_type {
        Int8 | UInt8 => (3, 0),
        Int16 | UInt16 => (5, 0),
        Int32 | UInt32 => (10, 0),
        Int64 => (19, 0),
        UInt64 => (20, 0),
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            (i16::from(*precision), i16::from(*scale))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType::*;

    use super::*;

    #[test]
    fn a_common_type_holds_both() {
        let milli = |zone: Option<&str>| Timestamp(TimeUnit::Millisecond, zone.map(Into::into));
        let micro = |zone: Option<&str>| Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        for (a, b, both) in [
            (Int32, Int64, Some(Int64)),
            (UInt32, Int32, Some(Int64)),
            (UInt8, UInt16, Some(UInt16)),
            (UInt64, Int8, Some(Decimal128(20, 0))),
            (Int64, Float32, Some(Float64)),
            (Float32, Float64, Some(Float64)),
            (Decimal128(10, 2), Decimal128(8, 4), Some(Decimal128(12, 4))),
            (Decimal128(10, 2), Int64, Some(Decimal128(21, 2))),
            (Decimal128(38, 0), Decimal128(38, 10), None),
            (Utf8, Utf8View, Some(LargeUtf8)),
            (Dictionary(Box::new(Int32), Box::new(Utf8)), LargeUtf8, Some(LargeUtf8)),
            (milli(None), micro(None), Some(micro(None))),
            (milli(Some("UTC")), micro(Some("+00:00")), Some(micro(Some("UTC")))),
            (milli(None), micro(Some("UTC")), None),
            (Date32, milli(None), Some(milli(None))),
            (Null, Boolean, Some(Boolean)),
            (Boolean, Int32, None),
            (Utf8, Int64, None),
        ] {
            assert_eq!(common(&a, &b), both, "{a} and {b}");
            assert_eq!(common(&b, &a), both, "{b} and {a}");
        }
    }

    #[test]
    fn columns_that_some_files_lack_are_nullable() {
        let schema = |names: &[&str]| {
            Schema::new(
                names.iter().map(|name| Field::new(*name, Int64, false)).collect::<Vec<_>>(),
            )
        };
        let both = unify(&[schema(&["a", "b"]), schema(&["c", "b"])]).unwrap();
        let nullable: Vec<_> =
            both.fields().iter().map(|f| (f.name().as_str(), f.is_nullable())).collect();
        assert_eq!(nullable, [("a", true), ("b", false), ("c", true)]);
    }

    #[test]
    fn a_conflict_names_column_and_files() {
        let schema = |kind| Schema::new(vec![Field::new("n", kind, true)]);
        let conflict = unify(&[schema(Int32), schema(Int64), schema(Boolean)]).unwrap_err();
        let why = conflict.why(|file| format!("f{file}"));
        assert_eq!(why, "column `n` is Int64 in `f0` and Boolean in `f2`");
    }

    #[test]
    fn names_that_differ_in_case_are_one_column_unless_a_file_has_both() {
        let why = |files: &[Vec<&str>]| {
            differing_in_case(files).map(|conflict| conflict.why(|file| format!("f{file}")))
        };
        let found = why(&[vec!["n", "Id"], vec!["n"], vec!["id", "n"]]).unwrap();
        assert_eq!(found, "a column is named `Id` in `f0` and `id` in `f2`");
        assert_eq!(why(&[vec!["id"], vec!["Id", "id"]]), None);
        assert_eq!(why(&[vec!["a", "b"], vec!["b", "c"]]), None);
        let pair = |name| {
            let fields = vec![Field::new(name, Int64, true)].into();
            Schema::new(vec![Field::new("s", Struct(fields), true)])
        };
        assert!(unify(&[pair("x"), pair("X")]).is_err());
        assert!(unify(&[pair("x"), pair("y")]).is_ok());
    }
}

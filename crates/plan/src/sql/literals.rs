//! Numbers that a statement passes to functions of the user, as values of the declared types.
//!
//! A number in SQL is a bigint or a double. An argument that is declared smaller would refuse it,
//! although it has room for the value, and every call with a plain number would need a CAST.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::ControlFlow;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, TableFactor, UnaryOperator, Value, VisitMut, VisitorMut,
};

/// Declared types of arguments by the name of the function in lower case.
pub(crate) type Declared = HashMap<String, Vec<DataType>>;

/// Gives numbers the types that functions declare for them, where these represent them exactly.
pub(crate) fn typed(statement: &mut Statement, declared: &Declared) {
    if declared.is_empty() {
        return;
    }
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut Typing { declared });
    }
}

struct Typing<'a> {
    declared: &'a Declared,
}

impl VisitorMut for Typing<'_> {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr
            && let Some(types) = self.types(name)
        {
            give_types(&mut list.args, types);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        if let TableFactor::Function { name, args, .. } = factor
            && let Some(types) = self.types(name)
        {
            give_types(args, types);
        }
        ControlFlow::Continue(())
    }
}

impl Typing<'_> {
    fn types(&self, name: &ObjectName) -> Option<&[DataType]> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        self.declared.get(&name.value.to_lowercase()).map(Vec::as_slice)
    }
}

fn give_types(args: &mut [FunctionArg], types: &[DataType]) {
    for (argument, data_type) in args.iter_mut().zip(types) {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else { continue };
        let Some(digits) = number(value) else { continue };
        if represents(data_type, &digits) {
            *value = cast(&digits, data_type);
        } else if data_type.is_floating() && is_long(&digits) {
            // As a double it would be rounded before the call could look at it.
            *value = cast(&digits, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
        }
    }
}

/// The text of a number, with its sign.
fn number(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits.to_string()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(_) => Some(format!("-{}", number(expr)?)),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number that no bigint has, and a decimal does.
fn is_long(digits: &str) -> bool {
    let most = 10_u128.pow(u32::from(DECIMAL128_MAX_PRECISION));
    digits
        .parse::<i128>()
        .is_ok_and(|whole| i64::try_from(whole).is_err() && whole.unsigned_abs() < most)
}

/// Whether a type that is smaller than the number's own has its value. A `real` has every number
/// with a fraction as well as a double does: both round. A whole number must be exact.
fn represents(data_type: &DataType, digits: &str) -> bool {
    use DataType::*;
    match data_type {
        Int8 => digits.parse::<i8>().is_ok(),
        Int16 => digits.parse::<i16>().is_ok(),
        Int32 => digits.parse::<i32>().is_ok(),
        UInt8 => digits.parse::<u8>().is_ok(),
        UInt16 => digits.parse::<u16>().is_ok(),
        UInt32 => digits.parse::<u32>().is_ok(),
        UInt64 => digits.parse::<u64>().is_ok(),
        Float32 => digits.parse::<f32>().is_ok_and(|real| {
            let whole = digits.parse::<i128>();
            real.is_finite() && whole.map_or(true, |whole| real as i128 == whole)
        }),
        Decimal128(precision, scale) if *scale >= 0 => {
            fits_decimal(digits, usize::from(*precision), usize::from(scale.unsigned_abs()))
        }
        _ => false,
    }
}

fn fits_decimal(digits: &str, precision: usize, scale: usize) -> bool {
    let digits = digits.trim_start_matches('-');
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole_digits = whole.trim_start_matches('0').len();
    plain(whole)
        && plain(rest)
        && rest.trim_end_matches('0').len() <= scale
        && whole_digits + scale <= precision
}

/// `arrow_cast('1.5', 'Decimal128(10, 2)')`: of the text, which a decimal has exactly.
fn cast(digits: &str, data_type: &DataType) -> Expr {
    let text = |text: String| {
        let value = Expr::Value(Value::SingleQuotedString(text).into());
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
    };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("arrow_cast")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![text(digits.to_owned()), text(data_type.to_string())],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType::*;

    use super::{is_long, represents};

    #[test]
    fn a_whole_number_is_long_if_no_bigint_has_it() {
        for digits in ["9223372036854775808", "-9223372036854775809", "100000000000000000000"] {
            assert!(is_long(digits), "{digits}");
        }
        let longer = "1".repeat(39);
        for digits in ["1", "-9223372036854775808", "1.0", "1e30", "0.1", &longer] {
            assert!(!is_long(digits), "{digits}");
        }
    }

    #[test]
    fn a_number_has_a_smaller_type_that_represents_it() {
        for (data_type, digits) in [
            (Int32, "1"),
            (Int8, "-128"),
            (UInt64, "18446744073709551615"),
            (Float32, "0.1"),
            (Float32, "16777216"),
            (Float32, "-16777218"),
            (Decimal128(4, 2), "12.50"),
            (Decimal128(4, 2), "-99"),
            (Decimal128(4, 2), "0012.5000"),
        ] {
            assert!(represents(&data_type, digits), "{digits} as {data_type}");
        }
        for (data_type, digits) in [
            (Int32, "2147483648"),
            (Int8, "128"),
            (Int32, "1.0"),
            (UInt8, "-1"),
            (Float32, "1e300"),
            (Float32, "16777217"),
            (Float32, "18446744073709551617"),
            (Decimal128(4, 2), "100"),
            (Decimal128(4, 2), "1.005"),
            (Decimal128(4, 2), "1e1"),
            (Utf8, "1"),
        ] {
            assert!(!represents(&data_type, digits), "{digits} as {data_type}");
        }
    }
}

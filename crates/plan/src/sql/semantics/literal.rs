//! Literals of numbers and times, and their casts.
//!
//! A number with a point is a DOUBLE. One that is cast to a decimal or to an integer is meant as it
//! is written: 1.005 is exactly that, and rounds up. A timestamp WITH TIME ZONE has the zone UTC,
//! which DataFusion leaves out. A literal may lack its seconds, and may be outside of the years that
//! nanoseconds since 1970 can count.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, TimezoneInfo, UnaryOperator, Value,
};

use super::{call, cast, quoted};

/// The least BIGINT without its sign.
const LEAST_BIGINT: u128 = 1 << 63;

/// More digits have no exact type.
const MAX_DIGITS: usize = 38;

/// The cast of a number with a point to a decimal or to an integer.
pub(super) fn number(expr: &Expr, data_type: &DataType, kind: &CastKind) -> Option<Expr> {
    let digits = digits(expr)?;
    let (_, behind) = digits.split_once('.')?;
    if !digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-')) {
        return None;
    }
    if digits.len() > MAX_DIGITS {
        return None;
    }
    use DataType::*;
    match data_type {
        Decimal(_) | Numeric(_) | Dec(_) => {
            Some(cast(kind.clone(), quoted(&digits), data_type.clone()))
        }
        TinyInt(_) | SmallInt(_) | Int2(_) | Int(_) | Int4(_) | Int8(_) | Integer(_)
        | BigInt(_) => {
            let scale = behind.len();
            let whole = digits.chars().filter(char::is_ascii_digit).count();
            let exact = ExactNumberInfo::PrecisionAndScale(whole.max(1) as u64, scale as i64);
            let exact = cast(CastKind::Cast, quoted(&digits), Decimal(exact));
            Some(cast(kind.clone(), exact, data_type.clone()))
        }
        _ => None,
    }
}

/// A whole number that is larger than any BIGINT: a decimal, where the planner reads a number without a
/// sign, or a DOUBLE. What it computes of either and a BIGINT is a DOUBLE, which has 16 digits of it. The
/// least BIGINT is written as the sign of a number that none is.
pub(super) fn large(digits: &str) -> Option<Expr> {
    let is_whole = digits.chars().all(|c| c.is_ascii_digit()) && digits.len() <= MAX_DIGITS;
    let is_large = is_whole && digits.parse::<u128>().is_ok_and(|number| number > LEAST_BIGINT);
    let exact = ExactNumberInfo::PrecisionAndScale(MAX_DIGITS as u64, 0);
    is_large.then(|| cast(CastKind::Cast, quoted(digits), DataType::Decimal(exact)))
}

/// The text of a number, with its sign.
fn digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits.to_string()),
            _ => None,
        },
        Expr::Nested(inner) => digits(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let digits = digits(expr)?;
            (!digits.starts_with('-')).then(|| format!("-{digits}"))
        }
        _ => None,
    }
}

/// A cast to a timestamp that needs a zone, another unit or another text than the planner gives it.
pub(super) fn timestamp(expr: &Expr, data_type: &DataType, kind: &CastKind) -> Option<Expr> {
    let DataType::Timestamp(precision, zone) = data_type else { return None };
    let text = text(expr);
    let has_zone = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
    let complete = text.map(with_seconds);
    let is_far = text.is_some_and(is_far) && matches!(precision, None | Some(9));
    if !has_zone && !is_far && complete.as_deref() == text {
        return None;
    }
    let unit = match precision {
        Some(0) => "s",
        Some(3) => "ms",
        None | Some(9) if !is_far => "ns",
        None | Some(6 | 9) => "µs",
        Some(_) => return None,
    };
    let name = match has_zone {
        true => format!("Timestamp({unit}, \"+00:00\")"),
        false => format!("Timestamp({unit})"),
    };
    let function = match kind {
        CastKind::Cast | CastKind::DoubleColon => "arrow_cast",
        CastKind::TryCast | CastKind::SafeCast => "arrow_try_cast",
    };
    let value = complete.map_or_else(|| expr.clone(), |text| quoted(&text));
    Some(call(function, vec![value, quoted(&name)]))
}

/// A text in quotes.
pub(crate) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The bytes of a text that are the time of day in hours and minutes only.
const MINUTES: std::ops::Range<usize> = 11..16;

/// `2024-01-31 10:00` with its seconds.
fn with_seconds(text: &str) -> String {
    let bytes = text.trim().as_bytes();
    let digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let is = |place: usize, any: &[u8]| bytes.get(place).is_some_and(|byte| any.contains(byte));
    let has_minutes = is(4, b"-")
        && is(7, b"-")
        && is(10, b" T")
        && digit(MINUTES.start)
        && is(MINUTES.start + 2, b":")
        && digit(MINUTES.end - 1);
    let ends = bytes.len() == MINUTES.end || is(MINUTES.end, b"Z+- ");
    match (has_minutes && ends, text.trim().split_at_checked(MINUTES.end)) {
        (true, Some((minutes, zone))) => format!("{minutes}:00{zone}"),
        _ => text.to_owned(),
    }
}

/// The years that nanoseconds since 1970 have whole.
const NEAR: std::ops::RangeInclusive<u32> = 1678..=2261;

fn is_far(text: &str) -> bool {
    let year = text.trim().split('-').next().filter(|year| year.len() == 4);
    year.and_then(|year| year.parse().ok()).is_some_and(|year: u32| !NEAR.contains(&year))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_added_where_a_text_has_none() {
        for (text, expected) in [
            ("2024-01-31 10:00", "2024-01-31 10:00:00"),
            ("2024-01-31T10:00Z", "2024-01-31T10:00:00Z"),
            ("2024-01-31 10:00+02:00", "2024-01-31 10:00:00+02:00"),
            ("2024-01-31 10:00:05", "2024-01-31 10:00:05"),
            ("2024-01-31", "2024-01-31"),
            ("today", "today"),
            ("é", "é"),
        ] {
            assert_eq!(with_seconds(text), expected);
        }
    }

    #[test]
    fn years_beyond_nanoseconds_are_far() {
        assert!(is_far("9999-12-31") && is_far("1492-10-12 00:00:00"));
        assert!(!is_far("2024-01-31") && !is_far("today") && !is_far("1678-01-01"));
    }
}

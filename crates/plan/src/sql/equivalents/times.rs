//! Functions of dates and times.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Interval, TimezoneInfo, Value,
};

use super::functions::binary;
use super::text;
use crate::sql::semantics::{call, cast, quoted};

/// Functions that are a part of a time, by the names of the parts in PostgreSQL.
const PARTS: [(&str, &str); 13] = [
    ("day", "day"),
    ("dayofmonth", "day"),
    ("dayofweek", "dow"),
    ("dayofyear", "doy"),
    ("epoch", "epoch"),
    ("hour", "hour"),
    ("minute", "minute"),
    ("month", "month"),
    ("quarter", "quarter"),
    ("second", "second"),
    ("week", "week"),
    ("weekofyear", "week"),
    ("year", "year"),
];

/// The units of a difference, with their seconds.
const UNITS: [(&str, u32); 4] = [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86400)];

/// A call by its arguments.
pub(super) fn written(name: &str, args: &[Expr]) -> Option<Expr> {
    if let ([of], Some((_, part))) = (args, PARTS.iter().find(|(known, _)| *known == name)) {
        return Some(part_of(part, of));
    }
    match (name, args) {
        ("weekday", [of]) => Some(part_of("dow", of)),
        ("isoyear", [of]) => Some(part_of("isoyear", of)),
        ("isodow", [of]) => Some(from_monday(of)),
        ("date", [of]) => Some(cast(CastKind::Cast, of.clone(), DataType::Date)),
        ("dayname", [of]) => Some(call("to_char", vec![of.clone(), quoted("%A")])),
        ("monthname", [of]) => Some(call("to_char", vec![of.clone(), quoted("%B")])),
        ("date_add", [of, interval]) => {
            Some(binary(of.clone(), BinaryOperator::Plus, interval.clone()))
        }
        ("date_diff" | "datediff", [unit, from, to]) => difference(text(unit)?, from, to),
        ("date_sub" | "datesub", [unit, from, to]) => whole_units(text(unit)?, from, to),
        ("yearweek", [of]) => {
            let years = binary(part_of("isoyear", of), BinaryOperator::Multiply, number(100));
            Some(binary(years, BinaryOperator::Plus, part_of("week", of)))
        }
        ("decade", [of]) => years_in("decade", of),
        ("century", [of]) => years_in("century", of),
        ("millennium", [of]) => years_in("millennium", of),
        ("time_bucket", [width, of]) => bucket(width, of),
        ("time_bucket", [width, of, Expr::Interval(offset)]) => {
            let offset = Expr::Interval(offset.clone());
            let before = binary(of.clone(), BinaryOperator::Minus, offset.clone());
            Some(binary(bucket(width, &before)?, BinaryOperator::Plus, offset))
        }
        ("time_bucket", [width, of, origin]) => bucket_from(width, of, Some(origin)),
        ("last_day", [of]) => Some(last_day(of)),
        ("strftime", [of, format]) => {
            let format = quoted(&shown_format(text(format)?)?);
            Some(call("to_char", vec![timestamp(of.clone()), format]))
        }
        ("strptime", [of, format]) => parsed(of, text(format)?),
        _ => None,
    }
}

fn part_of(part: &str, of: &Expr) -> Expr {
    call("date_part", vec![quoted(part), of.clone()])
}

/// The day of the week, which is 1 on Monday and 7 on Sunday.
fn from_monday(of: &Expr) -> Expr {
    let sundays = binary(part_of("dow", of), BinaryOperator::Plus, number(6));
    let from_zero = binary(sundays, BinaryOperator::Modulo, number(7));
    binary(from_zero, BinaryOperator::Plus, number(1))
}

fn timestamp(of: Expr) -> Expr {
    // In microseconds, which years far from 1970 have, too.
    cast(CastKind::Cast, of, DataType::Timestamp(Some(6), TimezoneInfo::None))
}

fn number(digits: u32) -> Expr {
    Expr::Value(Value::Number(digits.to_string(), false).into())
}

fn bigint(of: Expr) -> Expr {
    cast(CastKind::Cast, of, DataType::BigInt(None))
}

/// How many borders of a unit are between two times, as in DuckDB.
fn difference(unit: &str, from: &Expr, to: &Expr) -> Option<Expr> {
    let unit = unit.to_lowercase();
    let unit = unit.strip_suffix('s').unwrap_or(&unit);
    let minus = |of: &dyn Fn(&Expr) -> Expr| binary(of(to), BinaryOperator::Minus, of(from));
    let whole = |part: &str, of: &Expr| bigint(part_of(part, of));
    let of_years = |part: &str, parts: u32, of: &Expr| {
        let years = binary(whole("year", of), BinaryOperator::Multiply, number(parts));
        binary(years, BinaryOperator::Plus, whole(part, of))
    };
    match unit {
        "year" => Some(minus(&|of| whole("year", of))),
        "quarter" => Some(minus(&|of| of_years("quarter", 4, of))),
        "month" => Some(minus(&|of| of_years("month", 12, of))),
        // Seven days, wherever they begin.
        "week" => {
            let days = difference("day", from, to)?;
            Some(binary(days, BinaryOperator::Divide, number(7)))
        }
        "millisecond" => Some(minus(&|of| call("epoch_ms", vec![timestamp(of.clone())]))),
        "microsecond" => Some(minus(&|of| call("epoch_us", vec![timestamp(of.clone())]))),
        unit => {
            let (_, seconds) = UNITS.iter().find(|(known, _)| *known == unit)?;
            let begin = |of: &Expr| {
                let begin = call("date_trunc", vec![quoted(unit), of.clone()]);
                bigint(part_of("epoch", &begin))
            };
            Some(binary(minus(&begin), BinaryOperator::Divide, number(*seconds)))
        }
    }
}

/// How many whole units are between two times, as in DuckDB.
fn whole_units(unit: &str, from: &Expr, to: &Expr) -> Option<Expr> {
    let unit = unit.to_lowercase();
    let unit = unit.strip_suffix('s').unwrap_or(&unit);
    let micros = match unit {
        "microsecond" => "1".to_owned(),
        "millisecond" => "1000".to_owned(),
        "week" => "604800000000".to_owned(),
        unit => {
            let (_, seconds) = UNITS.iter().find(|(known, _)| *known == unit)?;
            format!("{seconds}000000")
        }
    };
    let since = |of: &Expr| call("epoch_us", vec![timestamp(of.clone())]);
    let between = binary(since(to), BinaryOperator::Minus, since(from));
    let micros = Expr::Value(Value::Number(micros, false).into());
    Some(binary(between, BinaryOperator::Divide, micros))
}

/// Writes a part of a time that is counted in years, for years of our era. Centuries of a time
/// begin with 1. Centuries of an interval begin with 0, and are refused: an interval is no
/// timestamp.
pub(super) fn years_in(part: &str, of: &Expr) -> Option<Expr> {
    let (before, years) = match part {
        "decade" => (0, 10),
        "century" => (99, 100),
        "millennium" | "millenium" => (999, 1000),
        _ => return None,
    };
    let since = binary(
        bigint(part_of("year", &timestamp(of.clone()))),
        BinaryOperator::Plus,
        number(before),
    );
    Some(binary(since, BinaryOperator::Divide, number(years)))
}

/// The begin of the interval in which a time is. Intervals of months begin in January 2000, others on
/// the first Monday of that year.
fn bucket(width: &Expr, of: &Expr) -> Option<Expr> {
    bucket_from(width, of, None)
}

/// The begin of such an interval, where they begin at `origin`. Those of months begin with its month.
fn bucket_from(width: &Expr, of: &Expr, origin: Option<&Expr>) -> Option<Expr> {
    let Expr::Interval(Interval { value, leading_field, .. }) = width else { return None };
    let unit = match leading_field {
        Some(field) => field.to_string().to_lowercase(),
        None => text(value)?.to_lowercase(),
    };
    let of_months = ["mon", "quarter", "year", "decade", "centur"];
    let is_of_months = of_months.iter().any(|name| unit.contains(name));
    let is_of_days = ["day", "week", "hour", "min", "sec"].iter().any(|name| unit.contains(name));
    let origin = match (is_of_months, is_of_days, origin) {
        (true, false, None) => timestamp(quoted("2000-01-01 00:00:00")),
        (false, true, None) => timestamp(quoted("2000-01-03 00:00:00")),
        (true, false, Some(origin)) => {
            call("date_trunc", vec![quoted("month"), timestamp(origin.clone())])
        }
        (false, true, Some(origin)) => timestamp(origin.clone()),
        _ => return None,
    };
    Some(call("date_bin", vec![width.clone(), of.clone(), origin]))
}

/// The last day of the month.
fn last_day(of: &Expr) -> Expr {
    let month = call("date_trunc", vec![quoted("month"), of.clone()]);
    let next = binary(month, BinaryOperator::Plus, interval("1 month"));
    cast(CastKind::Cast, binary(next, BinaryOperator::Minus, interval("1 day")), DataType::Date)
}

fn interval(text: &str) -> Expr {
    Expr::Interval(Interval {
        value: Box::new(quoted(text)),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}

/// A format for writing times, in the notation of `to_char`. `None` if it has a part that means
/// something else there, or nothing.
fn shown_format(format: &str) -> Option<String> {
    const SAME: &str = "YmdHMSyjAaBbpIuwUWGV%";
    translated(format, |part| match part {
        "f" => Some("%6f".to_owned()),
        "g" => Some("%3f".to_owned()),
        part => is_one_of(SAME, part.strip_prefix('-').unwrap_or(part)).then(|| format!("%{part}")),
    })
}

/// A format with each of its parts, which is a letter or one behind a minus, replaced.
fn translated(format: &str, part: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut written = String::new();
    let mut rest = format;
    while let Some((before, behind)) = rest.split_once('%') {
        written.push_str(before);
        let flag = usize::from(behind.starts_with('-'));
        let letter = behind[flag..].chars().next().filter(char::is_ascii)?;
        let (this, left) = behind.split_at(flag + letter.len_utf8());
        written.push_str(&part(this)?);
        rest = left;
    }
    written.push_str(rest);
    Some(written)
}

fn is_one_of(letters: &str, part: &str) -> bool {
    part.len() == 1 && letters.contains(part)
}

/// A time that is read from a text by a format.
fn parsed(of: &Expr, format: &str) -> Option<Expr> {
    const DATES: &str = "YmdyjAaBb%";
    const TIMES: &str = "HMSpI";
    // The planner's parts for fractions have the point in them.
    let format = format.replace(".%f", "%.f").replace(".%g", "%.f");
    let rest = format.replace("%.f", "");
    translated(&rest, |part| is_one_of(&format!("{DATES}{TIMES}"), part).then(String::new))?;
    let has_times = format.contains("%.f")
        || TIMES.chars().any(|letter| rest.replace("%%", "").contains(&format!("%{letter}")));
    match has_times {
        true => Some(call("to_timestamp_micros", vec![of.clone(), quoted(&format)])),
        false => Some(timestamp(call("to_date", vec![of.clone(), quoted(&format)]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_translated_or_left() {
        for (format, expected) in [
            ("%Y-%m-%d %H:%M:%S.%f", Some("%Y-%m-%d %H:%M:%S.%6f")),
            ("%-d/%-m, 100%%", Some("%-d/%-m, 100%%")),
            ("é%gé", Some("é%3fé")),
            ("plain", Some("plain")),
            ("%c", None),
            ("%x", None),
            ("%", None),
            ("%-", None),
            ("%é", None),
        ] {
            assert_eq!(shown_format(format).as_deref(), expected, "{format}");
        }
    }
}

//! Intervals that the planner does not read: `'1 day 02:03:04'`, `'1-2'` and `'P1DT2H'` as in
//! PostgreSQL, and `INTERVAL (n) DAY` of a column.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Interval, Value};

use super::functions::binary;
use super::text;
use crate::sql::semantics::quoted;

/// An interval with its units in words. `None` if it is left as it is.
pub(super) fn written(interval: &Interval) -> Option<Expr> {
    let Interval { value, leading_field, last_field: None, leading_precision: None, .. } = interval
    else {
        return None;
    };
    let of_text = |text: &str| {
        Some(Expr::Interval(Interval {
            value: Box::new(quoted(text)),
            leading_field: None,
            ..interval.clone()
        }))
    };
    let Some(unit) = leading_field else { return of_text(&in_words(text(value)?)?) };
    match value.as_ref() {
        Expr::Value(value) => match &value.value {
            // The frames of windows need the unit in the text.
            Value::Number(digits, _) | Value::SingleQuotedString(digits) => {
                let digits = digits.to_string();
                let is_number = digits.trim().parse::<f64>().is_ok_and(f64::is_finite);
                is_number.then(|| of_text(&format!("{} {unit}", digits.trim()))).flatten()
            }
            _ => None,
        },
        value => {
            let one = of_text(&format!("1 {unit}"))?;
            Some(binary(value.clone(), BinaryOperator::Multiply, one))
        }
    }
}

/// The text of an interval with words for its units. `None` if it has them, or cannot be read here.
pub(super) fn in_words(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(designated) = text.strip_prefix('P') {
        return of_designators(designated);
    }
    let mut changed = false;
    let words = text.split_whitespace().map(|word| {
        let written = of_clock(word).or_else(|| of_years(word));
        changed |= written.is_some();
        written.unwrap_or_else(|| word.to_owned())
    });
    let words: Vec<String> = words.collect();
    changed.then(|| words.join(" "))
}

/// The sign of a word, and what is behind it.
fn signed(word: &str) -> (&str, &str) {
    match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    }
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `02:03:04.5`, and `02:03` of hours and minutes.
fn of_clock(word: &str) -> Option<String> {
    let (sign, word) = signed(word);
    let parts: Vec<&str> = word.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, *seconds),
        _ => return None,
    };
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let is_time = [hours, minutes, whole, fraction].into_iter().all(is_number)
        && minutes.parse::<u32>().is_ok_and(|minutes| minutes < 60)
        && whole.parse::<u32>().is_ok_and(|seconds| seconds < 60);
    is_time.then(|| {
        format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{whole}.{fraction} seconds")
    })
}

/// `1-2`, of years and months.
fn of_years(word: &str) -> Option<String> {
    let (sign, word) = signed(word);
    let (years, months) = word.split_once('-')?;
    let is_valid = is_number(years)
        && is_number(months)
        && months.parse::<u32>().is_ok_and(|months| months < 12);
    is_valid.then(|| format!("{sign}{years} years {sign}{months} months"))
}

/// The units and numbers behind the `P` of ISO 8601: `1Y2M3DT4H5M6S`.
fn of_designators(text: &str) -> Option<String> {
    const DATES: [(char, &str); 4] =
        [('Y', "years"), ('M', "months"), ('W', "weeks"), ('D', "days")];
    const TIMES: [(char, &str); 3] = [('H', "hours"), ('M', "minutes"), ('S', "seconds")];
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let mut words = Vec::new();
    for (part, units) in [(date, DATES.as_slice()), (time, TIMES.as_slice())] {
        let mut rest = part;
        while let Some(end) = rest.find(|letter: char| letter.is_ascii_alphabetic()) {
            let (number, behind) = rest.split_at(end);
            let (_, digits) = signed(number);
            let letter = behind.chars().next()?;
            let (_, unit) = units.iter().find(|(known, _)| *known == letter)?;
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
            if !is_number(whole) || !is_number(fraction) {
                return None;
            }
            words.push(format!("{} {unit}", number.trim_start_matches('+')));
            rest = &behind[letter.len_utf8()..];
        }
        if !rest.is_empty() {
            return None;
        }
    }
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_written_in_words() {
        for (text, expected) in [
            ("1:30", Some("1 hours 30 minutes 0.0 seconds")),
            ("1 day -02:03:04.5", Some("1 day -02 hours -03 minutes -04.5 seconds")),
            ("-1-2", Some("-1 years -2 months")),
            ("P1Y2M3DT4H5M6.5S", Some("1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds")),
            ("PT-2H", Some("-2 hours")),
            ("1 day", None),
            ("1:60", None),
            ("1:2:3:4", None),
            ("1-12", None),
            ("P", None),
            ("P1", None),
            ("é-é", None),
        ] {
            assert_eq!(in_words(text).as_deref(), expected, "{text}");
        }
    }
}

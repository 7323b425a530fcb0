//! How the values of a CSV file are written: decimal commas, thousands, dates and times.

use std::borrow::Cow;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::{DataType, Date32Type};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use serde::{Deserialize, Serialize};

use super::day_form::{DayForm, Moment, is_exact};

/// The notation of numbers and times that a query gives; all else is as usual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notation {
    /// The character before the fraction of a number.
    pub decimal: char,
    /// The character between thousands.
    pub thousands: Option<char>,
    /// The format of dates, in the form of chrono.
    pub date: Option<String>,
    /// The format of timestamps.
    pub time: Option<String>,
}

/// The spaces that French writes between thousands.
const NARROW: [char; 2] = ['\u{a0}', '\u{202f}'];

impl Default for Notation {
    fn default() -> Self {
        Self { decimal: '.', thousands: None, date: None, time: None }
    }
}

impl Notation {
    /// True if numbers are written as usual.
    pub(crate) fn has_plain_numbers(&self) -> bool {
        self.decimal == '.' && self.thousands.is_none()
    }

    /// Returns a number as it is usually written. `None` for a value that is no number in this
    /// notation: a thousands separator stands between groups of three digits only.
    pub fn plain<'v>(&self, value: &'v str) -> Option<Cow<'v, str>> {
        if self.has_plain_numbers() {
            return Some(Cow::Borrowed(value));
        }
        if self.thousands == Some(' ') && value.contains(NARROW) {
            let found = self.plain(&value.replace(NARROW, " "))?.into_owned();
            return Some(Cow::Owned(found));
        }
        let (sign, digits) = match value.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", value),
        };
        let (whole, fraction) = match digits.split_once(self.decimal) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (digits, None),
        };
        let has_other = |part: &str| part.contains(['.', ',', '\'', ' ', '_']);
        let whole: Cow<'_, str> = match self.thousands {
            Some(mark) if whole.contains(mark) => Cow::Owned(joined(whole, mark)?),
            _ => Cow::Borrowed(whole),
        };
        if has_other(&whole) || fraction.is_some_and(has_other) {
            return None;
        }
        Some(match fraction {
            Some(fraction) => format!("{sign}{whole}.{fraction}").into(),
            None => format!("{sign}{whole}").into(),
        })
    }

    /// Whether values of a type are read in this notation, and not as usual.
    pub(crate) fn concerns(&self, data_type: &DataType) -> bool {
        match data_type {
            // A decimal is rounded to its digits; the decoder would cut it.
            DataType::Decimal128(..) => true,
            number if number.is_numeric() => !self.has_plain_numbers(),
            DataType::Date32 => self.date.is_some(),
            DataType::Timestamp(..) => self.date.is_some() || self.time.is_some(),
            _ => false,
        }
    }

    /// Returns the moment that a value of a column says. If the query gives a format, only this one
    /// is read. Otherwise `form` is the form of the column, and without a form the value is as in
    /// ISO 8601.
    pub fn moment(&self, value: &str, form: Option<DayForm>) -> Option<Moment> {
        let time = self.time.as_deref().and_then(|format| given_time(value, format));
        let date = || self.date.as_deref().and_then(|format| given_date(value, format));
        if let Some(found) = time.or_else(date) {
            return Some(found);
        }
        let found = match form {
            Some(form) => form.moment(value),
            None => iso(value),
        };
        found.filter(|(_, clock)| match clock {
            true => self.time.is_none(),
            false => self.date.is_none(),
        })
    }
}

/// A whole number without the marks between its thousands.
fn joined(whole: &str, mark: char) -> Option<String> {
    let mut groups = whole.split(mark);
    let first = groups.next()?;
    let are_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let fits = (1..=3).contains(&first.len()) && are_digits(first);
    let all = fits && groups.all(|group| group.len() == 3 && are_digits(group));
    all.then(|| whole.replace(mark, ""))
}

fn given_time(value: &str, format: &str) -> Option<Moment> {
    let moment = match format.contains("%z") {
        true => DateTime::parse_from_str(value, format).ok()?.naive_utc(),
        false => NaiveDateTime::parse_from_str(value, format).ok()?,
    };
    is_exact(&moment).then_some((moment, true))
}

fn given_date(value: &str, format: &str) -> Option<Moment> {
    let date = NaiveDate::parse_from_str(value, format).ok()?;
    Some((date.and_time(NaiveTime::MIN), false))
}

fn iso(value: &str) -> Option<Moment> {
    if value.len() == 10 {
        let days = Date32Type::parse(value)?;
        let date = Date32Type::to_naive_date_opt(days)?;
        return Some((date.and_time(NaiveTime::MIN), false));
    }
    let utc: Tz = "+00:00".parse().ok()?;
    let moment = string_to_datetime(&utc, value).ok()?.naive_utc();
    is_exact(&moment).then_some((moment, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_marks_of_their_notation() {
        let of = |decimal, thousands| Notation { decimal, thousands, ..Notation::default() };
        let german = of(',', Some('.'));
        for (notation, value, expected) in [
            (&german, "1.234.567,89", Some("1234567.89")),
            (&german, "-1,5", Some("-1.5")),
            (&german, "12", Some("12")),
            (&german, "1.5", None),
            (&german, "1.234,5.6", None),
            (&german, "1234.567", None),
            (&of(',', None), "1,5e-3", Some("1.5e-3")),
            (&of(',', None), "1.5", None),
            (&of('.', Some(',')), "1,234.5", Some("1234.5")),
            (&of('.', Some(',')), "1,5", None),
            (&of('.', Some(',')), ",123", None),
            (&of('.', Some('\'')), "1'000", Some("1000")),
            (&of(',', Some(' ')), "1\u{202f}234\u{a0}567,5", Some("1234567.5")),
            (&of(',', Some(' ')), "1 23,5", None),
            (&Notation::default(), "1,5", Some("1,5")),
        ] {
            assert_eq!(notation.plain(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_format_is_the_only_one_of_its_kind() {
        let text = |moment: Option<Moment>| moment.map(|(moment, _)| moment.to_string());
        let dates = Notation { date: Some("%d.%m.%Y".to_owned()), ..Notation::default() };
        let found = |value: &str| text(dates.moment(value, None));
        assert_eq!(found("01.02.2024").as_deref(), Some("2024-02-01 00:00:00"));
        assert_eq!(found("2024-02-01"), None);
        assert_eq!(found("2024-02-01 10:00:00").as_deref(), Some("2024-02-01 10:00:00"));
        let zoned = Notation { time: Some("%d/%m/%Y %H:%M %z".to_owned()), ..Notation::default() };
        let found = text(zoned.moment("01/02/2024 12:00 +0200", None));
        assert_eq!(found.as_deref(), Some("2024-02-01 10:00:00"));
        let parts = Notation { time: Some("%Y %H:%M:%S%.f".to_owned()), ..Notation::default() };
        assert_eq!(text(parts.moment("2024 10:00:00.1234567", None)), None);
    }
}

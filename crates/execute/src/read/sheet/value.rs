//! The values of cells. What is a date is told by the format of its cell.

use std::borrow::Cow;

use calamine::{CellErrorType, DataRef, ExcelDateTime, Style};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

/// The first number that is no date: the day after 9999-12-31.
const END_OF_DATES: f64 = 2_958_466.0;

/// The value of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum CellValue<'v> {
    /// A number, also a whole one.
    Number(f64),
    /// A logical value.
    Bool(bool),
    /// A number that its format shows as a day.
    Date(NaiveDate),
    /// A number that its format shows as a day with a time.
    Moment(NaiveDateTime),
    /// A number that its format shows as a time of day.
    Time(NaiveTime),
    /// A text.
    Text(Cow<'v, str>),
    /// An error of a formula.
    Error(CellErrorType),
}

/// The content that a format of dates shows: a day, a time of day, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    Date,
    Time,
    #[default]
    Moment,
}

impl Form {
    /// Returns the form that a cell's style shows.
    pub(super) fn of(style: &Style) -> Self {
        style
            .number_format
            .as_ref()
            .map_or(Self::Moment, |format| Self::of_code(&format.format_code))
    }

    fn of_code(code: &str) -> Self {
        let mut date = false;
        let mut time = false;
        let mut characters = code.chars();
        while let Some(c) = characters.next() {
            match c {
                '"' => _ = characters.find(|c| *c == '"'),
                '[' => _ = characters.find(|c| *c == ']'),
                '\\' | '_' | '*' => _ = characters.next(),
                'd' | 'D' | 'y' | 'Y' => date = true,
                'h' | 'H' | 's' | 'S' => time = true,
                _ => (),
            }
        }
        match (date, time) {
            (true, true) => Self::Moment,
            (false, true) => Self::Time,
            (_, false) => Self::Date,
        }
    }
}

impl<'v> CellValue<'v> {
    /// The value of a cell, unless it is empty.
    pub(super) fn of(cell: &DataRef<'v>, form: Form) -> Option<Self> {
        let text = |text: &str| (!text.is_empty()).then(|| Self::Text(text.to_owned().into()));
        match cell {
            DataRef::Empty => None,
            DataRef::Int(number) => Some(Self::Number(*number as f64)),
            DataRef::Float(number) => Some(Self::Number(*number)),
            DataRef::Bool(truth) => Some(Self::Bool(*truth)),
            DataRef::SharedString("") => None,
            DataRef::SharedString(shared) => Some(Self::Text(Cow::Borrowed(*shared))),
            DataRef::String(own) | DataRef::DurationIso(own) => text(own),
            DataRef::DateTimeIso(written) => iso(written).or_else(|| text(written)),
            DataRef::DateTime(date) => Some(Self::of_date(date, form)),
            DataRef::Error(error) => Some(Self::Error(error.clone())),
        }
    }

    fn of_date(date: &ExcelDateTime, form: Form) -> Self {
        let number = date.as_f64();
        let inside = (0.0..END_OF_DATES).contains(&number) && date.is_datetime();
        let Some(moment) = inside.then(|| date.as_datetime()).flatten() else {
            return Self::Number(number);
        };
        match form {
            Form::Time if number < 1.0 => Self::Time(moment.time()),
            Form::Date if moment.time() == NaiveTime::MIN => Self::Date(moment.date()),
            _ => Self::Moment(moment),
        }
    }

    /// The value as a text.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Bool(truth) => truth.to_string().into(),
            Self::Date(date) => date.to_string().into(),
            Self::Moment(moment) => moment.format("%Y-%m-%d %H:%M:%S%.f").to_string().into(),
            Self::Time(time) => time.format("%H:%M:%S%.f").to_string().into(),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Error(error) => error.to_string().into(),
        }
    }

    /// Returns the bytes of a text, which may be long, and 0 for other values.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            _ => 0,
        }
    }
}

fn iso<'v>(text: &str) -> Option<CellValue<'v>> {
    let plain = text.strip_suffix('Z').unwrap_or(text);
    if let Ok(date) = plain.parse() {
        return Some(CellValue::Date(date));
    }
    if let Ok(moment) = plain.parse() {
        return Some(CellValue::Moment(moment));
    }
    plain.parse().ok().map(CellValue::Time)
}

#[cfg(test)]
mod tests {
    use calamine::ExcelDateTimeType;

    use super::*;

    #[test]
    fn formats_tell_dates_from_times() {
        for (code, form) in [
            ("yyyy-mm-dd", Form::Date),
            ("d/m/yy h:mm", Form::Moment),
            ("hh:mm:ss AM/PM", Form::Time),
            ("[$-409]mmm", Form::Date),
            ("\"hours\" dd", Form::Date),
            ("\\s dd", Form::Date),
        ] {
            assert_eq!(Form::of_code(code), form, "{code}");
        }
    }

    #[test]
    fn numbers_outside_of_dates_stay_numbers() {
        let of = |number, form| {
            let kind = ExcelDateTimeType::DateTime;
            CellValue::of_date(&ExcelDateTime::new(number, kind, false), form).text().into_owned()
        };
        assert_eq!(of(45943.0, Form::Date), "2025-10-13");
        assert_eq!(of(45943.0, Form::Moment), "2025-10-13 00:00:00");
        assert_eq!(of(45943.5, Form::Date), "2025-10-13 12:00:00");
        assert_eq!(of(0.25, Form::Time), "06:00:00");
        for number in [-1.0, f64::MIN, f64::MAX, END_OF_DATES] {
            assert_eq!(of(number, Form::Date), number.to_string());
        }
        assert_eq!(of(f64::NAN, Form::Date), "NaN");
        assert_eq!(iso("2024-02-03T04:05:06Z").map(|time| time.text().into_owned()), {
            Some("2024-02-03 04:05:06".to_owned())
        });
    }
}

//! Dates that are not written as in ISO 8601: `31.12.2024`, `12/31/2024 11:59 PM`, `2024/12/31`.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use serde::{Deserialize, Serialize};

/// A moment, and whether its text says a time of day.
pub type Moment = (NaiveDateTime, bool);

/// A form of dates: the order of day, month and year, and the character between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayForm {
    order: DateOrder,
    separator: char,
}

/// The order of the parts of a date, by whether day, month or year is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DateOrder {
    Day,
    Month,
    Year,
}

impl DayForm {
    /// Returns the forms in which a value is a date, with or without a time behind it. All have one
    /// separator; there are several if the order cannot be told.
    pub fn of(value: &str) -> Vec<Self> {
        let separator = value.chars().find(|c| !c.is_ascii_digit());
        let Some(separator @ ('.' | '/' | '-')) = separator else { return Vec::new() };
        let orders = [DateOrder::Day, DateOrder::Month, DateOrder::Year];
        let forms = orders.map(|order| Self { order, separator });
        forms.into_iter().filter(|form| form.moment(value).is_some()).collect()
    }

    /// The moment that a value says in this form.
    pub fn moment(self, value: &str) -> Option<Moment> {
        let (date, clock) = match value.split_once([' ', 'T']) {
            Some((date, clock)) => (date, Some(clock)),
            None => (value, None),
        };
        let date = self.date(date)?;
        match clock {
            None => Some((date.and_time(NaiveTime::MIN), false)),
            Some(clock) => {
                let moment = NaiveDateTime::new(date, time(clock)?);
                is_exact(&moment).then_some((moment, true))
            }
        }
    }

    fn date(self, text: &str) -> Option<NaiveDate> {
        let mut parts = text.split(self.separator);
        let first = parts.next()?;
        let second = parts.next()?;
        let third = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let short = 1..=2;
        let (year, month, day) = match self.order {
            DateOrder::Day => {
                (number(third, 4..=4)?, number(second, short.clone())?, number(first, short)?)
            }
            DateOrder::Month => {
                (number(third, 4..=4)?, number(first, short.clone())?, number(second, short)?)
            }
            // With fewer digits it may be a version, such as 2024.1.2; with dashes it is ISO 8601.
            DateOrder::Year if self.separator == '-' => return None,
            DateOrder::Year => {
                (number(first, 4..=4)?, number(second, 2..=2)?, number(third, 2..=2)?)
            }
        };
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)
    }
}

/// True if a moment has whole microseconds, as timestamps have here. More digits would be lost.
pub(crate) fn is_exact(moment: &NaiveDateTime) -> bool {
    moment.and_utc().timestamp_subsec_nanos().is_multiple_of(1000)
}

/// Reads a number whose count of digits is in a range.
fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let fits = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// A time of day: `7:05`, `23:59:59.5`, `11:59:59 PM`.
fn time(text: &str) -> Option<NaiveTime> {
    let (clock, half) = match text.split_once(' ') {
        Some((clock, half)) => (clock, Some(half)),
        None => (text, None),
    };
    let mut parts = clock.split(':');
    let hour = number(parts.next()?, 1..=2)?;
    let minute = number(parts.next()?, 2..=2)?;
    let (second, nanos) = match parts.next().map(|last| last.split_once('.').unwrap_or((last, "")))
    {
        Some((second, "")) => (number(second, 2..=2)?, 0),
        Some((second, fraction)) => {
            let digits = number(fraction, 1..=9)?;
            (number(second, 2..=2)?, digits * 10_u32.pow(9 - fraction.len() as u32))
        }
        None => (0, 0),
    };
    let hour = match half.map(str::to_ascii_uppercase).as_deref() {
        None => hour,
        Some("AM") if (1..=12).contains(&hour) => hour % 12,
        Some("PM") if (1..=12).contains(&hour) => hour % 12 + 12,
        Some(_) => return None,
    };
    let time = NaiveTime::from_hms_nano_opt(hour, minute, second, nanos);
    time.filter(|_| parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_in_which_a_value_is_a_date() {
        use DateOrder::*;
        for (value, orders) in [
            ("31.12.2024", &[Day][..]),
            ("12/31/2024", &[Month]),
            ("1/2/2024", &[Day, Month]),
            ("29-02-2024 10:00", &[Day]),
            ("2024/12/31", &[Year]),
            ("2024.12.31 23:59:59.123456", &[Year]),
            ("12/31/2024 11:59:59 PM", &[Month]),
            ("2024.1.2", &[]),
            ("2024-12-31", &[]),
            ("30.02.2024", &[]),
            ("31.12.24", &[]),
            ("31.12/2024", &[]),
            ("1.2.3.2024", &[]),
            ("31.12.2024 24:00", &[]),
            ("31.12.2024 13:00 PM", &[]),
            ("31.12.2024 10:00:00.1234567", &[]),
            ("31.12.2024 ", &[]),
            ("10.0.0.1", &[]),
            ("", &[]),
        ] {
            let found: Vec<DateOrder> = DayForm::of(value).iter().map(|form| form.order).collect();
            assert_eq!(found, orders, "{value}");
        }
    }

    #[test]
    fn moments_are_read_in_the_order_of_the_form() {
        let text = |order, value: &str| {
            let separator = value.chars().find(|c| !c.is_ascii_digit()).unwrap();
            DayForm { order, separator }.moment(value).map(|(moment, _)| moment.to_string())
        };
        assert_eq!(text(DateOrder::Day, "1/2/2024").unwrap(), "2024-02-01 00:00:00");
        assert_eq!(text(DateOrder::Month, "1/2/2024 12:05 AM").unwrap(), "2024-01-02 00:05:00");
        assert_eq!(
            text(DateOrder::Year, "2024/01/02T07:05:01.25").unwrap(),
            "2024-01-02 07:05:01.250"
        );
        assert_eq!(text(DateOrder::Month, "13/2/2024"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_date_or_not(value in "[0-9]{1,4}[./-][0-9]{1,3}[./-][0-9]{0,5}[ T]?[0-9:.APMé ]{0,15}") {
            DayForm::of(&value);
        }
    }
}

//! The type that the values of a CSV column have in common.

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::{DataType, Date32Type, TimeUnit};
use snowmelt_execute::read::{DayForm, Notation};

/// Length of a date.
const DATE: usize = 10;

/// Values that were seen, and the narrowest type that holds them without loss.
#[derive(Clone, Debug, Default)]
pub(super) struct Guess {
    kind: Option<Kind>,
    /// True if a value has a line break.
    pub(super) breaks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
    Date,
    Time {
        nanos: bool,
        zone: bool,
    },
    /// Dates of other forms than ISO 8601, and whether some have a time of day. With several forms
    /// day and month cannot be told apart.
    Days {
        forms: Vec<DayForm>,
        clock: bool,
    },
    Text,
}

impl Guess {
    /// Adds a value.
    pub(super) fn add(&mut self, value: &str, notation: &Notation) {
        self.breaks |= value.contains('\n');
        self.kind = Some(match self.kind.take() {
            Some(Kind::Text) => Kind::Text,
            None => kind_of(value, notation),
            Some(kind) => both(kind, kind_of(value, notation)),
        });
    }

    /// Whether another value has the type of the values that were seen. `None` if it cannot be
    /// told, because the value or the seen ones may be any text.
    pub(super) fn agrees(&self, value: &str, notation: &Notation) -> Option<bool> {
        let kind = self.kind.clone().filter(|kind| *kind != Kind::Text && !value.is_empty())?;
        Some(both(kind, kind_of(value, notation)) != Kind::Text)
    }

    /// The form of dates, if it is the only one that fits.
    pub(super) fn day_form(&self) -> Option<DayForm> {
        match &self.kind {
            Some(Kind::Days { forms, .. }) if forms.len() == 1 => Some(forms[0]),
            _ => None,
        }
    }

    /// True if no value was seen.
    pub(super) fn is_empty(&self) -> bool {
        self.kind.is_none()
    }

    /// True for a value of no other type than text.
    pub(super) fn is_text(value: &str, notation: &Notation) -> bool {
        kind_of(value, notation) == Kind::Text
    }

    /// The type; null if there was no value.
    pub(super) fn data_type(&self) -> DataType {
        match &self.kind {
            None => DataType::Null,
            Some(Kind::Bool) => DataType::Boolean,
            Some(Kind::Int) => DataType::Int64,
            Some(Kind::Float) => DataType::Float64,
            Some(Kind::Date) => DataType::Date32,
            Some(Kind::Time { nanos, zone }) => {
                let unit = if *nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
                DataType::Timestamp(unit, zone.then(|| "+00:00".into()))
            }
            Some(Kind::Days { forms, clock }) if forms.len() == 1 => match clock {
                true => DataType::Timestamp(TimeUnit::Microsecond, None),
                false => DataType::Date32,
            },
            // As a date, 01.02.2024 could become another day.
            Some(Kind::Days { .. } | Kind::Text) => DataType::Utf8,
        }
    }
}

fn both(a: Kind, b: Kind) -> Kind {
    match (a, b) {
        (a, b) if a == b => a,
        (Kind::Int, Kind::Float) | (Kind::Float, Kind::Int) => Kind::Float,
        (Kind::Date, time @ Kind::Time { zone: false, .. })
        | (time @ Kind::Time { zone: false, .. }, Kind::Date) => time,
        (Kind::Time { zone: a, .. }, Kind::Time { zone: b, .. }) if a == b => {
            Kind::Time { nanos: true, zone: a }
        }
        (Kind::Days { mut forms, clock: a }, Kind::Days { forms: others, clock: b }) => {
            forms.retain(|form| others.contains(form));
            match forms.is_empty() {
                true => Kind::Text,
                false => Kind::Days { forms, clock: a || b },
            }
        }
        _ => Kind::Text,
    }
}

fn kind_of(value: &str, notation: &Notation) -> Kind {
    if let Some(given) = given_time(value, notation) {
        return given;
    }
    match value.as_bytes().first() {
        Some(b'0'..=b'9' | b'-' | b'.' | b',') => {}
        Some(b't' | b'T' | b'f' | b'F') if is_bool(value) => return Kind::Bool,
        _ => return Kind::Text,
    }
    let number = notation.plain(value).and_then(|plain| number(&plain));
    number.or_else(|| usual_time(value, notation)).unwrap_or(Kind::Text)
}

/// A value in a format that the query gives.
fn given_time(value: &str, notation: &Notation) -> Option<Kind> {
    if notation.date.is_none() && notation.time.is_none() {
        return None;
    }
    let only = |date: bool, time: bool| Notation {
        date: notation.date.clone().filter(|_| date),
        time: notation.time.clone().filter(|_| time),
        ..Notation::default()
    };
    let dates = only(true, false);
    let times = only(false, true);
    if let Some(format) = &notation.time
        && times.moment(value, None).is_some_and(|(_, clock)| clock)
    {
        return Some(Kind::Time { nanos: false, zone: format.contains("%z") });
    }
    let date = notation.date.is_some().then(|| dates.moment(value, None)).flatten();
    date.filter(|(_, clock)| !clock).map(|_| Kind::Date)
}

/// A value in another form, if the query gives no format for its kind.
fn usual_time(value: &str, notation: &Notation) -> Option<Kind> {
    let found = time(value).or_else(|| {
        let forms = DayForm::of(value);
        let clock = forms.first()?.moment(value)?.1;
        Some(Kind::Days { forms, clock })
    });
    found.filter(|kind| match kind {
        Kind::Date | Kind::Days { clock: false, .. } => notation.date.is_none(),
        _ => notation.time.is_none(),
    })
}

fn is_bool(value: &str) -> bool {
    value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")
}

/// Numbers as they are usually written. `007` is a text: as a number it would lose its zeros; so is
/// an integer that no `BIGINT` holds, which would lose digits.
fn number(value: &str) -> Option<Kind> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let padded =
        digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    if padded || !digits.bytes().next()?.is_ascii_digit() && !digits.starts_with('.') {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse::<i64>().ok().filter(|_| value != "-0").map(|_| Kind::Int);
    }
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite())?;
    (value.bytes().all(plain) && number.is_finite()).then_some(Kind::Float)
}

fn time(value: &str) -> Option<Kind> {
    let shape = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    let date = value.get(..DATE)?;
    if !date.bytes().enumerate().all(shape) {
        return None;
    }
    Date32Type::parse(date)?;
    let Some(rest) = value[DATE..].strip_prefix([' ', 'T']) else {
        return (value.len() == DATE).then_some(Kind::Date);
    };
    let clock = rest.trim_end_matches(['Z', 'z']);
    let (clock, offset) = match clock.find(['+', '-']) {
        Some(at) => clock.split_at(at),
        None => (clock, ""),
    };
    let is_clock = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    let utc: Tz = "+00:00".parse().ok()?;
    if !clock.bytes().all(is_clock) || string_to_datetime(&utc, value).is_err() {
        return None;
    }
    let fraction = clock.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let zone = !offset.is_empty() || rest.ends_with(['Z', 'z']);
    Some(Kind::Time { nanos: fraction > 6, zone })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(values: &[&str]) -> DataType {
        let mut guess = Guess::default();
        values.iter().for_each(|value| guess.add(value, &Notation::default()));
        guess.data_type()
    }

    #[test]
    fn types_hold_all_values_without_loss() {
        use DataType::*;
        let micro = |zone: Option<&str>| Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let nano = Timestamp(TimeUnit::Nanosecond, Option::None);
        for (values, expected) in [
            (&[][..], Null),
            (&["1", "-20", "0"], Int64),
            (&["1", "2.5", "-1e3", ".5"], Float64),
            (&["007"], Utf8),
            (&["-0"], Utf8),
            (&["9223372036854775808"], Utf8),
            (&["1", "x"], Utf8),
            (&["1", "true"], Utf8),
            (&["+4915112"], Utf8),
            (&["nan"], Utf8),
            (&["1e999"], Utf8),
            (&["1-2"], Utf8),
            (&["-"], Utf8),
            (&["true", "FALSE"], Boolean),
            (&["2024-02-29"], Date32),
            (&["2023-02-29"], Utf8),
            (&["2024-02-29", "2024-01-01 10:00:00"], micro(None)),
            (&["2024-01-01T10:00:00.123456"], micro(None)),
            (&["2024-01-01T10:00:00.1234567", "2024-01-01"], nano.clone()),
            (&["2024-01-01T10:00:00Z", "2024-01-01 10:00:00+02:00"], micro(Some("+00:00"))),
            (&["2024-01-01T10:00:00Z", "2024-01-01 10:00:00"], Utf8),
            (&["2024-01-01 25:00:00"], Utf8),
            (&["2024-01-01 noon"], Utf8),
            (&["9999-12-31 00:00:00"], micro(None)),
            (&["31.12.2024", "1.2.2024"], Date32),
            (&["12/31/2024", "01/02/2024 11:00 PM"], micro(None)),
            (&["2024/12/31"], Date32),
            (&["01.02.2024", "03.04.2024"], Utf8),
            (&["31.12.2024", "12.31.2024"], Utf8),
            (&["31.12.2024", "31/12/2024"], Utf8),
            (&["31.12.2024", "2024-12-31"], Utf8),
            (&["31.12.2024", "x"], Utf8),
        ] {
            assert_eq!(guess(values), expected, "{values:?}");
        }
    }

    #[test]
    fn notations_are_those_of_the_query() {
        let notation = |date: Option<&str>, time: Option<&str>| Notation {
            decimal: ',',
            thousands: Some('.'),
            date: date.map(str::to_owned),
            time: time.map(str::to_owned),
        };
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (values, date, expected) in [
            (&["1.234,5", "7"][..], None, DataType::Float64),
            (&["1.234", "7"], None, DataType::Int64),
            (&["1.5"], None, DataType::Utf8),
            (&["01.02.2024"], Some("%d.%m.%Y"), DataType::Date32),
            (&["2024-02-01"], Some("%d.%m.%Y"), DataType::Utf8),
            (&["01.02.2024", "01.02.2024 7h10"], Some("%d.%m.%Y"), time),
        ] {
            let notation = notation(date, Some("%d.%m.%Y %Hh%M"));
            let mut guess = Guess::default();
            values.iter().for_each(|value| guess.add(value, &notation));
            assert_eq!(guess.data_type(), expected, "{values:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_value_has_a_type(value in ".{0,30}", time in "2024-0[0-9]-1[ T]?[0-9:.Zz+-]{0,12}") {
            let _ = (guess(&[&value]), guess(&[&time]));
        }
    }
}

//! Formatting of amounts, times and untrusted text.
//!
//! Invariant: text from user code or data is passed through [`visible`] before it is shown on a
//! terminal, so that it cannot contain control sequences.

use std::borrow::Cow;
use std::time::Duration;

/// `1_234_567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with its noun: `1 row`, `2 rows`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A duration with three digits: `812 µs`, `4.25 s`, `3 min 20 s`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 0.001 => format!("{} µs", time.as_micros()),
        _ if seconds < 0.01 => format!("{:.2} ms", seconds * 1e3),
        _ if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 60.0 => format!("{seconds:.2} s"),
        _ if seconds < 3600.0 => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        _ => format!("{} h {} min", time.as_secs() / 3600, time.as_secs() / 60 % 60),
    }
}

/// A duration in microseconds, with three digits.
pub fn micros(micros: u64) -> String {
    time(Duration::from_micros(micros))
}

/// An amount of US dollars with two digits that count: `$0.000012`, `$1.20`, `$340.00`.
pub fn dollars(amount: f64) -> String {
    if amount <= 0.0 {
        return "$0".to_owned();
    }
    let digits = 1 - amount.log10().floor() as i32;
    format!("${amount:.*}", digits.clamp(2, 12) as usize)
}

/// A duration in the syntax of settings: `90s`, `250ms`.
pub fn setting(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// The time since a moment, given in milliseconds since 1970.
pub fn ago(then_ms: u64) -> String {
    let seconds = now_ms().saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// A time in milliseconds since 1970, as `2026-11-21 22:05:31 UTC`.
pub fn moment(ms: u64) -> String {
    let days = ms / 86_400_000;
    let second = ms / 1000 % 86_400;
    let (year, month, day) = civil(days);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// The current time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// The system's error message, without its number and without paths that the user did not name.
pub fn reason(error: &std::io::Error) -> String {
    let shown = error.to_string();
    let shown = shown.split(" at path ").next().unwrap_or_default();
    shown.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Replaces control characters by escape sequences, except tabs and line ends.
pub fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match hidden(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Year, month and day from a number of days since 1970 (Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_have_two_digits_that_count() {
        for (amount, shown) in [
            (0.0, "$0"),
            (0.000_012_34, "$0.000012"),
            (0.099_6, "$0.100"),
            (1.2, "$1.20"),
            (340.0, "$340.00"),
        ] {
            assert_eq!(dollars(amount), shown);
        }
    }

    #[test]
    fn groups_digits() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn times_keep_three_digits() {
        let shown = |micros| super::micros(micros);
        assert_eq!(shown(812), "812 µs");
        assert_eq!(shown(4_250), "4.25 ms");
        assert_eq!(shown(812_000), "812 ms");
        assert_eq!(shown(999_700), "1.00 s");
        assert_eq!(shown(200_000_000), "3 min 20 s");
    }

    #[test]
    fn times_have_the_right_date() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(951_827_696_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(moment(1_795_298_731_000), "2026-11-21 22:05:31 UTC");
    }

    #[test]
    fn reasons_have_no_error_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error), "No such file or directory");
    }

    #[test]
    fn control_sequences_are_escaped() {
        assert_eq!(visible("a\tb\n"), "a\tb\n");
        assert_eq!(visible("\u{1b}[31mred"), "\\u{1b}[31mred");
    }
}

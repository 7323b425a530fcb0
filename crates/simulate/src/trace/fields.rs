//! The fields of a line of CSV (RFC 4180), and the values in them. Nothing is guessed: an
//! unexpected value is an error that says what was expected.

use std::borrow::Cow;

/// The bound on times in traces, in seconds: 285 years, so that they fit into 63 bits as
/// nanoseconds.
const MAX_SECONDS: f64 = 9e9;

/// The greatest memory of an instance, in MB: 1 PB.
const MAX_MEMORY_MB: f64 = 1e9;

const NANOSECONDS: f64 = 1e9;

/// Splits a line into its fields. No field contains the end of a line.
pub(super) fn split(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => plain(rest)?,
        };
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return Ok(fields),
        }
    }
}

/// Reads a field without quotes. Returns it with the text after its comma.
fn plain(text: &str) -> Result<(Cow<'_, str>, Option<&str>), String> {
    let (field, after) = match text.split_once(',') {
        Some((field, after)) => (field, Some(after)),
        None => (text, None),
    };
    match field.contains('"') {
        true => Err(format!("`{field}` has a quote, but does not begin with one")),
        false => Ok((Cow::Borrowed(field.trim()), after)),
    }
}

/// Reads a quoted field after its first quote. Returns it with the text after its comma.
fn unquote(text: &str) -> Result<(Cow<'_, str>, Option<&str>), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err("a quote is open at the end of the line".to_owned());
        };
        field.push_str(part);
        match after.chars().next() {
            None => return Ok((Cow::Owned(field), None)),
            Some(',') => return Ok((Cow::Owned(field), Some(&after[1..]))),
            Some('"') => {
                field.push('"');
                rest = &after[1..];
            }
            Some(other) => {
                return Err(format!("`{other}` follows a closing quote, expected a comma"));
            }
        }
    }
}

/// Reads seconds that are not negative, as nanoseconds.
pub(super) fn seconds(column: &str, text: &str) -> Result<u64, String> {
    let seconds = number(column, text, "seconds", MAX_SECONDS)?;
    Ok((seconds * NANOSECONDS).round() as u64)
}

/// Reads a positive amount of memory in MB, as bytes: Function Compute counts in units of 2^20.
pub(super) fn memory(column: &str, text: &str) -> Result<u64, String> {
    let megabytes = number(column, text, "MB", MAX_MEMORY_MB)?;
    let bytes = (megabytes * f64::from(1 << 20)).round() as u64;
    match bytes {
        0 => Err(format!("`{column}` is `{text}`, expected MB above 0")),
        _ => Ok(bytes),
    }
}

/// Reads a number of calls.
pub(super) fn count(column: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{column}` is `{text}`, expected a number of calls"))
}

/// Reads a name, which must not be empty.
pub(super) fn name<'a>(column: &str, text: &'a str) -> Result<&'a str, String> {
    match text.is_empty() {
        true => Err(format!("`{column}` is empty, expected a name")),
        false => Ok(text),
    }
}

fn number(column: &str, text: &str, unit: &str, most: f64) -> Result<f64, String> {
    let parsed: Option<f64> = text.parse().ok();
    parsed
        .filter(|number| (0.0..=most).contains(number))
        .ok_or_else(|| format!("`{column}` is `{text}`, expected {unit} from 0 to {most:e}"))
}

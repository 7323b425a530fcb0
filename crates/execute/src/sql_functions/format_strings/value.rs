//! A value as it is written in a format.

use super::spec::Spec;

/// A value of an argument. A whole number is a double, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormatArgument<'a> {
    /// The text of the value. `None` for null.
    pub(super) text: Option<&'a str>,
    pub(super) whole: Option<i128>,
    pub(super) double: Option<f64>,
}

/// The text of a value.
///
/// # Errors
/// The kind of value that the form takes, if it does not take this one.
pub(super) fn written(spec: &Spec, cell: FormatArgument<'_>) -> Result<String, String> {
    let text = cell.text.unwrap_or_default();
    let kind = spec.kind.unwrap_or(match (cell.whole, cell.double) {
        (Some(_), _) => 'd',
        (None, Some(_)) if spec.precision.is_some() || spec.thousands => 'f',
        _ => 's',
    });
    let whole = || cell.whole.ok_or_else(|| format!("the form {kind} takes a whole number"));
    let double = || cell.double.ok_or_else(|| format!("the form {kind} takes a number"));
    let number = |is_negative: bool, digits: String| Ok(aligned_number(spec, is_negative, &digits));
    match kind {
        's' if cell.double.is_some() => match text.strip_prefix('-') {
            Some(digits) => number(true, digits.to_owned()),
            None => number(false, text.to_owned()),
        },
        's' => {
            let most = spec.precision.unwrap_or(usize::MAX);
            Ok(aligned(spec, &text.chars().take(most).collect::<String>(), '<'))
        }
        'I' => Ok(aligned(spec, &identifier(text), '>')),
        'L' => Ok(aligned(spec, &literal(cell.text), '>')),
        'c' => {
            let code = u32::try_from(whole()?).ok().and_then(char::from_u32);
            let letter = code.ok_or("the form c takes the number of a character")?;
            Ok(aligned(spec, &letter.to_string(), '<'))
        }
        'd' | 'i' | 'u' => {
            let value = whole()?;
            number(value < 0, value.unsigned_abs().to_string())
        }
        'x' | 'X' | 'o' | 'b' => {
            let value = whole()?;
            let size = value.unsigned_abs();
            let (digits, base) = match kind {
                'x' => (format!("{size:x}"), "0x"),
                'X' => (format!("{size:X}"), "0X"),
                'o' => (format!("{size:o}"), "0"),
                _ => (format!("{size:b}"), "0b"),
            };
            let base = if spec.with_base { base } else { "" };
            number(value < 0, format!("{base}{digits}"))
        }
        _ => {
            let value = double()?;
            number(value.is_sign_negative(), of_double(kind, value.abs(), spec.precision))
        }
    }
}

fn of_double(kind: char, value: f64, precision: Option<usize>) -> String {
    let digits = match kind.to_ascii_lowercase() {
        _ if value.is_nan() => "nan".to_owned(),
        _ if value.is_infinite() => "inf".to_owned(),
        'f' => format!("{value:.*}", precision.unwrap_or(6)),
        'e' => exponential(value, precision.unwrap_or(6)),
        _ => general(value, precision.unwrap_or(6).max(1)),
    };
    match kind.is_ascii_uppercase() {
        true => digits.to_uppercase(),
        false => digits,
    }
}

/// Writes a number as `1.5e+03`: the exponent has a sign, and two digits at least.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let size = exponent.trim_start_matches('-');
            let sign = if exponent.starts_with('-') { '-' } else { '+' };
            format!("{digits}e{sign}{size:0>2}")
        }
        None => text,
    }
}

/// Writes a number as `%g` does: with an exponent only if this is less than -4 or at least
/// `precision`, and without zeros at the end.
fn general(value: f64, precision: usize) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent = rounded.split_once('e').and_then(|(_, text)| text.parse::<i32>().ok());
    let exponent = exponent.unwrap_or_default();
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    let without_zeros = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= most {
        let text = exponential(value, precision - 1);
        return match text.split_once('e') {
            Some((digits, exponent)) => format!("{}e{exponent}", without_zeros(digits)),
            None => text,
        };
    }
    let behind = usize::try_from(most - 1 - exponent).unwrap_or_default();
    without_zeros(&format!("{value:.behind$}"))
}

fn aligned_number(spec: &Spec, is_negative: bool, digits: &str) -> String {
    let digits = if spec.thousands { with_commas(digits) } else { digits.to_owned() };
    let sign = match (is_negative, spec.sign) {
        (true, _) => "-".to_owned(),
        (false, Some(sign @ ('+' | ' '))) => sign.to_string(),
        _ => String::new(),
    };
    if spec.zeros && spec.align.is_none() {
        let missing = spec.width.saturating_sub(sign.len() + digits.len());
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    aligned(spec, &format!("{sign}{digits}"), '>')
}

/// Inserts commas between thousands before the point.
fn with_commas(digits: &str) -> String {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut written = String::with_capacity(digits.len() + end / 3);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (end - place).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    written + rest
}

fn aligned(spec: &Spec, text: &str, usual: char) -> String {
    let missing = spec.width.saturating_sub(text.chars().count());
    let before = match spec.align.unwrap_or(usual) {
        '<' => 0,
        '^' => missing / 2,
        _ => missing,
    };
    let fill = |count: usize| spec.fill.to_string().repeat(count);
    format!("{}{text}{}", fill(before), fill(missing - before))
}

/// A name in SQL, in quotes where it needs them.
fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A value in SQL.
fn literal(text: Option<&str>) -> String {
    match text {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => "NULL".to_owned(),
    }
}

//! The parts of a format: texts, and values with the way in which they are written.

/// A part of a format.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FormatPart {
    Text(String),
    /// The value of an argument, whose index is from 0, and how it is written.
    Value(usize, Spec),
}

/// How a value is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) fill: char,
    /// Alignment: `<` left, `>` right, `^` in the middle. `None`: the usual one of the value.
    pub(super) align: Option<char>,
    /// `+` or a space before numbers that are not negative.
    pub(super) sign: Option<char>,
    /// True if the number is written with a prefix that says its base.
    pub(super) with_base: bool,
    pub(super) zeros: bool,
    /// True if the number is written with commas between thousands.
    pub(super) thousands: bool,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
    /// The letter of the kind of value, such as `d` or `f`.
    pub(super) kind: Option<char>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            fill: ' ',
            align: None,
            sign: None,
            with_base: false,
            zeros: false,
            thousands: false,
            width: 0,
            precision: None,
            kind: None,
        }
    }
}

/// The most characters of a written value.
const MAX_WIDTH: usize = 10_000;

/// The characters of a format, read one after another.
struct FormatReader<'a> {
    rest: &'a str,
}

impl FormatReader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads the digits of a number; `None` if there are none.
    fn number(&mut self) -> Result<Option<usize>, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        match digits.parse::<usize>() {
            Ok(number) if number <= MAX_WIDTH => Ok(Some(number)),
            Err(_) if digits.is_empty() => Ok(None),
            _ => Err(format!("the number {digits} is too large")),
        }
    }
}

fn add(parts: &mut Vec<FormatPart>, next: char) {
    match parts.last_mut() {
        Some(FormatPart::Text(text)) => text.push(next),
        _ => parts.push(FormatPart::Text(next.to_string())),
    }
}

/// Reads a format of C: `%5.2f`.
pub(super) fn of_printf(format: &str) -> Result<Vec<FormatPart>, String> {
    let mut parts = Vec::new();
    let mut count = 0;
    let mut reader = FormatReader { rest: format };
    while let Some(next) = reader.next() {
        if next != '%' || reader.take('%') {
            add(&mut parts, next);
            continue;
        }
        let mut spec = Spec { align: Some('>'), ..Spec::default() };
        loop {
            match reader.rest.chars().next() {
                Some('-') => spec.align = Some('<'),
                Some('0') => spec.zeros = true,
                Some(sign @ ('+' | ' ')) => spec.sign = Some(sign),
                Some('#') => spec.with_base = true,
                Some(',' | '\'') => spec.thousands = true,
                _ => break,
            }
            reader.next();
        }
        if spec.zeros && spec.align == Some('>') {
            spec.align = None;
        }
        spec.width = reader.number()?.unwrap_or_default();
        if reader.take('.') {
            spec.precision = Some(reader.number()?.unwrap_or_default());
        }
        while reader.take('l') || reader.take('h') {}
        spec.kind = Some(letter(reader.next(), "diufFeEgGxXosc")?);
        parts.push(FormatPart::Value(count, spec));
        count += 1;
    }
    Ok(parts)
}

/// Reads a format of Python and DuckDB: `{:>5.2f}`.
pub(super) fn of_braces(format: &str) -> Result<Vec<FormatPart>, String> {
    let mut parts = Vec::new();
    let mut count = 0;
    let mut reader = FormatReader { rest: format };
    while let Some(next) = reader.next() {
        match next {
            '{' if !reader.take('{') => {
                let place = match reader.number()? {
                    Some(place) => place,
                    None => {
                        count += 1;
                        count - 1
                    }
                };
                let spec = match reader.take(':') {
                    true => in_braces(&mut reader)?,
                    false => Spec::default(),
                };
                if !reader.take('}') {
                    return Err("a { has no } behind what it may have".to_owned());
                }
                parts.push(FormatPart::Value(place, spec));
            }
            '}' if !reader.take('}') => return Err("a } has no { before it".to_owned()),
            next => add(&mut parts, next),
        }
    }
    Ok(parts)
}

fn in_braces(reader: &mut FormatReader<'_>) -> Result<Spec, String> {
    let mut spec = Spec::default();
    let is_align = |c: Option<char>| c.filter(|c| matches!(c, '<' | '>' | '^'));
    let mut ahead = reader.rest.chars();
    let first = ahead.next();
    let second = ahead.next();
    if let (Some(fill), Some(align)) = (first, is_align(second)) {
        (spec.fill, spec.align) = (fill, Some(align));
        reader.next();
        reader.next();
    } else if let Some(align) = is_align(first) {
        spec.align = Some(align);
        reader.next();
    }
    spec.sign = reader.rest.chars().next().filter(|c| matches!(c, '+' | ' ' | '-'));
    if spec.sign.is_some() {
        reader.next();
    }
    spec.with_base = reader.take('#');
    spec.zeros = reader.take('0');
    spec.width = reader.number()?.unwrap_or_default();
    spec.thousands = reader.take(',');
    if reader.take('.') {
        spec.precision = Some(reader.number()?.unwrap_or_default());
    }
    if !reader.rest.starts_with('}') {
        spec.kind = Some(letter(reader.next(), "dfFeEgGxXobsc")?);
    }
    Ok(spec)
}

/// Reads a format of PostgreSQL: `%s`, `%I` and `%L`, with `1$` for a place. `None` if it has none
/// of them.
pub(super) fn of_postgres(format: &str) -> Option<Result<Vec<FormatPart>, String>> {
    let mut parts = Vec::new();
    let mut count = 0;
    let mut found = false;
    let mut reader = FormatReader { rest: format };
    while let Some(next) = reader.next() {
        if next != '%' || reader.take('%') {
            add(&mut parts, next);
            continue;
        }
        let mut number = match reader.number() {
            Ok(number) => number,
            Err(wrong) => return Some(Err(wrong)),
        };
        let place = match number.filter(|_| reader.take('$')) {
            Some(place) => {
                number = None;
                place.checked_sub(1)?
            }
            None => count,
        };
        let align = if reader.take('-') { '<' } else { '>' };
        if number.is_none() {
            number = reader.number().ok()?;
        }
        let kind = reader.next().filter(|kind| matches!(kind, 's' | 'I' | 'L'))?;
        let width = number.unwrap_or_default();
        let spec = Spec { align: Some(align), width, kind: Some(kind), ..Spec::default() };
        parts.push(FormatPart::Value(place, spec));
        (count, found) = (place + 1, true);
    }
    found.then_some(Ok(parts))
}

fn letter(found: Option<char>, known: &str) -> Result<char, String> {
    match found {
        Some(kind) if known.contains(kind) => Ok(kind),
        Some(kind) => Err(format!("there is no form {kind}")),
        None => Err("it ends within a form".to_owned()),
    }
}

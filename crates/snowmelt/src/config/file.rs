//! The configuration file as flat keys with their lines.
//!
//! Invariant: an unknown key is refused, and the error names the nearest known key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use snowmelt_types::{Code, ErrorReport, SourceLocation, nearest};
use toml::de::{DeTable, DeValue};

use super::KEYS;

/// A value as text with its line, from 1.
#[derive(Debug)]
pub struct TextValue {
    pub text: String,
    pub line: u32,
}

/// A configuration file that was read.
#[derive(Debug)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// `section.name` to value.
    pub entries: BTreeMap<String, TextValue>,
}

impl ConfigFile {
    /// The keys of a file with this path and text.
    pub(super) fn parse(path: PathBuf, text: &str) -> Result<Self, ErrorReport> {
        let at = |offset: usize, message: String| {
            ErrorReport::new(Code::OPTION, message).location(SourceLocation {
                file: path.display().to_string(),
                line: line_of(text, offset),
                within: None,
            })
        };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            at(offset, format!("the configuration is not TOML: {}", error.message()))
        })?;
        let mut entries = BTreeMap::new();
        for (section, value) in table.get_ref() {
            let offset = section.span().start;
            let DeValue::Table(keys) = value.get_ref() else {
                return Err(unknown(section.get_ref(), at, offset));
            };
            if keys.is_empty() && !known_section(section.get_ref()) {
                return Err(unknown(section.get_ref(), at, offset));
            }
            for (key, value) in keys {
                let name = format!("{}.{}", section.get_ref(), key.get_ref());
                let offset = key.span().start;
                if !KEYS.iter().any(|known| known.name == name) {
                    return Err(unknown(&name, at, offset));
                }
                let text_of = scalar(value.get_ref()).ok_or_else(|| {
                    at(offset, format!("`{name}` must be a string, a number, a boolean or a list"))
                })?;
                entries.insert(name, TextValue { text: text_of, line: line_of(text, offset) });
            }
        }
        Ok(Self { path, entries })
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(boolean) => Some(boolean.to_string()),
        // The form of a list in an environment variable.
        DeValue::Array(items) => {
            let items = items.iter().map(|item| scalar(item.get_ref()));
            items.collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

fn known_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split('.').next() == Some(name))
}

fn unknown(name: &str, at: impl Fn(usize, String) -> ErrorReport, offset: usize) -> ErrorReport {
    let report = at(offset, format!("unknown setting `{name}`"));
    // A key without a section is compared with the keys' names without theirs.
    let own = |known: &'static str| match name.contains('.') {
        true => known,
        false => known.rsplit('.').next().unwrap_or(known),
    };
    let near = nearest(name, KEYS.iter().map(|key| own(key.name)));
    match KEYS.iter().find(|key| near == Some(own(key.name))) {
        Some(key) => report.hint(format!("did you mean `{}`?", key.name)),
        None => report.hint("`snowmelt config show` lists every setting"),
    }
}

fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, ErrorReport> {
        ConfigFile::parse("/etc/config.toml".into(), text)
    }

    #[test]
    fn entries_have_line_numbers() {
        let file = parse("# comment\n[query]\nworkers = 3\nmemory = \"2GiB\"\n").unwrap();
        assert_eq!(file.entries["query.workers"].text, "3");
        assert_eq!(file.entries["query.memory"].line, 4);
    }

    #[test]
    fn names_the_nearest_key() {
        for (text, near) in [
            ("[query]\nworker = 3", "query.workers"),
            ("[qery]\nmemory = \"1GiB\"", "query.memory"),
            ("workers = 3", "query.workers"),
        ] {
            let hint = parse(text).unwrap_err().hint.unwrap();
            assert_eq!(hint, format!("did you mean `{near}`?"), "{text}");
        }
        let hint = parse("[zzz]\nqqq = 1").unwrap_err().hint.unwrap();
        assert!(hint.contains("config show"), "{hint}");
    }

    #[test]
    fn a_syntax_error_has_a_line_number() {
        let report = parse("[query]\nworkers = \n").unwrap_err();
        assert_eq!(report.location.unwrap().line, 2);
    }
}

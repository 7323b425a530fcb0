//! The value of an option for files, as the SQL, the command and Python give it: texts.

use snowmelt_wire::CsvOption;

/// The only text.
pub(super) fn one(given: &CsvOption) -> Option<&str> {
    match (given.keys.as_slice(), given.values.as_slice()) {
        ([], [text]) => Some(text),
        _ => None,
    }
}

/// A text that is true or false.
pub(super) fn truth(given: &CsvOption) -> Option<bool> {
    match one(given)?.to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

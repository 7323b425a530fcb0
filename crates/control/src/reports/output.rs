//! The output of functions as their callers are shown it: its beginning, in whole lines.

use std::collections::BTreeMap;

use snowmelt_api::Event;
use snowmelt_wire::{Frame, Kind};

use super::events::Events;

/// The most that a caller is shown of one call, or of one function of a query.
const MAX_BYTES: usize = 8 << 10;
const MAX_LINES: usize = 100;

/// The line after a text that is cut.
const MORE: &str = "… there is more in the log of the function\n";

/// Returns the beginning of a text.
pub(crate) fn beginning(text: &str) -> String {
    let mut shown = String::new();
    for (at, line) in text.lines().enumerate() {
        if at == MAX_LINES || shown.len() + line.len() > MAX_BYTES {
            if shown.is_empty() {
                let end = line.floor_char_boundary(MAX_BYTES);
                shown = format!("{}\n", &line[..end]);
            }
            return shown + MORE;
        }
        shown.push_str(line);
        shown.push('\n');
    }
    shown
}

/// Sends the client of a query what each function wrote: users debug their functions with `print`.
pub(crate) fn show(events: &Events, written: &BTreeMap<String, String>) {
    for (function, text) in written.iter().filter(|(_, text)| !text.is_empty()) {
        events.send(Event::Printed { function: function.clone(), text: beginning(text) });
    }
}

/// Returns a profile with the output of functions. The driver, which made the profile, does not see
/// that. Any other frame stays as it is.
pub(crate) fn in_profile(frame: Frame, written: &BTreeMap<String, String>) -> Frame {
    let written: BTreeMap<&str, String> = written
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| (name.as_str(), beginning(text)))
        .collect();
    if written.is_empty() || frame.kind != Kind::Profile {
        return frame;
    }
    let with = |mut value: serde_json::Value| {
        value.as_object_mut()?.insert("printed".to_owned(), serde_json::to_value(written).ok()?);
        Frame::json(Kind::Profile, &value).ok()
    };
    frame.parse().ok().and_then(with).unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_bounded_and_of_whole_lines() {
        assert_eq!((beginning(""), beginning("a\nb")), (String::new(), "a\nb\n".to_owned()));
        let many = beginning(&"line\n".repeat(5000));
        assert_eq!(many, "line\n".repeat(MAX_LINES) + MORE);
        let wide = beginning(&format!("{0}\n{0}\n{0}", "x".repeat(3000)));
        assert_eq!(wide, format!("{0}\n{0}\n{MORE}", "x".repeat(3000)));
        let one = beginning(&"ä".repeat(8000));
        assert_eq!(one, format!("{}\n{MORE}", "ä".repeat(MAX_BYTES / 2)));
    }

    #[test]
    fn a_profile_has_what_functions_wrote_and_all_that_it_had() {
        let made = || Frame::json(Kind::Profile, &serde_json::json!({"rows": 3})).unwrap();
        let written = BTreeMap::from([
            ("f".to_owned(), "hello\n".to_owned()),
            ("silent".to_owned(), String::new()),
        ]);
        let value: serde_json::Value = in_profile(made(), &written).parse().unwrap();
        assert_eq!(value, serde_json::json!({"rows": 3, "printed": {"f": "hello\n"}}));
        let value: serde_json::Value = in_profile(made(), &BTreeMap::new()).parse().unwrap();
        assert_eq!(value, serde_json::json!({"rows": 3}));
    }
}

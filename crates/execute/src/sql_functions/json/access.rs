//! Finds values inside of a text of JSON. Only values that are found are copied.

use std::borrow::Cow;
use std::fmt;

use datafusion::error::Result;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::path::{Path, PathStep};
use super::wrong;

/// A valid text of JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonText<'t>(&'t str);

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonKind {
    Object,
    Array,
    Text,
    Boolean,
    Null,
    Natural,
    Integer,
    Double,
}

impl JsonKind {
    /// Returns the name of the kind in DuckDB.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "OBJECT",
            Self::Array => "ARRAY",
            Self::Text => "VARCHAR",
            Self::Boolean => "BOOLEAN",
            Self::Null => "NULL",
            Self::Natural => "UBIGINT",
            Self::Integer => "BIGINT",
            Self::Double => "DOUBLE",
        }
    }
}

impl<'t> JsonText<'t> {
    /// The whole text, if it is valid.
    pub(super) fn of(text: &'t str) -> Result<Self> {
        Ok(Self(parsed::<&RawValue>(text)?.get()))
    }

    pub(super) fn kind(self) -> JsonKind {
        match self.0.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::Text,
            Some(b't' | b'f') => JsonKind::Boolean,
            Some(b'n') => JsonKind::Null,
            _ if self.0.parse::<u64>().is_ok() => JsonKind::Natural,
            _ if self.0.parse::<i64>().is_ok() => JsonKind::Integer,
            _ => JsonKind::Double,
        }
    }

    /// The value at a path without `*`.
    pub(super) fn one(self, path: &Path) -> Result<Option<Self>> {
        let mut found = self;
        for step in &path.0 {
            match found.step(step)?.pop() {
                Some(next) => found = next,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// All values at a path.
    pub(super) fn all(self, path: &Path) -> Result<Vec<Self>> {
        let mut all = vec![self];
        for step in &path.0 {
            let next: Result<Vec<Vec<Self>>> =
                all.into_iter().map(|value| value.step(step)).collect();
            all = next?.concat();
        }
        Ok(all)
    }

    fn step(self, step: &PathStep) -> Result<Vec<Self>> {
        match (self.kind(), step) {
            (JsonKind::Object, PathStep::Member(name) | PathStep::Either(name)) => {
                let members: ObjectMembers<'t> = parsed(self.0)?;
                // The last of several, as in PostgreSQL.
                let found = members.0.iter().rev().find(|(known, _)| known == name);
                Ok(found.map(|(_, value)| Self(value.get())).into_iter().collect())
            }
            (JsonKind::Object, PathStep::AllMembers) => {
                let members: ObjectMembers<'t> = parsed(self.0)?;
                Ok(members.0.iter().map(|(_, value)| Self(value.get())).collect())
            }
            (JsonKind::Array, PathStep::Element(index)) => self.element(*index),
            (JsonKind::Array, PathStep::Either(index)) => match index.parse() {
                Ok(index) => self.element(index),
                Err(_) => Ok(Vec::new()),
            },
            (JsonKind::Array, PathStep::AllElements) => {
                let elements: Vec<&'t RawValue> = parsed(self.0)?;
                Ok(elements.into_iter().map(|value| Self(value.get())).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn element(self, index: i64) -> Result<Vec<Self>> {
        let elements: Vec<&'t RawValue> = parsed(self.0)?;
        let place = match usize::try_from(index) {
            Ok(place) => Some(place),
            Err(_) => usize::try_from(index.unsigned_abs())
                .ok()
                .and_then(|from_end| elements.len().checked_sub(from_end)),
        };
        let found = place.and_then(|place| elements.get(place));
        Ok(found.map(|value| Self(value.get())).into_iter().collect())
    }

    /// Returns the number of elements of an array, and 0 for other values.
    pub(super) fn length(self) -> Result<i64> {
        match self.kind() {
            JsonKind::Array => {
                Ok(i64::try_from(parsed::<ElementCount>(self.0)?.0).unwrap_or(i64::MAX))
            }
            _ => Ok(0),
        }
    }

    /// Returns the names of the members of an object, and none for other values.
    pub(super) fn keys(self) -> Result<Vec<Option<String>>> {
        match self.kind() {
            JsonKind::Object => {
                let members: ObjectMembers<'t> = parsed(self.0)?;
                Ok(members.0.into_iter().map(|(name, _)| Some(name.into_owned())).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the value with all that is in it.
    pub(super) fn value(self) -> Result<serde_json::Value> {
        parsed(self.0)
    }

    /// Returns the value's text without spaces between its parts.
    pub(super) fn minified(self) -> String {
        let mut inside = false;
        let mut escaped = false;
        let is_kept = |c: &char| {
            let is_kept = inside || !c.is_ascii_whitespace();
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = inside,
                '"' => inside = !inside,
                _ => (),
            }
            is_kept
        };
        self.0.chars().filter(is_kept).collect()
    }

    /// Returns a string without its quotation marks and escapes, and other values as they are
    /// written. `None` for JSON's null.
    pub(super) fn text(self) -> Option<String> {
        match self.kind() {
            JsonKind::Null => None,
            JsonKind::Text => Some(match serde_json::from_str(self.0) {
                Ok(text) => text,
                // Half of a pair of UTF-16, which no text has.
                Err(_) => self.0.trim_matches('"').to_owned(),
            }),
            _ => Some(self.minified()),
        }
    }
}

fn parsed<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("a text is no JSON: {error}");
        wrong(message, "leave out such texts: CASE WHEN json_valid(x) THEN … END")
    })
}

/// The members of an object, in their order.
struct ObjectMembers<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

impl<'t> Deserialize<'t> for ObjectMembers<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'t> Visitor<'t> for Read {
            type Value = ObjectMembers<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(
                self,
                mut map: A,
            ) -> Result<ObjectMembers<'t>, A::Error> {
                let mut members = Vec::new();
                while let Some((MemberName(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(ObjectMembers(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// The name of a member, copied only if it has escapes.
#[derive(Deserialize)]
struct MemberName<'t>(#[serde(borrow)] Cow<'t, str>);

/// The number of elements of an array, without the elements.
struct ElementCount(usize);

impl<'t> Deserialize<'t> for ElementCount {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'t> Visitor<'t> for Count {
            type Value = ElementCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'t>>(
                self,
                mut elements: A,
            ) -> Result<ElementCount, A::Error> {
                let mut count = 0;
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(ElementCount(count))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, path: &str) -> Vec<String> {
        let all = JsonText::of(text).unwrap().all(&Path::parse(path).unwrap()).unwrap();
        all.into_iter().map(JsonText::minified).collect()
    }

    #[test]
    fn values_keep_their_texts() {
        let text =
            r#" {"b" : [1, 2.50, 1e3, "x \"y\" ", {"c d": null}], "a": {"b": -1}, "a": true} "#;
        assert_eq!(at(text, "$.b"), [r#"[1,2.50,1e3,"x \"y\" ",{"c d":null}]"#]);
        assert_eq!(at(text, "$.b[-1].\"c d\""), ["null"]);
        assert_eq!(at(text, "/b/1"), ["2.50"]);
        assert_eq!(at(text, "$.a"), ["true"]);
        assert_eq!(at(text, "$.b[*]").len(), 5);
        assert_eq!(at(text, "$.*").len(), 3);
        for path in ["$.x", "$[0]", "$.b[9]", "$.b[-9]", "$.b.x"] {
            assert!(at(text, path).is_empty(), "{path}");
        }
    }

    #[test]
    fn texts_have_no_escapes() {
        let text = |json: &str| JsonText::of(json).unwrap().text();
        assert_eq!(text(r#""a\u00e9\n""#).as_deref(), Some("aé\n"));
        assert_eq!(text(r#""\\ ""#).as_deref(), Some("\\ "));
        assert_eq!(text("null"), None);
        assert_eq!(text("[ 1 ]").as_deref(), Some("[1]"));
        assert!(
            JsonText::of("{").is_err() && JsonText::of("").is_err() && JsonText::of("1 2").is_err()
        );
    }
}

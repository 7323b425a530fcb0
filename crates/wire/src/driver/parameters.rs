//! Values of the parameters of a statement: of `?`, `$1` and `:name`.
//!
//! A value travels beside the statement and with its type, so it is never read as SQL. JSON's own
//! values are parameters, except numbers with a point, which a decoder may round. Such numbers and
//! all other types are sent as `{"type": "double", "value": "0.1"}`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// The values of all parameters of a statement.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Parameters {
    /// The values by place: for each `?` in order, or for `$1`, `$2` and so on.
    Places(Vec<Parameter>),
    /// The values by name, for `:name` and `$name`.
    Names(BTreeMap<String, Parameter>),
}

/// A value. JSON's null, booleans, whole numbers, texts and lists are values; others have a type.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(no_recursion)]
#[serde(untagged)]
pub enum Parameter {
    /// No value.
    Null,
    /// A BOOLEAN.
    Boolean(bool),
    /// A BIGINT.
    Bigint(i64),
    /// A VARCHAR.
    Varchar(String),
    /// A list of values of one type.
    List(Vec<Parameter>),
    /// A value of another type.
    Typed(TypedText),
}

/// A value as text, in the form that a cast from text takes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TypedText {
    /// The type of the value.
    #[serde(rename = "type")]
    pub data_type: ParameterType,
    /// The text of the value; for a BLOB in hexadecimal digits.
    pub value: String,
}

/// The types of values that are given as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of SQL")]
pub enum ParameterType {
    Boolean,
    Bigint,
    Double,
    Decimal,
    Varchar,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Blob,
}

impl ParameterType {
    /// All types, with their names.
    pub const ALL: [(&str, Self); 11] = [
        ("boolean", Self::Boolean),
        ("bigint", Self::Bigint),
        ("double", Self::Double),
        ("decimal", Self::Decimal),
        ("varchar", Self::Varchar),
        ("date", Self::Date),
        ("time", Self::Time),
        ("timestamp", Self::Timestamp),
        ("timestamptz", Self::Timestamptz),
        ("interval", Self::Interval),
        ("blob", Self::Blob),
    ];
}

impl FromStr for ParameterType {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let found = Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, data_type)| *data_type).ok_or(())
    }
}

impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.iter().find(|(_, data_type)| data_type == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

impl Parameters {
    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Places(values) => values.is_empty(),
            Self::Names(values) => values.is_empty(),
        }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::Places(Vec::new())
    }
}

// Values may be secrets: they are not printed.
impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Places(values) => write!(f, "{} by place", values.len()),
            Self::Names(values) => f.debug_set().entries(values.keys()).finish(),
        }
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ParametersVisitor)
    }
}

struct ParametersVisitor;

impl<'de> Visitor<'de> for ParametersVisitor {
    type Value = Parameters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values, or an object of names and values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Parameters, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = all.next_element()? {
            values.push(value);
        }
        Ok(Parameters::Places(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Parameters, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = all.next_entry::<String, _>()? {
            if values.insert(name, value).is_some() {
                return Err(A::Error::custom("a parameter has two values"));
            }
        }
        Ok(Parameters::Names(values))
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ParameterVisitor)
    }
}

struct ParameterVisitor;

impl<'de> Visitor<'de> for ParameterVisitor {
    type Value = Parameter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a boolean, a whole number, a text, a list, or a type with a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Parameter, E> {
        Ok(Parameter::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Parameter, E> {
        Ok(Parameter::Bigint(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Parameter, E> {
        let value = i64::try_from(value);
        value.map(Parameter::Bigint).map_err(|_| E::custom(as_text("decimal")))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Parameter, E> {
        Err(E::custom(as_text("double")))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Parameter, E> {
        Ok(Parameter::Varchar(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Parameter, E> {
        Ok(Parameter::Varchar(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Parameter, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = all.next_element()? {
            values.push(value);
        }
        Ok(Parameter::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, all: A) -> Result<Parameter, A::Error> {
        let typed = serde::de::value::MapAccessDeserializer::new(all);
        TypedText::deserialize(typed).map(Parameter::Typed)
    }
}

fn as_text(data_type: &str) -> String {
    format!("send this number as {{\"type\": \"{data_type}\", \"value\": \"…\"}}, with its digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Parameters, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_as_they_were_sent() {
        for json in [
            r#"[null,true,-5,"x'; drop",[1,2],{"type":"double","value":"0.1"}]"#,
            r#"{"day":{"type":"date","value":"2024-01-31"},"n":9223372036854775807}"#,
            "[]",
        ] {
            let read = read(json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
    }

    #[test]
    fn no_number_is_rounded() {
        assert!(read("[1.5]").unwrap_err().contains("double"));
        assert!(read("[9223372036854775808]").unwrap_err().contains("decimal"));
        assert!(read(r#"[{"type":"money","value":"1"}]"#).unwrap_err().contains("unknown variant"));
        assert!(read(r#"{"a":1,"a":2}"#).unwrap_err().contains("two values"));
    }

    #[test]
    fn types_have_the_names_of_sql_and_values_are_not_printed() {
        for (name, data_type) in ParameterType::ALL {
            assert_eq!(name.parse(), Ok(data_type));
            assert_eq!(serde_json::to_string(&data_type).unwrap(), format!("\"{data_type}\""));
        }
        assert_eq!("money".parse::<ParameterType>(), Err(()));
        let shown = format!("{:?}", read(r#"{"key":"hunter2"}"#).unwrap());
        assert!(shown.contains("key") && !shown.contains("hunter2"), "{shown}");
    }
}

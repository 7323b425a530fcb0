//! `--param`: values of a statement's parameters.

use std::collections::BTreeMap;

use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{Parameter, ParameterType, Parameters, TypedText};

const FORM: &str = "write NAME=VALUE or NAME:TYPE=VALUE, for example n=5, day:date=2024-01-31, or \
                    1=x for the first ? and $1";

/// The values of the options, by name; by place if all names are numbers.
///
/// # Errors
/// An option that is no name with a value, an unknown type, or a name that is given twice.
pub fn given(options: &[String]) -> Result<Parameters, ErrorReport> {
    let mut values = BTreeMap::new();
    for option in options {
        let (name, value) = parameter(option)?;
        if values.insert(name.to_owned(), value).is_some() {
            return Err(wrong(format!("--param gives `{name}` twice")));
        }
    }
    Ok(by_place(&values).map_or(Parameters::Names(values), Parameters::Places))
}

/// The values in their order, if their names are 1, 2 and so on.
fn by_place(values: &BTreeMap<String, Parameter>) -> Option<Vec<Parameter>> {
    (1..=values.len()).map(|place| values.get(&place.to_string()).cloned()).collect()
}

fn parameter(option: &str) -> Result<(&str, Parameter), ErrorReport> {
    let refused = || wrong(format!("--param `{option}` is no name with a value"));
    let (left, text) = option.split_once('=').ok_or_else(refused)?;
    let (name, data_type) = match left.split_once(':') {
        Some((name, data_type)) => (name, Some(data_type)),
        None => (left, None),
    };
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Err(refused());
    }
    let value = match data_type {
        None => recognised(text),
        Some(null) if null.eq_ignore_ascii_case("null") && text.is_empty() => Parameter::Null,
        Some(data_type) => Parameter::Typed(TypedText {
            data_type: data_type.parse().map_err(|()| unknown(data_type))?,
            value: text.to_owned(),
        }),
    };
    Ok((name, value))
}

/// A value without a type: as one of a CSV file, a whole number, a number, a boolean or a text.
fn recognised(text: &str) -> Parameter {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    // A code such as 0049 is a text.
    let is_number =
        are_digits(whole) && are_digits(behind) && (whole == "0" || !whole.starts_with('0'));
    let typed = |data_type| Parameter::Typed(TypedText { data_type, value: text.to_owned() });
    match text {
        "true" | "false" => typed(ParameterType::Boolean),
        _ if !is_number => Parameter::Varchar(text.to_owned()),
        _ if digits.contains('.') => typed(ParameterType::Double),
        _ => text.parse().map_or_else(|_| typed(ParameterType::Decimal), Parameter::Bigint),
    }
}

fn unknown(data_type: &str) -> ErrorReport {
    let known: Vec<&str> = ParameterType::ALL.iter().map(|(name, _)| *name).collect();
    let message = format!("--param has the unknown type `{data_type}`");
    ErrorReport::new(Code::OPTION, message)
        .hint(format!("the types are {}, null", known.join(", ")))
}

fn wrong(message: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message).hint(FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(options: &[&str]) -> String {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        match given(&options) {
            Ok(values) => serde_json::to_string(&values).unwrap(),
            Err(report) => report.to_string(),
        }
    }

    #[test]
    fn a_value_without_a_type_is_recognised() {
        for (option, expected) in [
            ("1=5", "[5]"),
            ("1=-5", "[-5]"),
            ("1=0", "[0]"),
            ("1=0049", r#"["0049"]"#),
            ("1=", r#"[""]"#),
            ("1=null", r#"["null"]"#),
            ("1=a=b", r#"["a=b"]"#),
            ("1=1.50", r#"[{"type":"double","value":"1.50"}]"#),
            ("1=1.", r#"["1."]"#),
            ("1=true", r#"[{"type":"boolean","value":"true"}]"#),
            ("1=99999999999999999999", r#"[{"type":"decimal","value":"99999999999999999999"}]"#),
            ("day:date=2024-01-31", r#"{"day":{"type":"date","value":"2024-01-31"}}"#),
            ("zip:VARCHAR=123", r#"{"zip":{"type":"varchar","value":"123"}}"#),
            ("x:null=", r#"{"x":null}"#),
        ] {
            assert_eq!(json(&[option]), expected, "{option}");
        }
        assert_eq!(json(&[]), "[]");
        assert_eq!(json(&["2=b", "1=a"]), r#"["a","b"]"#);
        assert_eq!(json(&["2=b", "n=1"]), r#"{"2":"b","n":1}"#);
    }

    #[test]
    fn what_is_no_parameter_is_refused() {
        for (option, part) in [
            ("5", "NAME=VALUE"),
            ("=5", "NAME=VALUE"),
            ("a b=5", "NAME=VALUE"),
            ("a:money=5", "boolean, bigint"),
        ] {
            let report = json(&[option]);
            assert!(report.contains("SM-0110") && report.contains(part), "{option}: {report}");
        }
        assert!(json(&["a=1", "a=2"]).contains("twice"));
    }
}

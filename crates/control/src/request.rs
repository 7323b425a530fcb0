//! Decodes the body of a request, or gives an error that names the part that is wrong.

use serde::de::DeserializeOwned;
use snowmelt_types::{Code, ErrorReport};

/// Reads the body of a request.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReport> {
    serde_json::from_slice(body).map_err(|error| {
        // Decodes again to find the place, which would slow down every valid request.
        let mut reader = serde_json::Deserializer::from_slice(body);
        let (place, words) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => (error.path().to_string(), error.into_inner().to_string()),
            Ok(_) => (".".to_owned(), error.to_string()),
        };
        ErrorReport::new(Code::OPTION, message(&place, &words))
    })
}

fn message(place: &str, words: &str) -> String {
    let reason = words.split(" at line ").next().unwrap_or(words);
    let subject = match place {
        "." => "the request".to_owned(),
        named => format!("`{named}` of the request"),
    };
    let wrong = ["invalid value: ", "invalid type: "];
    let wrong = wrong.iter().find_map(|start| reason.strip_prefix(start));
    match wrong.and_then(|reason| reason.split_once(", expected ")) {
        Some((found, wanted)) => format!("{subject} is {found} and must be {}", named(wanted)),
        None => format!("{subject} is not valid: {reason}"),
    }
}

/// A type in words for users who do not write Rust.
fn named(wanted: &str) -> String {
    let most = match wanted {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => u64::MAX,
        other => return other.to_owned(),
    };
    format!("a whole number from 0 to {most}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmelt_api::QueryRequest;

    fn refused(body: &str) -> String {
        let report = parse::<QueryRequest>(body.as_bytes()).unwrap_err();
        assert_eq!(report.code, "SM-0110");
        report.message
    }

    #[test]
    fn an_invalid_field_is_named_by_its_path() {
        let options =
            |options: &str| refused(&format!("{{\"sql\": \"\", \"options\": {options}}}"));
        assert_eq!(
            options("{\"workers\": -1}"),
            "`options.workers` of the request is integer `-1` and must be a whole number from 0 \
             to 4294967295"
        );
        assert!(options("{\"workers\": \"4\"}").contains("must be a whole number"));
        assert!(options("{\"wrokers\": 4}").contains("unknown field `wrokers`"));
        assert!(refused("{}").starts_with("the request is not valid: missing field `sql`"));
        assert!(refused("{\"sql\": ").contains("is not valid"));
    }
}

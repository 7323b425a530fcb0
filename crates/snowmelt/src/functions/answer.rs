//! The answer of a function, as it is printed.

use serde::Serialize;
use snowmelt_api::Answer;

/// An answer as a JSON value, or as its original text if it is nested too deeply to parse.
pub fn value(answer: &Answer) -> Shown {
    match serde_json::from_str(answer.json()) {
        Ok(value) => Shown::Value(value),
        Err(_) => Shown::Answer(answer.clone()),
    }
}

/// An answer as it is printed.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Shown {
    Value(serde_json::Value),
    Answer(Answer),
}

//! The answer of a function, as text that nobody parses on the way.

use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The answer of a function: valid JSON, kept as the text that the function wrote.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    json: Box<RawValue>,
    held: Option<AnswerGuard>,
}

/// A guard that lives as long as the answer is in memory, such as an account of that memory. Guards
/// are not sent.
#[derive(Clone)]
pub struct AnswerGuard(Arc<dyn Any + Send + Sync>);

impl AnswerGuard {
    /// Holds a value.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }
}

impl Debug for AnswerGuard {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Held").field(&Arc::as_ptr(&self.0)).finish()
    }
}

impl Answer {
    /// Makes an answer from its JSON text, and a value that is held as long as the answer is in
    /// memory.
    pub fn holding(json: Box<RawValue>, held: Option<AnswerGuard>) -> Self {
        Self { json, held }
    }

    /// Returns the answer with a value that is held as long as the answer is in memory.
    pub fn held_by(self, held: AnswerGuard) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Returns the JSON text of the answer.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// Takes the held value out of the answer, for callers that keep the text in another form.
    pub fn take_held(&mut self) -> Option<AnswerGuard> {
        self.held.take()
    }
}

impl From<Box<RawValue>> for Answer {
    fn from(json: Box<RawValue>) -> Self {
        Self { json, held: None }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(|json: Box<RawValue>| json.into())
    }
}

//! A span while it is open, and its attributes.

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::SystemTime;

use snowmelt_rpc::RequestId;
use tracing::field::{Field, Visit};

/// The greatest number of characters of a text attribute: paths and names are shorter.
const MAX_TEXT: usize = 512;

/// The names of fields that are not attributes.
const SPAN_ID: &str = "span_id";
const NAME: &str = "otel.name";
const KIND: &str = "otel.kind";
const STATUS: &str = "otel.status_code";

/// The kinds of spans in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
}

/// A span. The span is complete once `ended` is set.
#[derive(Clone, Debug)]
pub struct Span {
    pub trace: RequestId,
    pub id: u64,
    pub parent: Option<u64>,
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    pub began: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
    pub has_failed: bool,
}

impl Span {
    /// Begins a span now.
    pub fn begin(trace: RequestId, parent: Option<u64>, name: &'static str) -> Self {
        let now = SystemTime::now();
        Self {
            trace,
            id: 0,
            parent,
            name: name.into(),
            kind: SpanKind::Internal,
            began: now,
            ended: now,
            attributes: Vec::new(),
            has_failed: false,
        }
    }

    fn set(&mut self, name: &'static str, value: Value) {
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }

    fn text(&mut self, name: &'static str, text: &str) {
        match name {
            NAME => self.name = text.to_owned().into(),
            KIND if text == "server" => self.kind = SpanKind::Server,
            KIND if text == "client" => self.kind = SpanKind::Client,
            KIND => self.kind = SpanKind::Internal,
            STATUS => self.has_failed = text == "ERROR",
            _ => self.set(name, Value::Text(text.chars().take(MAX_TEXT).collect())),
        }
    }
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::Boolean(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            SPAN_ID => self.id = value,
            name => self.set(name, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))),
        }
    }
}

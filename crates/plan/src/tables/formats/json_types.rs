//! The types of JSON values: of a line, of a file, of a table.
//!
//! Objects are merged by the names of their members, lists by their items. Numbers of both kinds
//! are DOUBLE; other different scalars are texts, as which every scalar can be read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use object_store::ObjectMeta;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use snowmelt_execute::read::{
    Dialect, Framer, MAX_COLUMNS, ObjectLayout, newlines, without_mark, wrong_line, wrong_object,
};
use snowmelt_files::{Compression, Format};

use super::sample::{Sample, Sampler};
use super::{FileColumns, FileFindings, pieces};
use crate::{Error, Result};

/// The type of some values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Shape {
    /// No value but null.
    #[default]
    Null,
    Bool,
    /// Integers, of which some may be negative, and some larger than a `BIGINT`.
    Int {
        negative: bool,
        large: bool,
    },
    Float,
    Text,
    List(Box<Shape>),
    Object(ShapeMembers),
}

/// The members of objects, in the order of their first occurrence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShapeMembers {
    shapes: Vec<(String, Shape)>,
    indexes: HashMap<String, usize>,
}

/// The path of a value that is an object or a list in one place and something else in another.
type ConflictPath = String;

impl Shape {
    /// Adds the values of another shape.
    pub(super) fn merge(&mut self, other: Self) -> Result<(), ConflictPath> {
        use Shape::*;
        match (&mut *self, other) {
            (_, Null) => (),
            (Null, other) => *self = other,
            (List(items), List(others)) => {
                items.merge(*others).map_err(|path| joined("[]", &path))?;
            }
            (Object(members), Object(others)) => members.merge(others)?,
            (List(_) | Object(_), _) | (_, List(_) | Object(_)) => return Err(String::new()),
            (Int { negative, large }, Int { negative: also, large: too }) => {
                *negative |= also;
                *large |= too;
            }
            (Int { .. } | Float, Int { .. } | Float) => *self = Float,
            (one, other) if *one == other => (),
            _ => *self = Text,
        }
        Ok(())
    }

    /// The names of an object's members.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        let members = match self {
            Self::Object(members) => members.shapes.as_slice(),
            _ => &[],
        };
        members.iter().map(|(name, _)| name.as_str())
    }

    /// The schema of objects; `None` if there were none.
    pub(super) fn into_schema(self) -> Option<Schema> {
        match self {
            Self::Object(members) => Some(Schema::new(members.into_fields())),
            _ => None,
        }
    }

    fn into_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int { large: false, .. } => DataType::Int64,
            Self::Int { negative: false, .. } => DataType::UInt64,
            Self::Int { .. } => DataType::Decimal128(20, 0),
            Self::Float => DataType::Float64,
            // Any scalar can be read as a text.
            Self::Text | Self::Null => DataType::Utf8,
            Self::List(items) => {
                DataType::List(Arc::new(Field::new("item", items.into_type(), true)))
            }
            Self::Object(members) => DataType::Struct(members.into_fields().into()),
        }
    }
}

impl ShapeMembers {
    fn merge(&mut self, others: Self) -> Result<(), ConflictPath> {
        others.shapes.into_iter().try_for_each(|(name, shape)| self.add(name, shape))
    }

    fn add(&mut self, name: String, shape: Shape) -> Result<(), ConflictPath> {
        match self.indexes.get(&name) {
            Some(index) => self.shapes[*index].1.merge(shape).map_err(|path| joined(&name, &path)),
            None => {
                self.indexes.insert(name.clone(), self.shapes.len());
                self.shapes.push((name, shape));
                Ok(())
            }
        }
    }

    fn into_fields(self) -> Vec<Field> {
        let field = |(name, shape): (String, Shape)| Field::new(name, shape.into_type(), true);
        self.shapes.into_iter().map(field).collect()
    }
}

/// Reads the shape of a value without storing the value.
struct ShapeReader;

impl<'de> DeserializeSeed<'de> for ShapeReader {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Shape, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeReader {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Int { negative: value < 0, large: false })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Int { negative: false, large: i64::try_from(value).is_err() })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Float)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut all = Shape::Null;
        while let Some(item) = items.next_element_seed(ShapeReader)? {
            all.merge(item).map_err(|path| conflict(&joined("[]", &path)))?;
        }
        Ok(Shape::List(Box::new(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Shape, A::Error> {
        let mut all = ShapeMembers::default();
        while let Some(name) = members.next_key::<String>()? {
            let shape = members.next_value_seed(ShapeReader)?;
            all.add(name, shape).map_err(|path| conflict(&path))?;
            if all.shapes.len() > MAX_COLUMNS {
                let why = format!("an object has more than {MAX_COLUMNS} members");
                return Err(serde::de::Error::custom(why));
            }
        }
        Ok(Shape::Object(all))
    }
}

fn joined(outer: &str, inner: &str) -> ConflictPath {
    match inner {
        "" => outer.to_owned(),
        inner if inner.starts_with('[') => format!("{outer}{inner}"),
        inner => format!("{outer}.{inner}"),
    }
}

fn conflict<E: serde::de::Error>(path: &str) -> E {
    E::custom(mixed(path))
}

fn mixed(path: &str) -> String {
    format!("`{path}` is an object or a list in one place, and another kind of value elsewhere")
}

/// Reads the columns of a file.
pub(super) async fn of_file(
    sampler: &Sampler<'_>,
    meta: &ObjectMeta,
    compression: Compression,
    name: &str,
) -> Result<FileFindings> {
    let file = sampler.open(meta, compression).await?;
    let mut sample = file.read(false).await?;
    let frame = frame_of(&sample);
    let refused = |(at, why): (u64, String)| {
        let wrong = if frame.is_some() { wrong_object } else { wrong_line };
        Error::File(Box::new(wrong(name, Some(at), &why)))
    };
    let mut objects = objects(&sample, frame).map_err(refused)?;
    if objects.is_empty() && !sample.last {
        sample = file.read(true).await?;
        objects = self::objects(&sample, frame).map_err(refused)?;
    }
    let columns = match shape(&objects).map_err(refused)? {
        Shape::Null if sample.whole => FileColumns::None,
        Shape::Null => return Err(refused((1, "the first object has more than 8 MiB".to_owned()))),
        shape => FileColumns::Objects(shape),
    };
    let divisible = compression == Compression::None && frame.is_none();
    let of_file = if divisible { pieces::of_lines } else { pieces::whole };
    let dialect = frame.map(|_| Dialect { frame, ..Dialect::of(Format::Json) });
    Ok(FileFindings { dialect, ..FileFindings::new(columns, of_file(meta.size)) })
}

/// How the objects of a file stand in it; `None` if each is a line. Its first object tells.
fn frame_of(sample: &Sample) -> Option<ObjectLayout> {
    let text = without_mark(&sample.text).trim_ascii_start();
    let line = text.split_inclusive(|byte| *byte == b'\n').next()?;
    match line[0] {
        b'[' => Some(ObjectLayout::List),
        b'{' if line.len() < text.len() => {
            let read = serde_json::from_slice::<IgnoredAny>(line);
            read.is_err_and(|error| error.is_eof()).then_some(ObjectLayout::Objects)
        }
        _ => None,
    }
}

/// The whole objects of a sample, each in a line. An error is the number of an object and why it
/// cannot be read.
fn objects(sample: &Sample, frame: Option<ObjectLayout>) -> Result<Cow<'_, [u8]>, (u64, String)> {
    let Some(frame) = frame else { return Ok(Cow::Borrowed(lines(sample))) };
    let mut framer = Framer::new(frame);
    let mut text = Vec::new();
    let mut read = framer.next(&sample.text, &mut text);
    if sample.whole && read.is_ok() {
        read = framer.end(&mut text);
    }
    read.map_err(|why| (newlines(&text) + 1, why.to_owned()))?;
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    text.truncate(end);
    Ok(Cow::Owned(text))
}

/// The whole lines of a sample.
fn lines(sample: &Sample) -> &[u8] {
    let text = without_mark(&sample.text);
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if sample.whole { text } else { &text[..end] }
}

/// The shape of all lines; null if they are blank. An error is the number of a line and the reason.
fn shape(text: &[u8]) -> Result<Shape, (u64, String)> {
    let mut all = Shape::Null;
    let mut before = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let at = before + 1;
        before += newlines(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut values = serde_json::Deserializer::from_slice(line);
        let read =
            ShapeReader.deserialize(&mut values).and_then(|shape| values.end().map(|()| shape));
        let shape = read.map_err(|error| (at, explained(line, &error)))?;
        if !matches!(shape, Shape::Object(_)) {
            return Err((at, explained_value(line)));
        }
        all.merge(shape).map_err(|path| (at, mixed(&path)))?;
    }
    if matches!(&all, Shape::Object(members) if members.shapes.len() > MAX_COLUMNS) {
        return Err((before, format!("the objects have more than {MAX_COLUMNS} members")));
    }
    Ok(all)
}

fn explained(line: &[u8], error: &serde_json::Error) -> String {
    if line.trim_ascii_start().starts_with(b"[") {
        return explained_value(line);
    }
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    match error.classify() {
        Category::Eof => "the object does not end in its line: each line must be one object".into(),
        Category::Data => text.to_owned(),
        _ => format!("it is not a JSON object: {text}"),
    }
}

fn explained_value(line: &[u8]) -> String {
    match line.trim_ascii_start().first() {
        Some(b'[') => "it is a list: each line must be one object, such as from `jq -c '.[]'`",
        _ => "it is not a JSON object",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &str) -> Result<Vec<(String, DataType)>, (u64, String)> {
        let schema = shape(lines.as_bytes())?.into_schema().unwrap();
        let column = |field: &Arc<Field>| (field.name().clone(), field.data_type().clone());
        Ok(schema.fields().iter().map(column).collect())
    }

    #[test]
    fn types_hold_the_values_of_all_lines() {
        use DataType::*;
        for (lines, expected) in [
            ("{\"a\":1}\n{\"a\":-2}\n", Int64),
            ("{\"a\":1}\n{\"a\":2.5}\n", Float64),
            ("{\"a\":18446744073709551615}", UInt64),
            ("{\"a\":18446744073709551615}\n{\"a\":-1}", Decimal128(20, 0)),
            ("{\"a\":1}\n\n{\"a\":\"x\"}\r\n", Utf8),
            ("{\"a\":true}\n{\"a\":null}", Boolean),
            ("{\"a\":true}\n{\"a\":0}", Utf8),
            ("{\"a\":null}", Utf8),
            ("{\"a\":[]}\n{\"a\":[1,null]}", List(Arc::new(Field::new("item", Int64, true)))),
            (
                "{\"a\":{\"x\":1}}\n{\"a\":{\"y\":[]}}",
                Struct(
                    vec![
                        Field::new("x", Int64, true),
                        Field::new("y", List(Arc::new(Field::new("item", Utf8, true))), true),
                    ]
                    .into(),
                ),
            ),
        ] {
            assert_eq!(of(lines), Ok(vec![("a".to_owned(), expected)]), "{lines}");
        }
    }

    #[test]
    fn columns_are_in_the_order_of_their_occurrence() {
        let columns = of("{\"z\":1,\"b\":2}\n{\"a\":1,\"z\":1}").unwrap();
        assert_eq!(
            columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["z", "b", "a"]
        );
    }

    #[test]
    fn wrong_lines_are_explained() {
        for (lines, at, why) in [
            ("{\"a\":1}\n{\"a\":\n1}", 2, "does not end in its line"),
            ("[{\"a\":1},\n{}]", 1, "it is a list"),
            ("{\"a\":1}\n3", 2, "not a JSON object"),
            ("{\"a\":1}\n{\"a\":[1]}", 2, "`a` is an object or a list"),
            ("{\"a\":[{\"b\":1},{\"b\":{}}]}", 1, "`[].b`"),
            ("{a:1}", 1, "key must be a string"),
            ("{\"a\":1} x", 1, "trailing characters"),
        ] {
            let (line, text) = of(lines).unwrap_err();
            assert!(line == at && text.contains(why), "{lines}: {line}: {text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(shape(deep.as_bytes()).is_err());
        assert!(shape(b"{\"a\":\"\xff\"}").is_err());
    }
}

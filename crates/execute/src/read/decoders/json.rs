//! Decodes JSON objects, one per line.
//!
//! Integers are decoded as text first, because the decoder turns 1.5 into the integer 1; the cast
//! of a text refuses it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;

use super::surrogates::joined;
use crate::read::newlines;
use crate::read::reports::shortened;
use crate::sql_semantics::{cast_strictly, sql_name};

/// A decoder of objects.
pub struct JsonDecoder {
    wanted: SchemaRef,
    rows: usize,
    decoder: Decoder,
}

impl JsonDecoder {
    /// A decoder of some columns.
    pub fn new(wanted: &SchemaRef, rows: usize) -> Result<Self, ArrowError> {
        let raw = |field: &FieldRef| with_type(field, as_text(field.data_type()));
        let raw = Arc::new(Schema::new(wanted.fields().iter().map(raw).collect::<Vec<_>>()));
        let decoder = ReaderBuilder::new(raw)
            .with_batch_size(rows)
            .with_coerce_primitive(true)
            .build_decoder()?;
        Ok(Self { wanted: Arc::clone(wanted), rows, decoder })
    }

    pub(crate) fn of_single_records(&self) -> Result<Self, ArrowError> {
        Self::new(&self.wanted, self.rows.min(1))
    }

    /// Decodes whole records.
    pub fn decode(&mut self, records: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
        let joined = joined(records);
        let records = joined.as_ref();
        let mut rest = records;
        let mut batches = Vec::new();
        while !rest.is_empty() {
            let read = self.decoder.decode(rest)?;
            rest = &rest[read..];
            if rest.is_empty() && self.decoder.has_partial_record() {
                return Err(ArrowError::JsonError("the object does not end".to_owned()));
            }
            if read == 0 || rest.is_empty() {
                let batch = self.decoder.flush()?;
                batches.extend(batch.map(|batch| self.as_wanted(&batch)).transpose()?);
            }
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows as u64 != newlines(records) && rows != objects(records) {
            return Err(ArrowError::JsonError("it is not one object".to_owned()));
        }
        Ok(batches)
    }

    fn as_wanted(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let column = |(column, field): (&ArrayRef, &FieldRef)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            cast_strictly(column, field.data_type()).map_err(|error| {
                let name = field.name();
                let kind = sql_name(field.data_type());
                let why = value_of(&error.to_string());
                ArrowError::JsonError(format!("column `{name}` is {kind}, and {why} is not"))
            })
        };
        let columns = batch.columns().iter().zip(self.wanted.fields()).map(column);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options)
    }

    pub(crate) fn why(&self, error: &ArrowError) -> String {
        match error {
            ArrowError::JsonError(text) => shortened(text),
            other => shortened(&other.to_string()),
        }
    }
}

/// The number of lines that are not blank.
fn objects(lines: &[u8]) -> usize {
    let lines = lines.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)).count()
}

/// The value that a cast's error names.
fn value_of(error: &str) -> String {
    let value = error.split_once("string '").and_then(|(_, rest)| rest.rsplit_once("' to value"));
    match value {
        Some((value, _)) => format!("`{}`", shortened(value)),
        None => "a value".to_owned(),
    }
}

/// A type with text in the place of integers.
fn as_text(data_type: &DataType) -> DataType {
    match data_type {
        whole if whole.is_integer() || whole.is_decimal() => DataType::Utf8View,
        DataType::List(item) => DataType::List(with_type(item, as_text(item.data_type()))),
        DataType::Struct(fields) => {
            let raw = |field: &FieldRef| with_type(field, as_text(field.data_type()));
            DataType::Struct(fields.iter().map(raw).collect())
        }
        other => other.clone(),
    }
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::read::text::{Decoder, Undecodable};

    fn decoder() -> Decoder {
        let field = |name, kind| Arc::new(Field::new(name, kind, true));
        let wanted = Schema::new(vec![
            field("n", DataType::Int64),
            field("s", DataType::Utf8View),
            field("l", DataType::List(field("item", DataType::Int64))),
            field("o", DataType::Struct(vec![field("x", DataType::Float64)].into())),
        ]);
        JsonDecoder::new(&Arc::new(wanted), 2).unwrap().into()
    }

    #[test]
    fn values_are_decoded() {
        let lines = concat!(
            "{\"n\": 9007199254740993, \"s\": 1.50, \"l\": [1, null], \"o\": {\"x\": 1}}\n\n",
            "{\"other\": [1]}\r\n",
            "{\"s\": true, \"n\": null}\n",
        );
        let batches = decoder().decode(lines.as_bytes()).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        let text = pretty_format_batches(&batches).unwrap().to_string();
        for part in ["9007199254740993", "1.50", "[1, ]", "{x: 1.0}", "true"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn characters_of_all_planes_are_decoded() {
        for plane in 1..=16_u32 {
            let character = char::from_u32((plane << 16) + 0xbb7).unwrap();
            let units = character.encode_utf16(&mut [0; 2]).to_vec();
            let line = format!("{{\"s\":\"\\u{:04x}\\u{:04X}\"}}\n", units[0], units[1]);
            let batches = decoder().decode(line.as_bytes()).unwrap();
            let found = batches[0].column(1).as_string_view().value(0);
            assert_eq!(found, character.to_string(), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_explained() {
        for (lines, line, why) in [
            ("{\"n\":1}\n{\"n\":1.5}\n", 1, "column `n` is BIGINT, and `1.5` is not"),
            ("{\"n\":\"x\"}\n", 0, "column `n` is BIGINT, and `x` is not"),
            ("{\"n\":{}}\n", 0, "n"),
            ("{\"n\":1\n}\n", 0, "does not end"),
            ("{\"n\":1}{\"n\":2}\n", 0, "not one object"),
            ("\n[1]\n", 1, "expected {"),
            ("{\"l\":[1,2.5]}\n", 0, "column `l`"),
            ("{\"o\":{\"x\":\"y\"}}\n", 0, "'x'"),
        ] {
            let Undecodable { line: found, why: text } =
                decoder().decode(lines.as_bytes()).unwrap_err();
            assert_eq!(found, Some(line), "{lines:?}: {text}");
            assert!(text.contains(why), "{lines:?}: {text}");
        }
        assert_eq!(decoder().decode(b"{\"s\":\"\xff\"}\n").unwrap_err().line, Some(0));
    }
}

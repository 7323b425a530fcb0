//! Maps in JSON: a key of any type is a text, as in `{"1": "a"}`. Arrow writes maps with keys that are
//! texts only.
//!
//! A value is written row by row, so that no column of texts is made of the keys.

use arrow_array::cast::AsArray;
use arrow_array::{Array, MapArray};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, FieldRef};

/// Writes the maps whose keys are not texts.
#[derive(Clone, Copy, Debug)]
pub struct TextKeys;

impl EncoderFactory for TextKeys {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let Some(map) = array.as_map_opt().filter(|map| !map.keys().data_type().is_string()) else {
            return Ok(None);
        };
        let encoder = MapWriter {
            map,
            keys: make_encoder(field, map.keys(), options)?,
            values: make_encoder(field, map.values(), options)?,
            key: Vec::new(),
        };
        Ok(Some(NullableEncoder::new(Box::new(encoder), map.nulls().cloned())))
    }
}

struct MapWriter<'a> {
    map: &'a MapArray,
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
    /// The JSON of one key.
    key: Vec<u8>,
}

impl MapWriter<'_> {
    fn write_key(&mut self, entry: usize, out: &mut Vec<u8>) {
        self.key.clear();
        encode(&mut self.keys, entry, &mut self.key);
        // Dates and the like have quotation marks; numbers, lists and structs have none.
        if self.key.starts_with(b"\"") {
            out.extend_from_slice(&self.key);
        } else {
            let text = serde_json::Value::from(String::from_utf8_lossy(&self.key));
            out.extend_from_slice(text.to_string().as_bytes());
        }
    }
}

impl Encoder for MapWriter<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let bound = |place: usize| usize::try_from(self.map.value_offsets()[place]).unwrap_or(0);
        let entries = bound(row)..bound(row + 1);
        out.push(b'{');
        for entry in entries.clone() {
            if entry > entries.start {
                out.push(b',');
            }
            self.write_key(entry, out);
            out.push(b':');
            encode(&mut self.values, entry, out);
        }
        out.push(b'}');
    }
}

fn encode(encoder: &mut NullableEncoder<'_>, entry: usize, out: &mut Vec<u8>) {
    match encoder.is_null(entry) {
        true => out.extend_from_slice(b"null"),
        false => encoder.encode(entry, out),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
    use arrow_array::{ArrayRef, RecordBatch, StructArray};
    use arrow_json::writer::{LineDelimited, WriterBuilder};

    use super::*;

    fn lines(columns: Vec<(&str, ArrayRef)>) -> String {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let builder = WriterBuilder::new().with_explicit_nulls(true);
        let mut writer =
            builder.with_encoder_factory(Arc::new(TextKeys)).build::<_, LineDelimited>(Vec::new());
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        String::from_utf8(writer.into_inner()).unwrap()
    }

    fn numbers() -> MapArray {
        let mut maps = MapBuilder::new(None, Int64Builder::new(), StringBuilder::new());
        maps.keys().append_slice(&[1, -2]);
        maps.values().append_value("a");
        maps.values().append_null();
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        maps.append(true).unwrap();
        maps.finish()
    }

    #[test]
    fn keys_of_maps_are_texts() {
        let numbers: ArrayRef = Arc::new(numbers());
        assert_eq!(
            lines(vec![("m", Arc::clone(&numbers))]),
            "{\"m\":{\"1\":\"a\",\"-2\":null}}\n{\"m\":null}\n{\"m\":{}}\n"
        );
        // Also behind the first row, and inside of other values.
        assert_eq!(lines(vec![("m", numbers.slice(1, 2))]), "{\"m\":null}\n{\"m\":{}}\n");
        let inside = StructArray::try_from(vec![("x", numbers.slice(0, 1))]).unwrap();
        assert_eq!(
            lines(vec![("s", Arc::new(inside))]),
            "{\"s\":{\"x\":{\"1\":\"a\",\"-2\":null}}}\n"
        );
    }

    #[test]
    fn keys_that_are_texts_stay_arrows() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        maps.keys().append_value("a\"");
        maps.values().append_value(1);
        maps.append(true).unwrap();
        assert_eq!(lines(vec![("m", Arc::new(maps.finish()))]), "{\"m\":{\"a\\\"\":1}}\n");
    }
}

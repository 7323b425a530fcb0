//! Decodes blocks of a text, and explains the record that cannot be decoded.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use super::decoders::{CsvDecoder, JsonDecoder};
use super::dialect::quotes::position;

/// A decoder of whole records.
pub enum Decoder {
    /// Decodes lines with separated values.
    Csv(Box<CsvDecoder>),
    /// Decodes JSON objects.
    Json(Box<JsonDecoder>),
}

/// A record that cannot be decoded.
#[derive(Debug)]
pub struct Undecodable {
    /// Number of line breaks before the record in its block. `None` if the record was not found.
    pub line: Option<u64>,
    /// The reason, for the user.
    pub why: String,
}

impl From<CsvDecoder> for Decoder {
    fn from(csv: CsvDecoder) -> Self {
        Self::Csv(Box::new(csv))
    }
}

impl From<JsonDecoder> for Decoder {
    fn from(json: JsonDecoder) -> Self {
        Self::Json(Box::new(json))
    }
}

impl Decoder {
    /// Decodes whole records.
    pub fn decode(&mut self, records: &[u8]) -> Result<Vec<RecordBatch>, Undecodable> {
        match (self.batches(records), &mut *self) {
            (Ok(batches), _) => Ok(batches),
            (Err(_), Self::Csv(csv)) if csv.ignores_errors() => Ok(csv.fitting(records)),
            (Err(error), _) => Err(self.explain(records, &error)),
        }
    }

    fn batches(&mut self, records: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
        match self {
            Self::Csv(csv) => csv.decode(records),
            Self::Json(json) => json.decode(records),
        }
    }

    /// A decoder of the same records, one at a time.
    fn of_single_records(&self) -> Result<Self, ArrowError> {
        Ok(match self {
            Self::Csv(csv) => csv.fresh(1).into(),
            Self::Json(json) => json.of_single_records()?.into(),
        })
    }

    /// The end of the first record.
    fn first_record(&self, records: &[u8]) -> usize {
        match self {
            Self::Csv(csv) => csv.quotes().first_record(records),
            Self::Json(_) => position(records, b'\n').map_or(records.len(), |end| end + 1),
        }
    }

    fn why(&self, error: &ArrowError) -> String {
        match self {
            Self::Csv(csv) => csv.why(error),
            Self::Json(json) => json.why(error),
        }
    }

    /// Decodes the records one by one, until one fails.
    fn explain(&self, records: &[u8], error: &ArrowError) -> Undecodable {
        let unknown = Undecodable { line: None, why: self.why(error) };
        let Ok(mut single) = self.of_single_records() else { return unknown };
        let mut rest = records;
        let mut line = 0;
        while !rest.is_empty() {
            let (record, behind) = rest.split_at(self.first_record(rest));
            if let Err(error) = single.batches(record) {
                return Undecodable { line: Some(line), why: self.why(&error) };
            }
            line += super::newlines(record);
            rest = behind;
        }
        unknown
    }
}
